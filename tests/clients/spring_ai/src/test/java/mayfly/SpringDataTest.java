package mayfly;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.newAggregation;

import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.util.ArrayList;
import java.util.List;
import org.bson.Document;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.data.mongodb.core.MongoTemplate;
import org.springframework.data.mongodb.core.aggregation.VectorSearchOperation;
import org.springframework.data.mongodb.core.aggregation.VectorSearchOperation.SearchType;
import org.springframework.data.mongodb.core.index.SearchIndexStatus;
import org.springframework.data.mongodb.core.index.VectorIndex;
import org.springframework.data.mongodb.core.query.Criteria;

/**
 * The vector indexes and vector searches of Spring Data, which the store of Spring AI does not use. Without `updateIndex`:
 * it sends a definition inside of a definition.
 */
class SpringDataTest {
    private static final long PATIENCE_NANOS = 60_000_000_000L;

    private MongoClient client;
    private MongoTemplate template;

    @BeforeEach
    void connect() {
        client = MongoClients.create(System.getenv("MONGODB_URI"));
        template = new MongoTemplate(client, "clients_spring_data");
        template.getDb().drop();
        template.insert(List.of(
                Document.parse("{_id: 1, kind: 'thing', v: [1, 0, 0]}"),
                Document.parse("{_id: 2, kind: 'stuff', v: [0, 1, 0]}"),
                Document.parse("{_id: 3, kind: 'thing', v: [0, 0, 1]}")), "notes");
    }

    @AfterEach
    void disconnect() {
        client.close();
    }

    private static VectorIndex index() {
        return new VectorIndex("near").addVector("v", vector -> vector.dimensions(3).euclidean());
    }

    private void untilReady() throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (template.searchIndexOps("notes").status("near") != SearchIndexStatus.READY) {
            assertTrue(System.nanoTime() < deadline, "the index is not ready");
            Thread.sleep(10);
        }
    }

    private List<Document> found(VectorSearchOperation search) {
        return template.aggregate(newAggregation(search), "notes", Document.class).getMappedResults();
    }

    private static List<Integer> ids(List<Document> found) {
        return found.stream().map(document -> document.getInteger("_id")).toList();
    }

    @Test
    void anIndexIsMadeAndDropped() throws InterruptedException {
        var indexes = template.searchIndexOps("notes");
        assertFalse(indexes.exists("near"));
        assertEquals(SearchIndexStatus.DOES_NOT_EXIST, indexes.status("near"));
        assertEquals("near", indexes.createIndex(index().addFilter("kind")));
        untilReady();
        assertTrue(indexes.exists("near"));
        assertFalse(indexes.exists("other"));
        List<Document> listed = template.getCollection("notes").listSearchIndexes().into(new ArrayList<>());
        List<Document> fields = listed.get(0).get("latestDefinition", Document.class).getList("fields", Document.class);
        assertEquals(List.of("v", "kind"), fields.stream().map(field -> field.getString("path")).toList());
        indexes.createIndex(new VectorIndex("other").addVector("w", vector -> vector.dimensions(2).cosine()));
        indexes.dropIndex("near");
        assertFalse(indexes.exists("near"));
        indexes.dropAllIndexes();
        assertFalse(indexes.exists("other"));
    }

    @Test
    void vectors() throws InterruptedException {
        template.searchIndexOps("notes").createIndex(index().addFilter("kind"));
        untilReady();
        var search = VectorSearchOperation.search("near").path("v").vector(0, 1, 0.5).limit(3);
        List<Document> scored = found(search.numCandidates(10).withSearchScore("score"));
        assertEquals(List.of(2, 3, 1), ids(scored));
        // The score by euclidean distance is 1 / (1 + its square).
        assertEquals(1 / 1.25, scored.get(0).getDouble("score"), 1e-6);
        assertEquals(1 / 2.25, scored.get(1).getDouble("score"), 1e-6);
        assertEquals(1 / 3.25, scored.get(2).getDouble("score"), 1e-6);
        var exact = search.searchType(SearchType.ENN);
        assertEquals(List.of(3, 1), ids(found(exact.filter(Criteria.where("kind").is("thing")))));
        assertEquals(List.of(2), ids(found(exact.withSearchScore("score").withFilterBySore(score -> score.gt(0.5)))));
    }
}
