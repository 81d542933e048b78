package mayfly;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.Projections;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.TimeSeriesGranularity;
import com.mongodb.client.model.TimeSeriesOptions;
import com.mongodb.client.model.Updates;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.bson.Document;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * What the published pages on expiry state and show: TTL indexes and time series (MongoDB's manual), time to live by last
 * modification (the pages on Azure Cosmos DB). Seconds are fewer where something has to be waited for.
 */
class ExpiryTest {
    private MongoClient client;
    private MongoDatabase database;

    @BeforeEach
    void connect() {
        client = MongoClients.create(System.getenv("MONGODB_URI"));
        database = client.getDatabase("clients_java_expiry");
        database.drop();
        admin("setParameter", "ttlMonitorSleepSecs", 1);
    }

    /** Other tests count what expires. */
    @AfterEach
    void disconnect() {
        admin("setParameter", "ttlMonitorEnabled", true);
        database.drop();
        client.close();
    }

    private Document admin(String command, String name, Object value) {
        return client.getDatabase("admin").runCommand(new Document(command, 1).append(name, value));
    }

    private static IndexOptions expireAfter(long seconds) {
        return new IndexOptions().expireAfter(seconds, TimeUnit.SECONDS);
    }

    private static void until(String what, BooleanSupplier happened) throws InterruptedException {
        Instant deadline = Instant.now().plusSeconds(30);
        while (!happened.getAsBoolean()) {
            assertTrue(Instant.now().isBefore(deadline), "not in 30 s: " + what);
            Thread.sleep(50);
        }
    }

    private long passes() {
        Document status = client.getDatabase("admin").runCommand(new Document("serverStatus", 1));
        return status.getEmbedded(List.of("metrics", "ttl", "passes"), Number.class).longValue();
    }

    private void twoPasses() throws InterruptedException {
        long target = passes() + 2;
        until("two passes", () -> passes() >= target);
    }

    private static List<String> names(MongoCollection<Document> collection) {
        List<String> names = new ArrayList<>();
        collection.find().projection(Projections.include("name")).sort(Sorts.ascending("name"))
                .forEach(document -> names.add(document.getString("name")));
        return names;
    }

    private static Document named(String name) {
        return new Document("name", name);
    }

    private static void refuses(int code, Runnable act) {
        MongoException error = assertThrows(MongoException.class, act::run);
        assertEquals(code, error.getCode(), error.getMessage());
    }

    private Document optionsOf(String name) {
        Document found = database.listCollections().filter(Filters.eq("name", name)).first();
        assertNotNull(found);
        return found.get("options", Document.class);
    }

    @Test
    void anIndexOnTheLastModification() {
        MongoCollection<Document> collection = database.getCollection("collectionName");
        String index = collection.createIndex(Indexes.ascending("_ts"), expireAfter(10L));
        assertEquals("_ts_1", index);
        assertEquals(10, collection.listIndexes().into(new ArrayList<>()).get(1).get("expireAfterSeconds"));
        collection.insertOne(named("seen"));
        Document seen = collection.find().first();
        assertNotNull(seen);
        assertFalse(seen.containsKey("_ts"), "a system property");
        Document reply = database.runCommand(new Document("createIndexes", "fresh").append("indexes",
                List.of(new Document("key", new Document("_ts", 1)).append("name", "_ts_1").append("expireAfterSeconds", 10))));
        assertEquals("CreateIndexesResponse", reply.getString("_t"));
        assertEquals(true, reply.getBoolean("createdCollectionAutomatically"));
        assertEquals(1, reply.getInteger("numIndexesBefore"));
        assertEquals(2, reply.getInteger("numIndexesAfter"));
    }

    @Test
    void valuesOfDocumentsAndOfCollections() throws InterruptedException {
        admin("setParameter", "ttlMonitorEnabled", false);
        MongoCollection<Document> values = database.getCollection("values");
        MongoCollection<Document> none = database.getCollection("none");
        MongoCollection<Document> minusOne = database.getCollection("minusOne");
        MongoCollection<Document> modified = database.getCollection("modified");
        // 2 for the collection's 10 seconds or 1000, 7 for the documents' 20 or 2000.
        values.createIndex(Indexes.ascending("_ts"), expireAfter(2L));
        minusOne.createIndex(Indexes.ascending("_ts"), expireAfter(-1L));
        modified.createIndex(Indexes.ascending("_ts"), expireAfter(5L));
        Instant begun = Instant.now();
        values.insertMany(List.of(
                named("double").append("ttl", 7.0), named("int").append("ttl", 7), named("long").append("ttl", 7L),
                named("fraction").append("ttl", 20.5), named("too great").append("ttl", 2147483649L), named("missing"),
                named("-1").append("ttl", -1), named("other case").append("TTL", 7)));
        for (MongoCollection<Document> collection : List.of(none, minusOne)) {
            collection.insertMany(List.of(named("missing"), named("-1").append("ttl", -1), named("n").append("ttl", 7)));
        }
        modified.insertMany(List.of(named("modified"), named("not modified")));

        until("the time to live of the collection", () -> values.countDocuments() < 8);
        assertTrue(Instant.now().isAfter(begun.plusMillis(1900)));
        assertEquals(List.of("-1", "double", "int", "long"), names(values));
        modified.updateOne(Filters.eq("name", "modified"), Updates.set("n", 1));
        until("the one that was not modified", () -> modified.countDocuments() < 2);
        assertEquals(List.of("modified"), names(modified));
        until("the time to live of documents", () -> values.countDocuments() < 4);
        assertTrue(Instant.now().isAfter(begun.plusMillis(6900)));
        until("all of them", () -> values.countDocuments() < 2);
        assertEquals(List.of("-1"), names(values));
        until("the same, where nothing else goes", () -> minusOne.countDocuments() < 3);
        assertEquals(List.of("-1", "missing"), names(minusOne));
        assertEquals(List.of("-1", "missing", "n"), names(none));
        // Invisible, and not deleted yet.
        assertEquals(8, database.runCommand(new Document("validate", "values")).get("nrecords", Number.class).intValue());
    }

    @Test
    void anIndexOnADate() throws InterruptedException {
        MongoCollection<Document> eventlog = database.getCollection("eventlog");
        Date due = Date.from(Instant.now().minusSeconds(3601));
        Date notDue = Date.from(Instant.now().minusSeconds(3000));
        eventlog.insertMany(List.of(
                named("due").append("lastModifiedDate", due), named("not due").append("lastModifiedDate", notDue),
                named("earliest is due").append("lastModifiedDate", List.of(notDue, due)),
                named("none is due").append("lastModifiedDate", List.of(notDue, notDue)),
                named("no date").append("lastModifiedDate", "2001-01-01"), named("no field")));
        eventlog.createIndex(Indexes.ascending("lastModifiedDate"), expireAfter(3600L));
        twoPasses();
        assertEquals(List.of("no date", "no field", "none is due", "not due"), names(eventlog));
        refuses(85, () -> eventlog.createIndex(Indexes.ascending("lastModifiedDate"), expireAfter(10L)));
        refuses(197, () -> eventlog.createIndex(Indexes.ascending("_id"), expireAfter(10L)));
        database.createCollection("capped", new CreateCollectionOptions().capped(true).sizeInBytes(4096));
        refuses(67, () -> database.getCollection("capped").createIndex(Indexes.ascending("at"), expireAfter(10L)));
        eventlog.createIndex(Indexes.ascending("a", "b"), expireAfter(10L));
        assertTrue(eventlog.listIndexes().into(new ArrayList<>()).stream()
                .noneMatch(index -> index.getString("name").equals("a_1_b_1") && index.containsKey("expireAfterSeconds")));
    }

    @Test
    void aTimeSeries() throws InterruptedException {
        TimeSeriesOptions series =
                new TimeSeriesOptions("timestamp").metaField("metadata").granularity(TimeSeriesGranularity.HOURS);
        CreateCollectionOptions options =
                new CreateCollectionOptions().timeSeriesOptions(series).expireAfter(86400, TimeUnit.SECONDS);
        database.createCollection("weather24h", options);
        assertEquals(86400L, optionsOf("weather24h").get("expireAfterSeconds", Number.class).longValue());
        MongoCollection<Document> weather = database.getCollection("weather24h");
        Document old = new Document("metadata", new Document("sensorId", 5578).append("type", "temperature"))
                .append("timestamp", Date.from(Instant.parse("2021-05-18T10:00:00Z"))).append("temp", 12);
        Document sensor = new Document("sensorId", 1);
        weather.insertMany(List.of(old,
                new Document("metadata", sensor).append("timestamp", new Date()).append("temp", 1)));
        twoPasses();
        assertEquals(0, weather.countDocuments(Filters.eq("temp", 12)));
        assertEquals(1, weather.countDocuments(Filters.eq("metadata.sensorId", 1)));

        Document change = new Document("collMod", "weather24h");
        database.runCommand(new Document(change).append("expireAfterSeconds", 604801));
        assertEquals(604801L, optionsOf("weather24h").get("expireAfterSeconds", Number.class).longValue());
        database.runCommand(new Document(change).append("expireAfterSeconds", "off"));
        assertFalse(optionsOf("weather24h").containsKey("expireAfterSeconds"));
    }
}
