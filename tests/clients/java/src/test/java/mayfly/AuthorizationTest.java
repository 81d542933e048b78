package mayfly;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoSecurityException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.function.Consumer;
import org.bson.Document;
import org.junit.jupiter.api.Test;

/** Logging in by the Java driver, and what a server with --auth refuses; what is expected is listed in tests/clients/README.md. */
class AuthorizationTest {
    private static final String BASE = System.getenv("MONGODB_AUTH_URI");
    private static final String ROOT = "r@ot:/%";
    /** SASLprep makes one password of both. */
    private static final String PASSWORD = "p@ss:/%\u2168";
    private static final String SAME_PASSWORD = "p@ss:/%I\u00adX";

    @Test
    void authorization() {
        try (MongoClient anonymous = MongoClients.create(BASE)) {
            anonymous.getDatabase("admin").runCommand(newUser(ROOT, PASSWORD, "root"));
            assertEquals(13, assertThrows(MongoCommandException.class, () -> count(anonymous)).getCode());
        }
        as(ROOT, PASSWORD, "&authSource=admin", root -> {
            root.getDatabase("shop").runCommand(newUser("reader", PASSWORD, "read"));
            root.getDatabase("shop").getCollection("orders").insertOne(new Document("_id", 1));
        });
        for (String mechanism : List.of("SCRAM-SHA-1", "SCRAM-SHA-256")) {
            String by = "&authMechanism=" + mechanism;
            as(ROOT, PASSWORD, "&authSource=admin" + by, AuthorizationTest::sees);
            as("reader", PASSWORD, "&authSource=shop" + by, AuthorizationTest::sees);
            as("reader", "wrong", "&authSource=shop" + by, AuthorizationTest::isRefused);
            as("reader", PASSWORD, "&authSource=admin" + by, AuthorizationTest::isRefused);
            as("nobody", PASSWORD, "&authSource=shop" + by, AuthorizationTest::isRefused);
        }
        as("reader", SAME_PASSWORD, "&authSource=shop&authMechanism=SCRAM-SHA-256", AuthorizationTest::sees);
        as("reader", PASSWORD, "&authSource=shop", reader -> {
            var orders = reader.getDatabase("shop").getCollection("orders");
            var elsewhere = reader.getDatabase("other").getCollection("c");
            assertEquals(13, assertThrows(MongoException.class, () -> orders.insertOne(new Document())).getCode());
            assertEquals(13, assertThrows(MongoException.class, () -> elsewhere.find().first()).getCode());
        });
        as(ROOT, PASSWORD, "&authSource=admin", root -> {
            root.getDatabase("shop").runCommand(newUser("changing", "before", "read"));
            as("changing", "before", "&authSource=shop", old -> {
                sees(old);
                root.getDatabase("shop").runCommand(new Document("updateUser", "changing").append("pwd", "after"));
                sees(old);
                as("changing", "before", "&authSource=shop", AuthorizationTest::isRefused);
                as("changing", "after", "&authSource=shop", AuthorizationTest::sees);
            });
        });
    }

    /** Runs an action with a client that has logged in, or tries to. */
    private static void as(String name, String password, String further, Consumer<MongoClient> action) {
        String login = encoded(name) + ":" + encoded(password) + "@";
        try (MongoClient client = MongoClients.create(BASE.replaceFirst("//", "//" + login) + further)) {
            action.accept(client);
        }
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private static Document newUser(String name, String password, String role) {
        return new Document("createUser", name).append("pwd", password).append("roles", List.of(role));
    }

    private static long count(MongoClient client) {
        return client.getDatabase("shop").getCollection("orders").countDocuments();
    }

    private static void sees(MongoClient client) {
        assertEquals(1, count(client));
    }

    /** The driver wraps the server's error. */
    private static void isRefused(MongoClient client) {
        var failed = assertThrows(MongoSecurityException.class, () -> count(client));
        assertEquals(18, ((MongoCommandException) failed.getCause()).getCode());
    }
}
