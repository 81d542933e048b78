package mayfly;

import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.gte;
import static com.mongodb.client.model.Updates.inc;
import static com.mongodb.client.model.Updates.set;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.ClientSessionOptions;
import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoSocketException;
import com.mongodb.ReadConcern;
import com.mongodb.WriteConcern;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.event.CommandListener;
import com.mongodb.event.CommandStartedEvent;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.bson.Document;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.api.parallel.ResourceLock;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Transactions, causal and snapshot sessions of the Java driver; what is expected is listed in tests/clients/README.md. Both
 * servers at once, and together with other classes, because a driver comes back half a second after its connection was cut; the lock
 * keeps the tests of one server in order.
 */
abstract class TransactionTest {
    private static final String TRANSIENT = MongoException.TRANSIENT_TRANSACTION_ERROR_LABEL;
    private static final String UNKNOWN = MongoException.UNKNOWN_TRANSACTION_COMMIT_RESULT_LABEL;

    private final String server;
    private final List<MongoClient> clients = new ArrayList<>();
    private final ConcurrentHashMap<String, AtomicInteger> sent = new ConcurrentHashMap<>();
    private MongoClient client;
    private MongoClient elsewhere;
    private MongoClient proxied;

    /** The server's variables in the environment begin with `server`. */
    TransactionTest(String server) {
        this.server = server;
    }

    /** Two clients of a server that know nothing of each other, one through the proxy, and the accounts. */
    @BeforeEach
    void open() {
        client = connect(server + "_URI");
        elsewhere = connect(server + "_URI");
        proxied = connect(server + "_PROXY_URI");
        first(client).drop();
        second(client).drop();
        first(client).insertOne(new Document("_id", "ann").append("n", 100));
        second(client).insertOne(new Document("_id", "bob").append("n", 0));
    }

    private MongoClient connect(String variable) {
        CommandListener listener = new CommandListener() {
            @Override
            public void commandStarted(CommandStartedEvent event) {
                sent.computeIfAbsent(event.getCommandName(), name -> new AtomicInteger()).incrementAndGet();
            }
        };
        MongoClient connected = MongoClients.create(MongoClientSettings.builder()
                .applyConnectionString(new ConnectionString(System.getenv(variable))).addCommandListener(listener).build());
        clients.add(connected);
        return connected;
    }

    @AfterEach
    void close() {
        clients.forEach(MongoClient::close);
    }

    private static MongoCollection<Document> first(MongoClient of) {
        return of.getDatabase("clients_java_a").getCollection("accounts");
    }

    private static MongoCollection<Document> second(MongoClient of) {
        return of.getDatabase("clients_java_b").getCollection("accounts");
    }

    private static Void move(MongoClient of, ClientSession session, int amount) {
        first(of).updateOne(session, eq("ann"), inc("n", -amount));
        second(of).updateOne(session, eq("bob"), inc("n", amount));
        return null;
    }

    private static List<Integer> money(MongoClient of, ClientSession session) {
        return List.of(first(of).find(session, eq("ann")).first().getInteger("n"),
                second(of).find(session, eq("bob")).first().getInteger("n"));
    }

    private List<Integer> money() {
        return List.of(first(elsewhere).find(eq("ann")).first().getInteger("n"),
                second(elsewhere).find(eq("bob")).first().getInteger("n"));
    }

    /** Asks the proxy for a cut, and gives how many there have been. */
    private int cut(String what) {
        return proxied.getDatabase("admin").runCommand(new Document("cut", what)).getInteger("cuts");
    }

    private int count(String name) {
        AtomicInteger count = sent.get(name);
        return count == null ? 0 : count.get();
    }

    @Test
    void allOrNothing() {
        try (ClientSession session = client.startSession()) {
            String result = session.withTransaction(() -> {
                move(client, session, 30);
                assertEquals(List.of(70, 30), money(client, session));
                assertEquals(List.of(100, 0), money());
                return "done";
            });
            assertEquals("done", result);
            assertEquals(List.of(70, 30), money());
            assertThrows(IllegalStateException.class, () -> session.withTransaction(() -> {
                move(client, session, 30);
                throw new IllegalStateException("not this time");
            }));
        }
        assertEquals(List.of(70, 30), money());
    }

    @Test
    void theLoserOfAConflictIsRunAgain() {
        try (ClientSession winner = client.startSession(); ClientSession loser = elsewhere.startSession()) {
            winner.startTransaction();
            loser.startTransaction();
            first(client).updateOne(winner, eq("ann"), inc("n", 1));
            MongoCommandException error = assertThrows(MongoCommandException.class,
                    () -> first(elsewhere).updateOne(loser, eq("ann"), inc("n", 1)));
            assertEquals(112, error.getErrorCode());
            assertTrue(error.hasErrorLabel(TRANSIENT));
            loser.abortTransaction();
            winner.commitTransaction();
        }
        List.of(client, elsewhere).stream().map(of -> CompletableFuture.runAsync(() -> countUp(of))).toList()
                .forEach(CompletableFuture::join);
        assertEquals(121, money().get(0));
    }

