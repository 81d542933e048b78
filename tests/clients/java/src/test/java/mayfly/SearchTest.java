package mayfly;

import static com.mongodb.client.model.Aggregates.addFields;
import static com.mongodb.client.model.Aggregates.limit;
import static com.mongodb.client.model.Aggregates.project;
import static com.mongodb.client.model.Aggregates.search;
import static com.mongodb.client.model.Aggregates.searchMeta;
import static com.mongodb.client.model.Aggregates.vectorSearch;
import static com.mongodb.client.model.Projections.computed;
import static com.mongodb.client.model.Projections.fields;
import static com.mongodb.client.model.Projections.include;
import static com.mongodb.client.model.Projections.metaSearchHighlights;
import static com.mongodb.client.model.Projections.metaSearchScore;
import static com.mongodb.client.model.Projections.metaVectorSearchScore;
import static com.mongodb.client.model.search.SearchPath.fieldPath;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoCommandException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Field;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.SearchIndexModel;
import com.mongodb.client.model.SearchIndexType;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.search.FuzzySearchOptions;
import com.mongodb.client.model.search.SearchCollector;
import com.mongodb.client.model.search.SearchCount;
import com.mongodb.client.model.search.SearchFacet;
import com.mongodb.client.model.search.SearchHighlight;
import com.mongodb.client.model.search.SearchOperator;
import com.mongodb.client.model.search.SearchOptions;
import com.mongodb.client.model.search.SearchScore;
import com.mongodb.client.model.search.VectorSearchOptions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import org.bson.BinaryVector;
import org.bson.Document;
import org.bson.conversions.Bson;
import org.bson.types.ObjectId;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Search indexes and the stages of search through the driver's own builders. */
class SearchTest {
    private static final long PATIENCE_NANOS = 60_000_000_000L;
    private static final Document TEXT = Document.parse(
            "{mappings: {dynamic: false, fields: {title: {type: 'string'}, kind: {type: 'stringFacet'}}}}");
    private static final Document VECTOR = Document.parse("{fields: ["
            + "{type: 'vector', path: 'v', numDimensions: 3, similarity: 'euclidean'}, {type: 'filter', path: 'kind'}]}");

    private MongoClient client;
    private MongoDatabase database;
    private MongoCollection<Document> notes;

    @BeforeEach
    void connect() throws InterruptedException {
        client = MongoClients.create(System.getenv("MONGODB_URI"));
        database = client.getDatabase("clients_java_search");
        database.drop();
        notes = database.getCollection("notes");
        notes.insertMany(List.of(
                note(1, "a red pen", "thing", 1, 0, 0),
                note(2, "blue ink", "stuff", 0, 1, 0),
                note(3, "a pen and another pen", "thing", 0, 0, 1)));
        var near = new SearchIndexModel("near", VECTOR, SearchIndexType.vectorSearch());
        assertEquals(List.of("words", "near"), notes.createSearchIndexes(List.of(new SearchIndexModel("words", TEXT), near)));
        ready(2);
    }

    @AfterEach
    void disconnect() {
        database.drop();
        client.close();
    }

    private static Document note(int id, String title, String kind, double... vector) {
        List<Double> numbers = Arrays.stream(vector).boxed().toList();
        return new Document("_id", id).append("title", title).append("kind", kind).append("v", numbers);
    }

