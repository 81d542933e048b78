package mayfly;

import static com.mongodb.client.model.Aggregates.group;
import static com.mongodb.client.model.Aggregates.limit;
import static com.mongodb.client.model.Aggregates.match;
import static com.mongodb.client.model.Aggregates.sort;
import static com.mongodb.client.model.Filters.and;
import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.gte;
import static com.mongodb.client.model.Filters.lt;
import static com.mongodb.client.model.Updates.combine;
import static com.mongodb.client.model.Updates.inc;
import static com.mongodb.client.model.Updates.push;
import static com.mongodb.client.model.Updates.set;
import static com.mongodb.client.model.Updates.unset;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.ErrorCategory;
import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoQueryException;
import com.mongodb.MongoWriteException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Accumulators;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.InsertManyOptions;
import com.mongodb.client.model.Projections;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.UpdateOptions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.Document;
import org.bson.conversions.Bson;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The Java driver against a running server; what is expected is listed in tests/clients/README.md. */
class DriverTest {
    private static final String URI = System.getenv("MONGODB_URI");
    private static final String DATABASE = "clients_java";

    private static MongoClient client;
    private static MongoDatabase admin;
    private MongoCollection<Document> coll;

    @BeforeAll
    static void connect() {
        client = MongoClients.create(URI);
        admin = client.getDatabase("admin");
    }

    @AfterAll
    static void disconnect() {
        client.close();
    }

    @BeforeEach
    void freshCollection(TestInfo info) {
        coll = client.getDatabase(DATABASE).getCollection(info.getTestMethod().orElseThrow().getName());
        coll.drop();
    }

    private static List<Document> numbers(int count, IntFunction<Document> more) {
        return IntStream.range(0, count)
                .mapToObj(i -> {
                    Document document = new Document("_id", i);
                    document.putAll(more.apply(i));
                    return document;
                })
                .toList();
    }

    private static List<Document> list(Iterable<Document> found) {
        List<Document> documents = new ArrayList<>();
        found.forEach(documents::add);
        return documents;
    }

    private static void fails(int code, String codeName, Executable act) {
        MongoException error = assertThrows(MongoException.class, act);
        assertEquals(code, error.getCode(), error.getMessage());
        if (error instanceof MongoCommandException command) {
            assertEquals(codeName, command.getErrorCodeName());
        }
    }

    // connect

