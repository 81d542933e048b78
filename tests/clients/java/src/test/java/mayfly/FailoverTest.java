package mayfly;

import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Sorts.ascending;
import static com.mongodb.client.model.Updates.inc;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.mongodb.ClientSessionOptions;
import com.mongodb.ConnectionString;
import com.mongodb.MongoException;
import com.mongodb.ReadPreference;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import org.bson.Document;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.api.parallel.ResourceLock;

/**
 * What clients of the Java driver see while the primary of their replica set steps down; what is expected is listed in
 * tests/clients/README.md. The lock keeps the transactions of that set from running meanwhile.
 */
@Execution(ExecutionMode.CONCURRENT)
@ResourceLock("member")
class FailoverTest {
    private static final String URI = System.getenv("MONGODB_REPLICA_SET_URI");
    private static final List<String> MEMBERS = new ConnectionString(URI).getHosts();
    private static final Duration WAIT = Duration.ofSeconds(12);

    private final MongoClient client = MongoClients.create(URI);
    /** Steps the primary down; the other client is the one under test. */
    private final MongoClient operator = MongoClients.create(URI);
    private MongoDatabase database;

    @BeforeEach
    void open(TestInfo info) {
        primary();
        database = client.getDatabase("clients_java_failover_" + info.getTestMethod().orElseThrow().getName());
        database.drop();
    }

    /** The proxy leads to the first member. */
    @AfterEach
    void close() {
        try (client; operator) {
            if (!primary().equals(MEMBERS.get(0))) {
                stepDown();
                assertEquals(MEMBERS.get(0), primary());
            }
        }
    }

    private static void until(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + WAIT.toNanos();
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, () -> "not in " + WAIT + ": " + what);
            Thread.sleep(20);
        }
    }

    /** Waits until every member is there, and gives the name of the primary. */
    private String primary() {
        Document[] hello = {null};
        try {
            until("the set has a primary and all members", () -> {
                try {
                    hello[0] = operator.getDatabase("admin").runCommand(new Document("hello", 1));
                } catch (MongoException e) {
                    return false;
                }
                return hello[0].getBoolean("isWritablePrimary")
                        && hello[0].getList("hosts", String.class).size() == MEMBERS.size();
            });
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
        return hello[0].getString("me");
    }

    /** Makes the other member the primary. A member alone is the primary again after a second. */
    private void stepDown() {
        operator.getDatabase("admin").runCommand(MEMBERS.size() > 1
                ? new Document("replSetStepDown", 60)
                : new Document("replSetStepDown", 1).append("secondaryCatchUpPeriodSecs", 0).append("force", true));
    }

    @Test
    void writers() throws Exception {
        MongoCollection<Document> counters = database.getCollection("counters");
        MongoCollection<Document> items = database.getCollection("items");
        counters.insertMany(IntStream.range(0, 3).mapToObj(id -> new Document("_id", id).append("n", 0)).toList());
        List<AtomicInteger> done = IntStream.range(0, 4).mapToObj(writer -> new AtomicInteger()).toList();
        AtomicBoolean ended = new AtomicBoolean();
        IntFunction<Runnable> write = writer -> () -> {
            AtomicInteger count = done.get(writer);
            while (!ended.get()) {
                if (writer < 3) {
                    counters.updateOne(eq(writer), inc("n", 1));
                } else {
                    items.insertOne(new Document("_id", count.get()));
                }
                count.incrementAndGet();
            }
        };
        List<CompletableFuture<Void>> writers = IntStream.range(0, 4)
                .mapToObj(writer -> CompletableFuture.runAsync(write.apply(writer), run -> new Thread(run).start()))
                .toList();
        try {
            goOn(done, writers);
            stepDown();
            goOn(done, writers);
        } finally {
            ended.set(true);
            writers.forEach(CompletableFuture::join);
        }
        List<Integer> found = counters.find().sort(ascending("_id")).map(counter -> counter.getInteger("n"))
                .into(new ArrayList<>());
        assertEquals(done.subList(0, 3).stream().map(AtomicInteger::get).toList(), found);
        assertEquals(done.get(3).get(), items.countDocuments());
    }

    private static void goOn(List<AtomicInteger> done, List<CompletableFuture<Void>> writers)
            throws InterruptedException {
        List<Integer> before = done.stream().map(AtomicInteger::get).toList();
        until("every writer goes on", () -> writers.stream().anyMatch(CompletableFuture::isDone)
                || IntStream.range(0, 4).allMatch(writer -> done.get(writer).get() >= before.get(writer) + 20));
    }

    @Test
    void changeStream() throws Exception {
        MongoCollection<Document> items = database.getCollection("items");
        database.createCollection("items");
        try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream = items.watch().cursor()) {
            List<Integer> seen = new ArrayList<>();
            insert(items, 0, 10);
            see(stream, seen, 5);
            stepDown();
            insert(items, 10, 20);
            see(stream, seen, 20);
            assertEquals(IntStream.range(0, 20).boxed().toList(), seen);
        }
    }

    private static void insert(MongoCollection<Document> items, int from, int to) {
        IntStream.range(from, to).forEach(id -> items.insertOne(new Document("_id", id)));
    }

    private static void see(
            MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream, List<Integer> seen, int count)
            throws InterruptedException {
        until(count + " events", () -> {
            ChangeStreamDocument<Document> event = stream.tryNext();
            if (event != null) {
                seen.add(event.getDocumentKey().getInt32("_id").getValue());
            }
            return seen.size() >= count;
        });
    }

    @Test
    void readsOnASecondary() {
        assumeTrue(MEMBERS.size() > 1, "the set has one member");
        MongoCollection<Document> items = database.getCollection("items");
        MongoCollection<Document> secondary = items.withReadPreference(ReadPreference.secondary());
        ClientSessionOptions causal = ClientSessionOptions.builder().causallyConsistent(true).build();
        try (ClientSession session = client.startSession(causal)) {
            for (int id = 0; id < 20; id++) {
                if (id == 10) {
                    stepDown();
                }
                items.insertOne(session, new Document("_id", id));
                assertNotNull(secondary.find(session, eq(id)).first(), "document " + id);
            }
            assertEquals(20, secondary.countDocuments(session));
        }
    }

    @Test
    void transaction() {
        MongoCollection<Document> accounts = database.getCollection("accounts");
        Document ann = new Document("_id", "ann");
        Document bob = new Document("_id", "bob");
        accounts.insertMany(List.of(ann.append("n", 100), bob.append("n", 0)));
        AtomicInteger runs = new AtomicInteger();
        try (ClientSession session = client.startSession()) {
            session.withTransaction(() -> {
                accounts.updateOne(session, eq("ann"), inc("n", -30));
                if (runs.incrementAndGet() == 1) {
                    stepDown();
                }
                return accounts.updateOne(session, eq("bob"), inc("n", 30));
            });
        }
        assertTrue(runs.get() > 1, "the callback ran once");
        assertEquals(List.of(ann.append("n", 70), bob.append("n", 30)),
                accounts.find().sort(ascending("_id")).into(new ArrayList<>()));
    }
}