    private List<Document> ready(int count) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (true) {
            List<Document> indexes = notes.listSearchIndexes().into(new ArrayList<>());
            assertEquals(count, indexes.size());
            if (indexes.stream().allMatch(i -> i.getBoolean("queryable") && "READY".equals(i.getString("status")))) {
                return indexes;
            }
            assertTrue(System.nanoTime() < deadline, "an index is not ready");
            Thread.sleep(10);
        }
    }

    private List<Document> all(Bson... stages) {
        return notes.aggregate(List.of(stages)).into(new ArrayList<>());
    }

    private List<Integer> ids(Bson... stages) {
        return all(stages).stream().map(document -> document.getInteger("_id")).toList();
    }

    private static Bson words(String query) {
        return search(SearchOperator.text(fieldPath("title"), query), SearchOptions.searchOptions().index("words"));
    }

    @Test
    void lifeOfAnIndex() throws InterruptedException {
        List<Document> indexes = ready(2);
        assertEquals(List.of("words", "near"), indexes.stream().map(index -> index.getString("name")).toList());
        assertEquals(List.of("search", "vectorSearch"), indexes.stream().map(index -> index.getString("type")).toList());
        assertEquals(List.of(TEXT, VECTOR), indexes.stream().map(index -> index.get("latestDefinition")).toList());
        assertEquals("near", notes.listSearchIndexes().name("near").first().getString("name"));

        assertEquals(List.of(), ids(words("pens")));
        notes.updateSearchIndex("words", new Document(TEXT).append("analyzer", "lucene.english"));
        assertEquals(1L, ready(2).get(0).get("latestDefinitionVersion", Document.class).get("version", Number.class).longValue());
        assertEquals(List.of(3, 1), ids(words("pens")));

        notes.dropSearchIndex("words");
        assertEquals(List.of(indexes.get(1)), ready(1));
        assertEquals(List.of(), ids(words("pens")));
        assertEquals(27, assertThrows(MongoCommandException.class, () -> notes.dropSearchIndex("words")).getCode());
        assertEquals("default", notes.createSearchIndex(Document.parse("{mappings: {dynamic: true}}")));
        assertEquals("words", notes.createSearchIndex("words", TEXT));
        ready(3);
        assertEquals(List.of(3, 1), ids(words("pen")));
    }

    @Test
    void texts() {
        List<Document> found = all(words("pen"), project(metaSearchScore("score")));
        assertEquals(List.of(3, 1), found.stream().map(document -> document.getInteger("_id")).toList());
        assertTrue(found.get(0).getDouble("score") > found.get(1).getDouble("score"), found.toString());

        SearchOptions options = SearchOptions.searchOptions().index("words")
                .highlight(SearchHighlight.paths(fieldPath("title"))).count(SearchCount.total());
        var operator = SearchOperator.compound()
                .must(List.of(SearchOperator.text(fieldPath("title"), "pen").score(SearchScore.constant(2))))
                .mustNot(List.of(SearchOperator.text(fieldPath("title"), "red")));
        Document marked = new Document("value", "pen").append("type", "hit");
        List<Document> chosen = all(search(operator, options),
                project(fields(include("title"), metaSearchScore("score"), metaSearchHighlights("marks"))));
        assertEquals(1, chosen.size());
        assertEquals(2.0, chosen.get(0).getDouble("score"));
        List<Document> texts = chosen.get(0).getList("marks", Document.class).get(0).getList("texts", Document.class);
        assertEquals(2, texts.stream().filter(marked::equals).count());
        assertEquals(List.of(new Document("_id", 3).append("all", 2L)),
                all(words("pen"), limit(1), project(computed("all", "$$SEARCH_META.count.lowerBound"))));
    }

    @Test
    void counts() {
        Document total = new Document("count", new Document("total", 2L));
        assertEquals(List.of(total), all(searchMeta(SearchOperator.text(fieldPath("title"), "pen"),
                SearchOptions.searchOptions().index("words").count(SearchCount.total()))));
        var kinds = SearchFacet.stringFacet("kinds", fieldPath("kind"));
        var collector = SearchCollector.facet(SearchOperator.exists(fieldPath("title")), List.of(kinds));
        List<Document> found = all(searchMeta(collector, SearchOptions.searchOptions().index("words")));
        List<Document> buckets = List.of(
                new Document("_id", "thing").append("count", 2L), new Document("_id", "stuff").append("count", 1L));
        Document facets = new Document("kinds", new Document("buckets", buckets));
        assertEquals(List.of(new Document("count", new Document("lowerBound", 3L)).append("facet", facets)), found);
    }

    @Test
    void vectors() {
        // The score by euclidean distance is 1 / (1 + its square).
        var approximate = VectorSearchOptions.approximateVectorSearchOptions(10);
        List<Document> found = all(
                vectorSearch(fieldPath("v"), List.of(0.0, 1.0, 0.5), "near", 3, approximate),
                project(metaVectorSearchScore("score")));
        List<Double> distances = List.of(0.25, 1.25, 2.25);
        List<Integer> order = List.of(2, 3, 1);
        assertEquals(3, found.size());
        for (int i = 0; i < 3; i++) {
            assertEquals(order.get(i), found.get(i).getInteger("_id"));
            assertEquals(1 / (1 + distances.get(i)), found.get(i).getDouble("score"), 1e-6);
        }
        var things = VectorSearchOptions.exactVectorSearchOptions().filter(Filters.eq("kind", "thing"));
        BinaryVector binary = BinaryVector.floatVector(new float[] {0, 1, 0.5f});
        assertEquals(List.of(3, 1), ids(vectorSearch(fieldPath("v"), binary, "near", 2, things)));
        notes.insertOne(note(4, "found at once", "thing", 0, 1, 0.5));
        assertEquals(List.of(4), ids(vectorSearch(fieldPath("v"), binary, "near", 1, things), addFields(new Field<>("x", 1))));
    }

    private List<Integer> sorted(SearchOperator operator) {
        SearchOptions options = SearchOptions.searchOptions().index("all");
        return ids(search(operator, options)).stream().sorted().toList();
    }

    @Test
    void operators() throws InterruptedException {
        ObjectId owner = new ObjectId();
        Instant start = Instant.parse("2026-01-01T00:00:00Z");
        for (int id = 1; id <= 3; id++) {
            notes.updateOne(Filters.eq(id), Updates.combine(
                    Updates.set("n", id * 1.5), Updates.set("at", Date.from(start.plus(Duration.ofDays(id)))),
                    Updates.set("flag", id == 2), Updates.set("owner", id == 3 ? null : owner)));
        }
        notes.createSearchIndex("all", Document.parse("{mappings: {dynamic: true, fields: {"
                + "title: [{type: 'string'}, {type: 'autocomplete'}], kind: {type: 'token'}, "
                + "code: {type: 'string', analyzer: 'lucene.keyword'}, "
                + "v: {type: 'vector', numDimensions: 3, similarity: 'euclidean'}}}}"));
        ready(3);
        notes.updateOne(Filters.eq(2), Updates.set("code", "A-12 x"));
        var n = fieldPath("n");
        var at = fieldPath("at");
        var title = fieldPath("title");
        assertEquals(List.of(2, 3), sorted(SearchOperator.numberRange(n).gte(3)));
        assertEquals(List.of(1), sorted(SearchOperator.numberRange(n).gtLt(1, 3)));
        assertEquals(List.of(2, 3), sorted(SearchOperator.dateRange(at).gt(start.plus(Duration.ofDays(1)))));
        assertEquals(List.of(1, 3), sorted(SearchOperator.in(n, 1.5, 4.5, 7)));
        assertEquals(List.of(2), sorted(SearchOperator.equals(fieldPath("flag"), true)));
        assertEquals(List.of(1, 2), sorted(SearchOperator.equals(fieldPath("owner"), owner)));
        assertEquals(List.of(3), sorted(SearchOperator.equalsNull(fieldPath("owner"))));
        assertEquals(List.of(1, 3), sorted(SearchOperator.equals(fieldPath("kind"), "thing")));
        assertEquals(List.of(2), sorted(SearchOperator.equals(at, start.plus(Duration.ofDays(2)))));
        assertEquals(List.of(1, 3), sorted(SearchOperator.autocomplete(title, "pe")));
        assertEquals(List.of(3), sorted(SearchOperator.phrase(title, "another pen")));
        assertEquals(List.of(3), sorted(SearchOperator.phrase(title, "a another").slop(2)));
        assertEquals(List.of(2), sorted(SearchOperator.wildcard(fieldPath("code"), "A-?2*")));
        assertEquals(List.of(2), sorted(SearchOperator.regex(fieldPath("code"), "A-[0-9]+ x")));
        assertEquals(List.of(2), sorted(SearchOperator.text(title, "blau").fuzzy(FuzzySearchOptions.fuzzySearchOptions().maxEdits(2))));
        assertEquals(List.of(3), sorted(SearchOperator.vectorSearchExact(fieldPath("v"), List.of(0.0, 0.0, 0.9), 1)));

        SearchOptions options = SearchOptions.searchOptions().index("all");
        assertEquals(List.of(2, 3, 1), ids(search(SearchOperator.near(3.5, 1, n), options)));
        assertEquals(List.of(3, 2, 1), ids(search(SearchOperator.near(start.plus(Duration.ofDays(9)), Duration.ofDays(1), at), options)));
        var either = SearchOperator.compound()
                .filter(List.of(SearchOperator.exists(title)))
                .should(List.of(SearchOperator.text(title, "red"), SearchOperator.equals(fieldPath("kind"), "thing")))
                .minimumShouldMatch(1);
        assertEquals(List.of(1, 3), ids(search(either, options)));
    }
}