    @Test
    void pingAndBuildInfo() {
        assertEquals(1.0, admin.runCommand(new Document("ping", 1)).getDouble("ok"));
        Document info = admin.runCommand(new Document("buildInfo", 1));
        assertTrue(info.getString("version").startsWith("8."), info.getString("version"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"zlib", "snappy", "zstd"})
    void compression(String compressor) {
        String separator = URI.substring("mongodb://".length()).contains("/") ? "" : "/";
        String uri = URI + separator + (URI.contains("?") ? "&" : "?") + "compressors=" + compressor;
        try (MongoClient compressed = MongoClients.create(uri)) {
            MongoCollection<Document> same = compressed.getDatabase(DATABASE).getCollection("compression");
            String text = "mayfly ".repeat(5000);
            same.insertMany(numbers(20, i -> new Document("text", text)));
            List<Document> found = list(same.find());
            assertEquals(20, found.size());
            assertTrue(found.stream().allMatch(document -> text.equals(document.getString("text"))));
        }
    }

    // insert

    @Test
    void insert() {
        Document ann = new Document("name", "ann");
        var id = coll.insertOne(ann).getInsertedId();
        assertNotNull(id);
        assertEquals(ann, coll.find(eq(id)).first());
        assertEquals(10, coll.insertMany(numbers(10, i -> new Document())).getInsertedIds().size());
        assertEquals(11, coll.countDocuments());
    }

    @Test
    void unorderedBulkReportsTheDuplicate() {
        List<Document> documents = List.of(new Document("_id", 1), new Document("_id", 1), new Document("_id", 2));
        MongoBulkWriteException error = assertThrows(MongoBulkWriteException.class,
                () -> coll.insertMany(documents, new InsertManyOptions().ordered(false)));
        assertEquals(2, error.getWriteResult().getInsertedCount());
        assertEquals(1, error.getWriteErrors().size());
        var first = error.getWriteErrors().get(0);
        assertEquals(1, first.getIndex());
        assertEquals(11000, first.getCode());
        assertEquals(ErrorCategory.DUPLICATE_KEY, first.getCategory());
        assertTrue(first.getMessage().contains("dup key: { _id: 1 }"), first.getMessage());
        assertEquals(2, coll.countDocuments());
    }

    // find

    @Test
    void find() {
        coll.insertMany(numbers(20, i -> new Document("even", i % 2 == 0).append("n", i * 10)));
        var found = coll.find(and(eq("even", true), gte("n", 40)))
                .projection(Projections.fields(Projections.excludeId(), Projections.include("n")))
                .sort(Sorts.descending("n")).skip(1).limit(3);
        assertEquals(List.of(new Document("n", 160), new Document("n", 140), new Document("n", 120)), list(found));
        assertNull(coll.find(eq(99)).first());
    }

    // update

    @Test
    void update() {
        coll.insertMany(numbers(5, i -> new Document("n", i).append("old", 1).append("tags", List.of("a"))));
        var result = coll.updateOne(eq(3), combine(set("name", "three"), inc("n", 10), unset("old"), push("tags", "b")));
        assertEquals(1, result.getMatchedCount());
        assertEquals(1, result.getModifiedCount());
        Document expected = new Document("_id", 3).append("n", 13).append("tags", List.of("a", "b")).append("name", "three");
        assertEquals(expected, coll.find(eq(3)).first());
        result = coll.updateMany(lt("n", 3), inc("n", 1));
        assertEquals(3, result.getModifiedCount());
        result = coll.updateMany(new Document(), set("n", 2));
        assertEquals(5, result.getMatchedCount());
        assertEquals(4, result.getModifiedCount());
    }

    @Test
    void replaceAndUpsert() {
        coll.insertOne(new Document("_id", 1).append("a", 1));
        assertEquals(1, coll.replaceOne(eq(1), new Document("c", 3)).getModifiedCount());
        assertEquals(new Document("_id", 1).append("c", 3), coll.find().first());
        UpdateOptions upsert = new UpdateOptions().upsert(true);
        var id = coll.updateOne(eq("key", "k"), set("v", 1), upsert).getUpsertedId();
        assertNotNull(id);
        assertEquals(1, coll.find(eq(id)).first().getInteger("v"));
        assertNull(coll.updateOne(eq("key", "k"), set("v", 2), upsert).getUpsertedId());
    }

    // delete

    @Test
    void delete() {
        coll.insertMany(numbers(10, i -> new Document("even", i % 2 == 0)));
        assertEquals(1, coll.deleteOne(eq("even", true)).getDeletedCount());
        assertEquals(4, coll.deleteMany(eq("even", true)).getDeletedCount());
        assertEquals(5, coll.countDocuments());
    }

    // cursors

    @Test
    void smallBatches() {
        List<Document> expected = numbers(1000, i -> new Document());
        coll.insertMany(expected);
        assertEquals(expected, list(coll.find().batchSize(7).sort(Sorts.ascending("_id"))));
        try (var abandoned = coll.find().batchSize(7).cursor()) {
            abandoned.next();
            assertNotNull(abandoned.getServerCursor());
        }
    }

    @Test
    void defaultBatches() {
        coll.insertMany(numbers(20000, i -> new Document("text", "x".repeat(20))));
        assertEquals(20000, list(coll.find()).size());
    }

    // count

    @Test
    void counts() {
        coll.insertMany(numbers(30, i -> new Document("mod", i % 3)));
        assertEquals(10, coll.countDocuments(eq("mod", 1)));
        assertEquals(30, coll.estimatedDocumentCount());
    }

    // aggregate

    @Test
    void aggregate() {
        coll.insertMany(numbers(30, i -> new Document("kind", "abc".substring(i % 3, i % 3 + 1)).append("n", i)));
        List<Bson> pipeline = List.of(match(lt("n", 20)), group("$kind", Accumulators.sum("total", "$n")),
                sort(Sorts.descending("total")), limit(2));
        List<Document> expected = List.of(
                new Document("_id", "b").append("total", 70), new Document("_id", "a").append("total", 63));
        assertEquals(expected, list(coll.aggregate(pipeline)));
    }

    // catalog

    @Test
    void catalog() {
        coll.insertOne(new Document());
        assertTrue(client.listDatabaseNames().into(new ArrayList<>()).contains(DATABASE));
        MongoDatabase database = client.getDatabase(DATABASE);
        Document info = database.listCollections().filter(eq("name", "catalog")).first();
        assertNotNull(info);
        assertEquals("collection", info.getString("type"));
        coll.drop();
        assertFalse(database.listCollectionNames().into(new ArrayList<>()).contains("catalog"));
    }

    // ttl

    private static IndexOptions expireAfter(long seconds) {
        return new IndexOptions().expireAfter(seconds, TimeUnit.SECONDS);
    }

    @Test
    void ttlIndex() {
        assertEquals("at_1", coll.createIndex(Indexes.ascending("at"), expireAfter(3600)));
        List<BsonDocument> indexes = coll.listIndexes(BsonDocument.class).into(new ArrayList<>());
        assertEquals(2, indexes.size());
        assertEquals(new BsonInt32(3600), indexes.get(1).get("expireAfterSeconds"));
    }

    private static long ttlMetric(String name) {
        Document status = admin.runCommand(new Document("serverStatus", 1));
        return status.getEmbedded(List.of("metrics", "ttl", name), Number.class).longValue();
    }

    private static void waitForPasses(long more) throws InterruptedException {
        long target = ttlMetric("passes") + more;
        Instant deadline = Instant.now().plusSeconds(30);
        while (ttlMetric("passes") < target) {
            assertTrue(Instant.now().isBefore(deadline), "no " + more + " passes in 30 s");
            Thread.sleep(50);
        }
    }

    @Test
    void ttlDeletion() throws InterruptedException {
        coll.createIndex(Indexes.ascending("at"), expireAfter(60));
        admin.runCommand(new Document("setParameter", 1).append("ttlMonitorSleepSecs", 1));
        waitForPasses(1);
        long before = ttlMetric("deletedDocuments");
        Instant now = Instant.now();
        List<Document> documents = new ArrayList<>();
        for (int i = 0; i < 25; i++) {
            documents.add(new Document("_id", "due" + i).append("at", Date.from(now.minusSeconds(61 + i))));
        }
        documents.add(new Document("_id", "fresh").append("at", Date.from(now)));
        documents.add(new Document("_id", "future").append("at", Date.from(now.plus(Duration.ofHours(1)))));
        documents.add(new Document("_id", "missing"));
        documents.add(new Document("_id", "null").append("at", null));
        documents.add(new Document("_id", "number").append("at", 0L));
        documents.add(new Document("_id", "text").append("at", "2001-01-01"));
        coll.insertMany(documents);
        waitForPasses(2);
        List<String> left = list(coll.find().sort(Sorts.ascending("_id"))).stream().map(d -> d.getString("_id")).toList();
        assertEquals(List.of("fresh", "future", "missing", "null", "number", "text"), left);
        assertEquals(25, ttlMetric("deletedDocuments") - before);
    }

    // errors

    @Test
    void duplicateKey() {
        coll.createIndex(Indexes.ascending("email"), new IndexOptions().unique(true));
        coll.insertOne(new Document("_id", 1).append("email", "a@b"));
        MongoWriteException error = assertThrows(MongoWriteException.class,
                () -> coll.insertOne(new Document("_id", 2).append("email", "a@b")));
        assertEquals(11000, error.getError().getCode());
        assertEquals(ErrorCategory.DUPLICATE_KEY, error.getError().getCategory());
        coll.insertMany(numbers(2, i -> new Document("_id", 10 + i).append("twice", 1).append("email", i)));
        fails(11000, "DuplicateKey",
                () -> coll.createIndex(Indexes.ascending("twice"), new IndexOptions().unique(true)));
    }

    @Test
    void unknownCommand() {
        fails(59, "CommandNotFound", () -> admin.runCommand(new Document("noSuchCommand", 1)));
    }

    @Test
    void indexErrors() {
        coll.createIndex(Indexes.ascending("at"), expireAfter(60));
        fails(85, "IndexOptionsConflict", () -> coll.createIndex(Indexes.ascending("at"), expireAfter(61)));
        fails(67, "CannotCreateIndex", () -> coll.createIndex(Indexes.ascending("x"), expireAfter(-1)));
    }

    @Test
    void writeAndQueryErrors() {
        coll.insertOne(new Document("_id", 1).append("text", "x"));
        fails(14, null, () -> coll.updateOne(eq(1), inc("text", 1)));
        MongoQueryException error = assertThrows(MongoQueryException.class,
                () -> coll.find(new Document("a", new Document("$noSuchOperator", 1))).first());
        assertEquals(2, error.getErrorCode());
        assertTrue(error.getErrorMessage().contains("unknown operator: $noSuchOperator"), error.getErrorMessage());
    }
}
