package mayfly;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoCommandException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.bson.Document;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.springframework.ai.embedding.AbstractEmbeddingModel;
import org.springframework.ai.embedding.Embedding;
import org.springframework.ai.embedding.EmbeddingRequest;
import org.springframework.ai.embedding.EmbeddingResponse;
import org.springframework.ai.vectorstore.SearchRequest;
import org.springframework.ai.vectorstore.filter.FilterExpressionBuilder;
import org.springframework.ai.vectorstore.mongodb.atlas.MongoDBAtlasVectorStore;
import org.springframework.dao.DataIntegrityViolationException;
import org.springframework.data.mongodb.core.MongoTemplate;

/**
 * The vector store of Spring AI against a running server: the index that it makes, searches with thresholds and filter
 * expressions, deletion. Embeddings are a fixed function, so that no model and no network is needed.
 */
class VectorStoreTest {
    private static final List<String> WORDS =
            List.of("the", "a", "red", "blue", "green", "tall", "pen", "car", "tree", "house");
    private static final long PATIENCE_NANOS = 60_000_000_000L;

    private static MongoClient client;
    private MongoTemplate template;
    private MongoDBAtlasVectorStore store;

    /** One dimension for each word. */
    private static final class Words extends AbstractEmbeddingModel {
        static float[] vector(String text) {
            List<String> words = Arrays.asList(text.split(" "));
            float[] counts = new float[WORDS.size()];
            for (int i = 0; i < counts.length; i++) {
                String word = WORDS.get(i);
                counts[i] = words.stream().filter(word::equals).count();
            }
            return counts;
        }

        @Override
        public float[] embed(org.springframework.ai.document.Document document) {
            return vector(document.getText());
        }

        @Override
        public EmbeddingResponse call(EmbeddingRequest request) {
            List<String> texts = request.getInstructions();
            return new EmbeddingResponse(IntStream.range(0, texts.size())
                    .mapToObj(i -> new Embedding(vector(texts.get(i)), i))
                    .toList());
        }
    }

    /** The score of a text for another one by cosine, between 0 and 1. */
    private static double likeness(String one, String other) {
        float[] left = Words.vector(one);
        float[] right = Words.vector(other);
        double product = 0;
        double lengths = 1;
        for (float[] vector : List.of(left, right)) {
            lengths *= Math.sqrt(IntStream.range(0, vector.length).mapToDouble(i -> vector[i] * vector[i]).sum());
        }
        for (int i = 0; i < left.length; i++) {
            product += left[i] * right[i];
        }
        return (1 + product / lengths) / 2;
    }

    private static org.springframework.ai.document.Document document(String text, String kind, int size) {
        return new org.springframework.ai.document.Document(text, text, Map.of("kind", kind, "size", size));
    }

    private static List<String> texts(List<org.springframework.ai.document.Document> found) {
        return found.stream().map(org.springframework.ai.document.Document::getText).toList();
    }

    @BeforeAll
    static void connect() {
        client = MongoClients.create(System.getenv("MONGODB_URI"));
    }

    @AfterAll
    static void disconnect() {
        client.close();
    }

    @BeforeEach
    void makeStore() throws Exception {
        template = new MongoTemplate(client, "clients_spring_ai");
        template.getDb().drop();
        store = made("kind", "size");
        store.add(List.of(
                document("the red pen", "thing", 1),
                document("a blue car", "thing", 4),
                document("the green tree", "place", 5),
                document("a red car", "thing", 3),
                document("the tall green house", "place", 9)));
    }

    /** A store that has made its index, as it does when an application starts. */
    private MongoDBAtlasVectorStore made(String... filters) throws Exception {
        MongoDBAtlasVectorStore store = MongoDBAtlasVectorStore.builder(template, new Words())
                .collectionName("documents")
                .vectorIndexName("near")
                .metadataFieldsToFilter(List.of(filters))
                .initializeSchema(true)
                .build();
        store.afterPropertiesSet();
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (!index().getBoolean("queryable")) {
            assertTrue(System.nanoTime() < deadline, "the index is not ready");
            Thread.sleep(10);
        }
        return store;
    }

