package mayfly;

import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Updates.inc;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoSecurityException;
import com.mongodb.MongoWriteException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.bson.Document;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The Java driver of 2019 and of 2020, which log in by OP_QUERY; what is expected is listed in tests/clients/README.md. */
class OldDriverTest {
    private static final String BASE = System.getenv("MONGODB_AUTH_URI");

    /** The first user is made by the localhost exception. */
    @BeforeAll
    static void firstUser() {
        try (MongoClient anonymous = MongoClients.create(BASE)) {
            Document user = new Document("createUser", "root").append("pwd", "pw").append("roles", Arrays.asList("root"));
            anonymous.getDatabase("admin").runCommand(user);
            assertEquals(13, assertThrows(MongoCommandException.class, () -> orders(anonymous).countDocuments()).getCode());
        }
    }

    private static MongoClient connect(String to) {
        switch (to) {
            case "router":
                return MongoClients.create(System.getenv("MONGODB_URI"));
            case "member":
                return MongoClients.create(System.getenv("MONGODB_REPLICA_SET_URI"));
            default:
                return logIn("pw", to);
        }
    }

    private static MongoClient logIn(String password, String mechanism) {
        String options = "&authSource=admin&authMechanism=" + mechanism;
        return MongoClients.create(BASE.replaceFirst("//", "//root:" + password + "@") + options);
    }

    private static MongoCollection<Document> orders(MongoClient client) {
        return client.getDatabase("clients_old_java").getCollection("orders");
    }

    @ParameterizedTest
    @ValueSource(strings = {"router", "member", "SCRAM-SHA-1", "SCRAM-SHA-256"})
    void documents(String to) {
        try (MongoClient client = connect(to)) {
            MongoCollection<Document> orders = orders(client);
            orders.drop();
            List<Document> many = new ArrayList<>();
            for (int number = 0; number < 1000; number++) {
                many.add(new Document("_id", number).append("n", number % 10));
            }
            orders.insertMany(many);
            orders.createIndex(new Document("n", 1), new IndexOptions().expireAfter(60L, TimeUnit.SECONDS));
            int found = 0;
            for (Document order : orders.find(eq("n", 3)).sort(new Document("_id", 1)).batchSize(7)) {
                assertEquals(3 + 10 * found++, order.getInteger("_id"));
            }
            assertEquals(100, found);
            assertEquals(100, orders.updateMany(eq("n", 3), inc("n", 100)).getModifiedCount());
            assertEquals(103, orders.findOneAndUpdate(eq("_id", 3), inc("n", 1)).getInteger("n"));
            assertEquals(1, orders.deleteOne(eq("n", 104)).getDeletedCount());
            assertEquals(999, orders.countDocuments());
            Document sum = orders.aggregate(Arrays.asList(new Document("$match", new Document("n", 103)),
                    new Document("$group", new Document("_id", null).append("of", new Document("$sum", "$n"))))).first();
            assertEquals(99 * 103, sum.getInteger("of"));
            Document same = new Document("_id", 1);
            assertEquals(11000, assertThrows(MongoWriteException.class, () -> orders.insertOne(same)).getCode());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"router", "member", "SCRAM-SHA-1", "SCRAM-SHA-256"})
    void transaction(String to) {
        try (MongoClient client = connect(to); ClientSession session = client.startSession()) {
            MongoCollection<Document> orders = orders(client);
            orders.drop();
            orders.insertOne(new Document("_id", 1).append("n", 1));
            session.withTransaction(() -> orders.updateOne(session, eq("_id", 1), inc("n", 1)));
            assertEquals(2, orders.find().first().getInteger("n"));
            session.startTransaction();
            orders.insertOne(session, new Document("_id", 2));
            assertEquals(2, orders.countDocuments(session));
            assertEquals(1, orders.countDocuments());
            session.abortTransaction();
            assertNull(orders.find(eq("_id", 2)).first());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"router", "member", "SCRAM-SHA-1", "SCRAM-SHA-256"})
    void changeStream(String to) {
        try (MongoClient client = connect(to)) {
            MongoCollection<Document> orders = orders(client);
            orders.drop();
            orders.insertOne(new Document("_id", 0));
            try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream = orders.watch().cursor()) {
                orders.insertOne(new Document("_id", 1).append("n", 1));
                orders.updateOne(eq("_id", 1), inc("n", 1));
                assertEquals(new Document("_id", 1).append("n", 1), stream.next().getFullDocument());
                assertEquals(2, stream.next().getUpdateDescription().getUpdatedFields().getInt32("n").getValue());
            }
        }
    }

    @Test
    void wrongPassword() {
        try (MongoClient client = logIn("wrong", "SCRAM-SHA-256")) {
            MongoSecurityException failed =
                    assertThrows(MongoSecurityException.class, () -> orders(client).countDocuments());
            assertEquals(18, ((MongoCommandException) failed.getCause()).getCode());
        }
    }
}
