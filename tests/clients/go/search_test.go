package clients

import (
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// searchable is a collection of three documents, and its search indexes, which are ready.
func searchable(t *testing.T) (*mongo.Collection, bson.D) {
	t.Helper()
	coll := fresh(t)
	note := func(id int, title, kind string, vector any) bson.D {
		return bson.D{{"_id", id}, {"title", title}, {"kind", kind}, {"v", vector}}
	}
	binary := bson.NewVector([]float32{0, 1, 0}).Binary()
	_, err := coll.InsertMany(t.Context(), []any{
		note(1, "a red pen", "thing", bson.A{1, 0, 0}),
		note(2, "blue ink", "stuff", binary),
		note(3, "a pen and another pen", "thing", bson.A{0.0, 0.0, 1.0}),
	})
	ok(t, err)
	fields := bson.D{{"title", bson.D{{"type", "string"}}}, {"kind", bson.D{{"type", "stringFacet"}}}}
	text := bson.D{{"mappings", bson.D{{"dynamic", false}, {"fields", fields}}}}
	vector := bson.D{{"fields", bson.A{
		bson.D{{"type", "vector"}, {"path", "v"}, {"numDimensions", 3}, {"similarity", "euclidean"}},
		bson.D{{"type", "filter"}, {"path", "kind"}},
	}}}
	names, err := coll.SearchIndexes().CreateMany(t.Context(), []mongo.SearchIndexModel{
		{Definition: text, Options: options.SearchIndexes().SetName("words")},
		{Definition: vector, Options: options.SearchIndexes().SetName("near").SetType("vectorSearch")},
	})
	ok(t, err)
	equal(t, names, []string{"words", "near"})
	searchReady(t, coll, "words", "near")
	return coll, text
}

// searchReady waits until the indexes of these names, and no others, are ready.
func searchReady(t *testing.T, coll *mongo.Collection, names ...string) []bson.M {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		cursor, err := coll.SearchIndexes().List(t.Context(), nil)
		indexes := all(t, cursor, err)
		ready, found := 0, []string(nil)
		for _, index := range indexes {
			found = append(found, index["name"].(string))
			if index["queryable"] == true && index["status"] == "READY" {
				ready++
			}
		}
		equal(t, found, names)
		if ready == len(names) {
			return indexes
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %v", indexes)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func words(query string) bson.D {
	return bson.D{{"$search", bson.D{{"index", "words"}, {"text", bson.D{{"path", "title"}, {"query", query}}}}}}
}

func idsOf(t *testing.T, coll *mongo.Collection, stages ...bson.D) []int32 {
	t.Helper()
	cursor, err := coll.Aggregate(t.Context(), stages)
	var ids []int32
	for _, document := range all(t, cursor, err) {
		ids = append(ids, document["_id"].(int32))
	}
	return ids
}

func TestSearchIndexes(t *testing.T) {
	coll, text := searchable(t)
	view := coll.SearchIndexes()
	cursor, err := view.List(t.Context(), options.SearchIndexes().SetName("near"))
	shown := all(t, cursor, err)
	equal(t, len(shown), 1)
	equal(t, shown[0]["type"], any("vectorSearch"))

	equal(t, idsOf(t, coll, words("pens")), nil)
	ok(t, view.UpdateOne(t.Context(), "words", append(text, bson.E{"analyzer", "lucene.english"})))
	updated := searchReady(t, coll, "words", "near")[0]
	definition := updated["latestDefinition"].(bson.D)
	equal(t, definition[len(definition)-1], bson.E{"analyzer", "lucene.english"})
	equal(t, idsOf(t, coll, words("pens")), []int32{3, 1})

	ok(t, view.DropOne(t.Context(), "words"))
	searchReady(t, coll, "near")
	equal(t, idsOf(t, coll, words("pen")), nil)
	for _, err := range []error{view.DropOne(t.Context(), "words"), view.UpdateOne(t.Context(), "words", text)} {
		// The driver gives both errors without their type.
		if err == nil || !strings.HasPrefix(err.Error(), "(IndexNotFound)") {
			t.Fatalf("want IndexNotFound, got %v", err)
		}
	}
	name, err := view.CreateOne(t.Context(), mongo.SearchIndexModel{Definition: text})
	ok(t, err)
	equal(t, name, "default")
	searchReady(t, coll, "near", "default")
}

func TestSearchStages(t *testing.T) {
	coll, _ := searchable(t)
	equal(t, idsOf(t, coll, words("pen")), []int32{3, 1})
	_, err := coll.InsertOne(t.Context(), bson.D{{"_id", 4}, {"title", "a pencil"}, {"kind", "stuff"}, {"v", bson.A{1, 1, 1}}})
	ok(t, err)
	equal(t, idsOf(t, coll, words("pencil")), []int32{4})

	facet := bson.D{
		{"operator", bson.D{{"exists", bson.D{{"path", "title"}}}}},
		{"facets", bson.D{{"kinds", bson.D{{"type", "string"}, {"path", "kind"}, {"numBuckets", 1}}}}},
	}
	_, err = coll.DeleteOne(t.Context(), bson.D{{"_id", 4}})
	ok(t, err)
	meta := bson.D{{"$searchMeta", bson.D{{"index", "words"}, {"facet", facet}, {"count", bson.D{{"type", "total"}}}}}}
	cursor, err := coll.Aggregate(t.Context(), []bson.D{meta})
	buckets := bson.D{{"kinds", bson.D{{"buckets", bson.A{bson.D{{"_id", "thing"}, {"count", int64(2)}}}}}}}
	equal(t, all(t, cursor, err), []bson.M{{"count": bson.D{{"total", int64(3)}}, "facet": buckets}})

	near := func(more ...bson.E) bson.D {
		stage := bson.D{{"index", "near"}, {"path", "v"}, {"queryVector", bson.NewVector([]float32{0, 1, 0.5}).Binary()}}
		return bson.D{{"$vectorSearch", append(stage, more...)}}
	}
	score := bson.D{{"$project", bson.D{{"score", bson.D{{"$meta", "vectorSearchScore"}}}}}}
	cursor, err = coll.Aggregate(t.Context(), []bson.D{near(bson.E{"limit", 3}, bson.E{"numCandidates", 10}), score})
	found := all(t, cursor, err)
	equal(t, len(found), 3)
	// The score by euclidean distance is 1 / (1 + its square).
	for i, want := range []struct {
		id     int32
		square float64
	}{{2, 0.25}, {3, 1.25}, {1, 2.25}} {
		equal(t, found[i]["_id"], any(want.id))
		if difference := found[i]["score"].(float64) - 1/(1+want.square); math.Abs(difference) > 1e-6 {
			t.Fatalf("scores %v", found)
		}
	}
	things := bson.E{"filter", bson.D{{"kind", "thing"}}}
	equal(t, idsOf(t, coll, near(bson.E{"limit", 1}, bson.E{"exact", true}, things)), []int32{3})
}