    private Document index() {
        List<Document> indexes = template.getCollection("documents").listSearchIndexes().into(new ArrayList<>());
        assertEquals(1, indexes.size());
        return indexes.get(0);
    }

    private List<org.springframework.ai.document.Document> search(SearchRequest.Builder request) {
        return store.similaritySearch(request.build());
    }

    private static SearchRequest.Builder like(String text) {
        return SearchRequest.builder().query(text).topK(5);
    }

    @Test
    void theIndexIsMadeOnce() throws Exception {
        Document vector = new Document("type", "vector").append("path", "embedding").append("numDimensions", 10);
        Document expected = new Document("fields", List.of(
                vector.append("similarity", "cosine"),
                new Document("type", "filter").append("path", "metadata.kind"),
                new Document("type", "filter").append("path", "metadata.size")));
        Document made = index();
        assertEquals("near", made.getString("name"));
        assertEquals("vectorSearch", made.getString("type"));
        assertEquals(expected, made.get("latestDefinition"));
        made("kind", "size");
        assertEquals(made, index());
        var refused = assertThrows(DataIntegrityViolationException.class, () -> made("size"));
        assertEquals(68, ((MongoCommandException) refused.getCause()).getErrorCode());
        assertEquals(made, index());
    }

    @Test
    void theNearestTextsAndTheirScores() {
        var found = search(like("red pen").topK(2));
        assertEquals(List.of("the red pen", "a red car"), texts(found));
        for (var document : found) {
            assertEquals(likeness("red pen", document.getText()), document.getScore(), 1e-5);
            assertEquals(1 - document.getScore(), (Double) document.getMetadata().get("distance"), 1e-5);
        }
        assertEquals("thing", found.get(0).getMetadata().get("kind"));
        assertEquals(1, found.get(0).getMetadata().get("size"));
        assertEquals(List.of("the red pen"), texts(search(like("red pen").similarityThreshold(0.8))));
        assertEquals(List.of(), texts(search(like("red pen").similarityThreshold(0.95))));
    }

    @ParameterizedTest
    @CsvSource(delimiter = ':', quoteCharacter = '"', value = {
        "kind == 'place' : the green tree, the tall green house",
        "kind != 'place' : a blue car, a red car, the red pen",
        "size > 4 : the green tree, the tall green house",
        "size >= 9 : the tall green house",
        "size < 3 : the red pen",
        "size <= 3 : a red car, the red pen",
        "size in [3, 9] : a red car, the tall green house",
        "size nin [1, 3, 9] : a blue car, the green tree",
        "kind == 'thing' && size > 1 : a blue car, a red car",
        "kind == 'place' || size == 1 : the green tree, the red pen, the tall green house",
        "(kind == 'place' || size < 4) && size != 5 : a red car, the red pen, the tall green house",
    })
    void filterExpressions(String filter, String expected) {
        List<String> remaining = new ArrayList<>(texts(search(like("the red car"))));
        List<String> found = texts(search(like("the red car").filterExpression(filter)));
        assertEquals(expected, String.join(", ", found.stream().sorted().toList()));
        store.delete(filter);
        remaining.removeAll(found);
        assertEquals(remaining, texts(search(like("the red car"))));
    }

    @Test
    void whatWasAddedReplacedAndDeletedIsFoundAtOnce() {
        store.add(List.of(document("a tall tree", "place", 7)));
        assertEquals(List.of("a tall tree"), texts(search(like("tall tree").topK(1))));
        // The same document with another kind.
        store.add(List.of(document("a tall tree", "thing", 7)));
        var builder = new FilterExpressionBuilder();
        assertEquals(List.of(), texts(search(like("tall").filterExpression(
                builder.and(builder.eq("kind", "place"), builder.eq("size", 7)).build()))));
        store.delete(List.of("a tall tree", "the tall green house"));
        assertEquals(4, template.getCollection("documents").countDocuments());
        assertEquals(List.of("the green tree"), texts(search(like("tall tree").topK(1))));
    }
}
