package mayfly;

import static com.mongodb.client.model.Filters.and;
import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.gte;
import static com.mongodb.client.model.Filters.lt;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.AutoEncryptionSettings;
import com.mongodb.ClientEncryptionSettings;
import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoWriteException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.Projections;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.vault.EncryptOptions;
import com.mongodb.client.model.vault.RangeOptions;
import com.mongodb.client.vault.ClientEncryption;
import com.mongodb.client.vault.ClientEncryptions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.Document;
import org.bson.conversions.Bson;
import org.junit.jupiter.api.Test;

/** Values that the driver encrypts and the server finds; what is expected is listed in ../README.md. */
class QueryableEncryptionTest {
  private static final String DATABASE = "clients_java_encryption";
  private static final Map<String, Map<String, Object>> PROVIDERS = Map.of("local", Map.of("key", new byte[96]));

  private static List<Integer> ids(MongoCollection<Document> people, Bson filter) {
    List<Integer> found = new ArrayList<>();
    people.find(filter).projection(Projections.include("_id")).sort(Sorts.ascending("_id"))
        .forEach(person -> found.add(person.getInteger("_id")));
    return found;
  }

  @Test
  void valuesAreFoundByEqualityAndRange() {
    String uri = System.getenv("MONGODB_URI");
    String vault = DATABASE + ".keys";
    MongoClientSettings plainSettings =
        MongoClientSettings.builder().applyConnectionString(new ConnectionString(uri)).build();
    AutoEncryptionSettings encryption = AutoEncryptionSettings.builder()
        .keyVaultNamespace(vault).kmsProviders(PROVIDERS).bypassQueryAnalysis(true).build();
    MongoClientSettings settings = MongoClientSettings.builder(plainSettings).autoEncryptionSettings(encryption).build();
    ClientEncryptionSettings toolSettings = ClientEncryptionSettings.builder()
        .keyVaultMongoClientSettings(plainSettings).keyVaultNamespace(vault).kmsProviders(PROVIDERS).build();
    try (MongoClient plain = MongoClients.create(plainSettings);
        MongoClient client = MongoClients.create(settings);
        ClientEncryption tools = ClientEncryptions.create(toolSettings)) {
      plain.getDatabase(DATABASE).drop();
      BsonBinary nameKey = tools.createDataKey("local");
      BsonBinary ageKey = tools.createDataKey("local");
      Document byName = new Document("queryType", "equality").append("contention", 4L);
      Document byAge = new Document("queryType", "range").append("contention", 0L).append("min", 0).append("max", 200)
          .append("sparsity", 1L).append("trimFactor", 4);
      Document fields = new Document("fields", List.of(
          new Document("path", "name").append("bsonType", "string").append("keyId", nameKey).append("queries", byName),
          new Document("path", "age").append("bsonType", "int").append("keyId", ageKey).append("queries", byAge)));
      client.getDatabase(DATABASE).createCollection("people", new CreateCollectionOptions().encryptedFields(fields));
      MongoCollection<Document> people = client.getDatabase(DATABASE).getCollection("people");

      EncryptOptions name = new EncryptOptions("Indexed").keyId(nameKey).contentionFactor(4L);
      EncryptOptions findName = new EncryptOptions("Indexed").keyId(nameKey).contentionFactor(4L).queryType("equality");
      RangeOptions range = new RangeOptions().min(new BsonInt32(0)).max(new BsonInt32(200)).sparsity(1L).trimFactor(4);
      EncryptOptions age = new EncryptOptions("Range").keyId(ageKey).contentionFactor(0L).rangeOptions(range);
      EncryptOptions findAge =
          new EncryptOptions("Range").keyId(ageKey).contentionFactor(0L).rangeOptions(range).queryType("range");
      for (int at = 0; at < 8; at++) {
        BsonValue who = tools.encrypt(new BsonString(at % 2 == 0 ? "Ada" : "Bob"), name);
        BsonValue years = tools.encrypt(new BsonInt32(10 * at), age);
        people.insertOne(new Document("_id", at).append("name", who).append("age", years));
      }

      Bson ada = eq("name", tools.encrypt(new BsonString("Ada"), findName));
      assertEquals("Ada", people.find(ada).first().getString("name"));
      assertEquals(List.of(0, 2, 4, 6), ids(people, ada));
      BsonDocument between = tools.encryptExpression(and(gte("age", 20), lt("age", 50)), findAge);
      assertEquals(List.of(2, 3, 4), ids(people, between));
      people.updateOne(eq("_id", 2), Updates.set("name", tools.encrypt(new BsonString("Bob"), name)));
      assertEquals(List.of(0, 4, 6), ids(people, ada));
      people.deleteOne(ada);
      assertEquals(List.of(4, 6), ids(people, ada));

      Document stats = client.getDatabase(DATABASE)
          .runCommand(new Document("compactStructuredEncryptionData", "people")).get("stats", Document.class);
      assertEquals(stats.get("ecoc", Document.class).get("read"), stats.get("ecoc", Document.class).get("deleted"));
      assertEquals(0, plain.getDatabase(DATABASE).getCollection("enxcol_.people.ecoc").countDocuments());
      assertEquals(List.of(4, 6), ids(people, ada));
      MongoCollection<Document> stored = plain.getDatabase(DATABASE).getCollection("people");
      MongoWriteException refused =
          assertThrows(MongoWriteException.class, () -> stored.insertOne(new Document("name", "Ada")));
      assertEquals(121, refused.getCode());
      plain.getDatabase(DATABASE).drop();
    }
  }
}
