package mayfly;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoSecurityException;
import com.mongodb.MongoTimeoutException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.List;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.bson.Document;
import org.junit.jupiter.api.Test;

/** Encrypted connections and logging in by a certificate; what is expected is listed in tests/clients/README.md. */
class EncryptionTest {
    private static final Path FILES = Path.of(System.getenv("MONGODB_TLS_FILES"));
    private static final String NAME = System.getenv("MONGODB_TLS_CLIENT_NAME");
    /** The driver takes files from a context only. */
    private static final String ADDRESS = System.getenv("MONGODB_TLS_URI").replaceFirst("\\?.*", "?");
    private static final String ENCRYPTED = ADDRESS + "tls=true&";
    private static final String BY_CERTIFICATE = ENCRYPTED + "authMechanism=MONGODB-X509";
    private static final char[] PASSWORD = "client".toCharArray();

    @Test
    void encryption() throws Exception {
        SSLContext trusting = context("authority.crt", false);
        try (MongoClient anonymous = connect(ENCRYPTED, trusting)) {
            var first = new Document("createUser", "root").append("pwd", "secret").append("roles", List.of("root"));
            anonymous.getDatabase("admin").runCommand(first);
            assertEquals(13, assertThrows(MongoException.class, () -> find(anonymous, "shop")).getCode());
        }
        String byPassword = ENCRYPTED.replaceFirst("//", "//root:secret@") + "authMechanism=SCRAM-SHA-256";
        try (MongoClient root = connect(byPassword, trusting)) {
            root.getDatabase("shop").getCollection("orders").insertOne(new Document("_id", 1));
            var role = new Document("role", "readWrite").append("db", "shop");
            var user = new Document("createUser", NAME).append("roles", List.of(role));
            root.getDatabase("$external").runCommand(user);
        }
        try (MongoClient ann = connect(BY_CERTIFICATE, context("authority.crt", true))) {
            assertEquals(1, find(ann, "shop").getInteger("_id"));
            assertEquals(13, assertThrows(MongoException.class, () -> find(ann, "other")).getCode());
        }
        try (MongoClient anonymous = connect(BY_CERTIFICATE, trusting)) {
            var failed = assertThrows(MongoSecurityException.class, () -> find(anonymous, "shop"));
            assertEquals(18, ((MongoCommandException) failed.getCause()).getCode());
        }
        fails(ADDRESS, trusting, "MongoSocket");
        fails(ENCRYPTED, context("stranger.crt", false), "SSLHandshakeException");
    }

    private static void fails(String uri, SSLContext context, String why) {
        try (MongoClient client = connect(uri + "&serverSelectionTimeoutMS=1000", context)) {
            var failed = assertThrows(MongoTimeoutException.class, () -> find(client, "shop"));
            assertTrue(failed.getMessage().contains(why), failed.getMessage());
        }
    }

    private static Document find(MongoClient client, String database) {
        return client.getDatabase(database).getCollection("orders").find().first();
    }

    private static MongoClient connect(String uri, SSLContext context) {
        var settings = MongoClientSettings.builder().applyConnectionString(new ConnectionString(uri));
        return MongoClients.create(settings.applyToSslSettings(ssl -> ssl.context(context)).build());
    }

    /** A context that trusts one authority, with the client's certificate or without one. */
    private static SSLContext context(String authority, boolean certified) throws Exception {
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        try (var file = Files.newInputStream(FILES.resolve(authority))) {
            trusted.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyStore own = KeyStore.getInstance("PKCS12");
        own.load(null, null);
        if (certified) {
            try (var file = Files.newInputStream(FILES.resolve("client.p12"))) {
                own.load(file, PASSWORD);
            }
        }
        var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, PASSWORD);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }
}