    /** Adds ten times one to what it read. */
    private static void countUp(MongoClient of) {
        try (ClientSession session = of.startSession()) {
            for (int i = 0; i < 10; i++) {
                session.withTransaction(() -> {
                    int n = first(of).find(session, eq("ann")).first().getInteger("n");
                    return first(of).updateOne(session, eq("ann"), set("n", n + 1));
                });
            }
        }
    }

    @Test
    void causalSession() {
        MongoCollection<Document> mine = first(client).withReadConcern(ReadConcern.MAJORITY);
        MongoCollection<Document> theirs = first(elsewhere).withWriteConcern(WriteConcern.W1);
        ClientSessionOptions causal = ClientSessionOptions.builder().causallyConsistent(true).build();
        for (int n = 0; n < 20; n++) {
            try (ClientSession writing = elsewhere.startSession(causal); ClientSession reading = client.startSession(causal)) {
                theirs.insertOne(writing, new Document("_id", n));
                assertNotNull(theirs.find(writing, eq(n)).first());
                reading.advanceClusterTime(writing.getClusterTime());
                reading.advanceOperationTime(writing.getOperationTime());
                assertNotNull(mine.find(reading, eq(n)).first());
                assertTrue(reading.getOperationTime().compareTo(writing.getOperationTime()) >= 0);
            }
        }
    }

    @Test
    void snapshotSession() {
        MongoCollection<Document> coll = first(client);
        coll.insertMany(IntStream.range(0, 50).mapToObj(i -> new Document("_id", i).append("n", 1)).toList());
        try (ClientSession session = client.startSession(ClientSessionOptions.builder().snapshot(true).build())) {
            assertEquals(50, coll.countDocuments(session, eq("n", 1)));
            first(elsewhere).updateMany(gte("_id", 0), inc("n", 1));
            first(elsewhere).deleteMany(gte("_id", 20));
            second(elsewhere).updateOne(eq("bob"), inc("n", 5));
            assertEquals(50, coll.find(session, eq("n", 1)).into(new ArrayList<>()).size());
            assertEquals(List.of(100, 0), money(client, session));
            assertEquals(2, coll.distinct(session, "n", Integer.class).into(new ArrayList<>()).size());
        }
        assertEquals(20, coll.countDocuments(eq("n", 2)));
        assertEquals(List.of(100, 5), money());
    }

    @ParameterizedTest
    @ValueSource(strings = {"request", "reply"})
    void aCommitIsTriedAgain(String when) {
        try (ClientSession session = proxied.startSession()) {
            session.startTransaction();
            move(proxied, session, 30);
            int cuts = cut(when + " commitTransaction 1");
            session.commitTransaction();
            assertEquals(1, cut("nothing") - cuts);
            assertEquals(2, count("commitTransaction"));
        }
        assertEquals(List.of(70, 30), money());
    }

    @ParameterizedTest
    @ValueSource(strings = {"request", "reply"})
    void theResultOfACommitIsUnknown(String when) {
        try (ClientSession session = proxied.startSession()) {
            session.startTransaction();
            move(proxied, session, 30);
            cut(when + " commitTransaction 2");
            MongoSocketException error = assertThrows(MongoSocketException.class, session::commitTransaction);
            assertTrue(error.hasErrorLabel(UNKNOWN));
            assertFalse(error.hasErrorLabel(TRANSIENT));
            session.commitTransaction();
            assertEquals(List.of(70, 30), money());

            AtomicInteger runs = new AtomicInteger();
            int cuts = cut(when + " commitTransaction 3");
            session.withTransaction(() -> {
                runs.incrementAndGet();
                return move(proxied, session, 30);
            });
            assertEquals(List.of(3, 1), List.of(cut("nothing") - cuts, runs.get()));
        }
        assertEquals(List.of(40, 60), money());
    }

    @ParameterizedTest
    @ValueSource(strings = {"request", "reply"})
    void anAbortLeavesNothing(String when) {
        try (ClientSession session = proxied.startSession()) {
            session.startTransaction();
            move(proxied, session, 30);
            int cuts = cut(when + " abortTransaction 1");
            session.abortTransaction();
            assertEquals(1, cut("nothing") - cuts);
            assertEquals(2, count("abortTransaction"));
            // It waits for no transaction that is still open.
            first(elsewhere).updateOne(eq("ann"), inc("n", 1));
        }
        assertEquals(List.of(101, 0), money());
    }

    @ParameterizedTest
    @ValueSource(strings = {"request", "reply"})
    void aStatementIsLost(String when) {
        AtomicInteger runs = new AtomicInteger();
        try (ClientSession session = proxied.startSession()) {
            cut(when + " update 1");
            session.withTransaction(() -> {
                runs.incrementAndGet();
                return move(proxied, session, 30);
            });
        }
        assertEquals(2, runs.get());
        assertEquals(List.of(70, 30), money());
    }
}

@Execution(ExecutionMode.CONCURRENT)
@ResourceLock("router")
class RouterTransactionTest extends TransactionTest {
    RouterTransactionTest() {
        super("MONGODB");
    }
}

@Execution(ExecutionMode.CONCURRENT)
@ResourceLock("member")
class MemberTransactionTest extends TransactionTest {
    MemberTransactionTest() {
        super("MONGODB_REPLICA_SET");
    }
}
