// Package clients runs the Go driver against a running server; what is expected is listed in
// ../README.md.
package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

const database = "clients_go"

var client *mongo.Client

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		client, err = mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
		if err != nil {
			fmt.Fprintln(os.Stderr, "connect:", err)
			return 1
		}
		defer client.Disconnect(context.Background())
		return m.Run()
	}())
}

// fresh gives an empty collection named after the test.
func fresh(t *testing.T) *mongo.Collection {
	t.Helper()
	coll := client.Database(database).Collection(strings.ReplaceAll(t.Name(), "/", "_"))
	ok(t, coll.Drop(t.Context()))
	return coll
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		ok(t, err)
		return value
	}
}

func equal[T any](t *testing.T, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func all(t *testing.T, cursor *mongo.Cursor, err error) []bson.M {
	t.Helper()
	ok(t, err)
	var found []bson.M
	ok(t, cursor.All(t.Context(), &found))
	return found
}

func numbers(count int, more func(i int) bson.D) []any {
	documents := make([]any, count)
	for i := range documents {
		documents[i] = append(bson.D{{Key: "_id", Value: i}}, more(i)...)
	}
	return documents
}

func none(int) bson.D { return nil }

func fails(t *testing.T, err error, code int, name, text string) {
	t.Helper()
	var server mongo.ServerError
	if !errors.As(err, &server) {
		t.Fatalf("no server error: %v", err)
	}
	if !server.HasErrorCode(code) || !strings.Contains(err.Error(), text) {
		t.Fatalf("want %d %q, got %v", code, text, err)
	}
	var command mongo.CommandError
	if errors.As(err, &command) && command.Name != name {
		t.Fatalf("want codeName %s, got %s", name, command.Name)
	}
}

func TestPingAndBuildInfo(t *testing.T) {
	ok(t, client.Ping(t.Context(), nil))
	var info struct{ Version string }
	ok(t, client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info))
	if !strings.HasPrefix(info.Version, "8.") {
		t.Fatalf("version %s", info.Version)
	}
}

func TestCompression(t *testing.T) {
	for _, compressor := range []string{"zlib", "snappy", "zstd"} {
		t.Run(compressor, func(t *testing.T) {
			coll := fresh(t)
			uri := options.Client().ApplyURI(os.Getenv("MONGODB_URI"))
			other := must(mongo.Connect(uri.SetCompressors([]string{compressor})))(t)
			defer other.Disconnect(context.Background())
			same := other.Database(database).Collection(coll.Name())
			text := strings.Repeat("mayfly ", 5000)
			documents := numbers(20, func(int) bson.D { return bson.D{{Key: "text", Value: text}} })
			must(same.InsertMany(t.Context(), documents))(t)
			cursor, err := same.Find(t.Context(), bson.D{})
			found := all(t, cursor, err)
			equal(t, len(found), 20)
			for _, document := range found {
				equal(t, document["text"], any(text))
			}
		})
	}
}

func TestInsert(t *testing.T) {
	coll := fresh(t)
	one := must(coll.InsertOne(t.Context(), bson.M{"name": "ann"}))(t)
	var found bson.M
	ok(t, coll.FindOne(t.Context(), bson.M{"_id": one.InsertedID}).Decode(&found))
	equal(t, found, bson.M{"_id": one.InsertedID, "name": "ann"})
	many := must(coll.InsertMany(t.Context(), numbers(10, none)))(t)
	equal(t, len(many.InsertedIDs), 10)
	equal(t, must(coll.CountDocuments(t.Context(), bson.D{}))(t), 11)
}

func TestUnorderedBulkReportsTheDuplicate(t *testing.T) {
	coll := fresh(t)
	documents := []any{bson.M{"_id": 1}, bson.M{"_id": 1}, bson.M{"_id": 2}}
	_, err := coll.InsertMany(t.Context(), documents, options.InsertMany().SetOrdered(false))
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) {
		t.Fatalf("no bulk error: %v", err)
	}
	equal(t, len(bulk.WriteErrors), 1)
	equal(t, bulk.WriteErrors[0].Index, 1)
	equal(t, bulk.WriteErrors[0].Code, 11000)
	var details struct {
		KeyPattern bson.M `bson:"keyPattern"`
		KeyValue   bson.M `bson:"keyValue"`
	}
	ok(t, bson.Unmarshal(bulk.WriteErrors[0].Raw, &details))
	equal(t, details.KeyPattern, bson.M{"_id": int32(1)})
	equal(t, details.KeyValue, bson.M{"_id": int32(1)})
	equal(t, must(coll.CountDocuments(t.Context(), bson.D{}))(t), 2)
}

func TestFind(t *testing.T) {
	coll := fresh(t)
	must(coll.InsertMany(t.Context(), numbers(20, func(i int) bson.D {
		return bson.D{{Key: "even", Value: i%2 == 0}, {Key: "n", Value: i * 10}}
	})))(t)
	shape := options.Find().SetProjection(bson.M{"_id": 0, "n": 1}).SetSort(bson.M{"n": -1}).SetSkip(1).SetLimit(3)
	cursor, err := coll.Find(t.Context(), bson.M{"even": true, "n": bson.M{"$gte": 40}}, shape)
	equal(t, all(t, cursor, err), []bson.M{{"n": int32(160)}, {"n": int32(140)}, {"n": int32(120)}})
	if err := coll.FindOne(t.Context(), bson.M{"_id": 99}).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Fatal(err)
	}
}

func TestUpdate(t *testing.T) {
	coll := fresh(t)
	must(coll.InsertMany(t.Context(), numbers(5, func(i int) bson.D {
		return bson.D{{Key: "n", Value: i}, {Key: "old", Value: 1}, {Key: "tags", Value: bson.A{"a"}}}
	})))(t)
	result := must(coll.UpdateOne(t.Context(), bson.M{"_id": 3}, bson.M{
		"$set": bson.M{"name": "three"}, "$inc": bson.M{"n": 10}, "$unset": bson.M{"old": ""}, "$push": bson.M{"tags": "b"},
	}))(t)
	equal(t, []int64{result.MatchedCount, result.ModifiedCount}, []int64{1, 1})
	var found bson.M
	ok(t, coll.FindOne(t.Context(), bson.M{"_id": 3}).Decode(&found))
	equal(t, found, bson.M{"_id": int32(3), "n": int32(13), "name": "three", "tags": bson.A{"a", "b"}})
	result = must(coll.UpdateMany(t.Context(), bson.M{"n": bson.M{"$lt": 3}}, bson.M{"$inc": bson.M{"n": 1}}))(t)
	equal(t, []int64{result.MatchedCount, result.ModifiedCount}, []int64{3, 3})
	result = must(coll.UpdateMany(t.Context(), bson.M{}, bson.M{"$set": bson.M{"n": 2}}))(t)
	equal(t, []int64{result.MatchedCount, result.ModifiedCount}, []int64{5, 4})
}

func TestReplaceAndUpsert(t *testing.T) {
	coll := fresh(t)
	must(coll.InsertOne(t.Context(), bson.M{"_id": 1, "a": 1}))(t)
	replaced := must(coll.ReplaceOne(t.Context(), bson.M{"_id": 1}, bson.M{"c": 3}))(t)
	equal(t, replaced.ModifiedCount, 1)
	upsert := options.UpdateOne().SetUpsert(true)
	set := bson.M{"$set": bson.M{"v": 1}}
	result := must(coll.UpdateOne(t.Context(), bson.M{"key": "k"}, set, upsert))(t)
	equal(t, result.UpsertedCount, 1)
	var found bson.M
	ok(t, coll.FindOne(t.Context(), bson.M{"_id": result.UpsertedID}).Decode(&found))
	equal(t, found, bson.M{"_id": result.UpsertedID, "key": "k", "v": int32(1)})
	result = must(coll.UpdateOne(t.Context(), bson.M{"key": "k"}, set, upsert))(t)
	equal(t, []any{result.UpsertedID, result.MatchedCount, result.ModifiedCount}, []any{nil, int64(1), int64(0)})
}

func TestDelete(t *testing.T) {
	coll := fresh(t)
	must(coll.InsertMany(t.Context(), numbers(10, func(i int) bson.D {
		return bson.D{{Key: "even", Value: i%2 == 0}}
	})))(t)
	equal(t, must(coll.DeleteOne(t.Context(), bson.M{"even": true}))(t).DeletedCount, 1)
	equal(t, must(coll.DeleteMany(t.Context(), bson.M{"even": true}))(t).DeletedCount, 4)
	equal(t, must(coll.CountDocuments(t.Context(), bson.M{}))(t), 5)
}

func TestSmallBatches(t *testing.T) {
	coll := fresh(t)
	must(coll.InsertMany(t.Context(), numbers(1000, none)))(t)
	ordered := options.Find().SetBatchSize(7).SetSort(bson.M{"_id": 1})
	cursor := must(coll.Find(t.Context(), bson.D{}, ordered))(t)
	defer cursor.Close(context.Background())
	seen := 0
	for ; cursor.Next(t.Context()); seen++ {
		equal(t, int(cursor.Current.Lookup("_id").Int32()), seen)
	}
	ok(t, cursor.Err())
	equal(t, seen, 1000)
	abandoned := must(coll.Find(t.Context(), bson.D{}, options.Find().SetBatchSize(7)))(t)
	if !abandoned.Next(t.Context()) || abandoned.ID() == 0 {
		t.Fatal("the cursor should be open")
	}
	ok(t, abandoned.Close(t.Context()))
}

func TestDefaultBatches(t *testing.T) {
	coll := fresh(t)
	must(coll.InsertMany(t.Context(), numbers(20000, func(int) bson.D {
		return bson.D{{Key: "text", Value: strings.Repeat("x", 20)}}
	})))(t)
	cursor, err := coll.Find(t.Context(), bson.D{})
	equal(t, len(all(t, cursor, err)), 20000)
}

func TestCounts(t *testing.T) {
	coll := fresh(t)
	must(coll.InsertMany(t.Context(), numbers(30, func(i int) bson.D {
		return bson.D{{Key: "mod", Value: i % 3}}
	})))(t)
	equal(t, must(coll.CountDocuments(t.Context(), bson.M{"mod": 1}))(t), 10)
	equal(t, must(coll.EstimatedDocumentCount(t.Context()))(t), 30)
}

func TestAggregate(t *testing.T) {
	coll := fresh(t)
	must(coll.InsertMany(t.Context(), numbers(30, func(i int) bson.D {
		return bson.D{{Key: "kind", Value: "abc"[i%3 : i%3+1]}, {Key: "n", Value: i}}
	})))(t)
	cursor, err := coll.Aggregate(t.Context(), mongo.Pipeline{
		{{Key: "$match", Value: bson.M{"n": bson.M{"$lt": 20}}}},
		{{Key: "$group", Value: bson.M{"_id": "$kind", "total": bson.M{"$sum": "$n"}}}},
		{{Key: "$sort", Value: bson.M{"total": -1}}},
		{{Key: "$limit", Value: 2}},
	})
	equal(t, all(t, cursor, err), []bson.M{{"_id": "b", "total": int32(70)}, {"_id": "a", "total": int32(63)}})
}

func TestCatalog(t *testing.T) {
	coll := fresh(t)
	must(coll.InsertOne(t.Context(), bson.M{}))(t)
	databases := must(client.ListDatabaseNames(t.Context(), bson.D{}))(t)
	if !slices.Contains(databases, database) {
		t.Fatalf("%s is not in %v", database, databases)
	}
	named := bson.M{"name": coll.Name()}
	specifications := must(coll.Database().ListCollectionSpecifications(t.Context(), named))(t)
	equal(t, len(specifications), 1)
	equal(t, specifications[0].Type, "collection")
	ok(t, coll.Drop(t.Context()))
	equal(t, must(coll.Database().ListCollectionNames(t.Context(), named))(t), []string{})
}

func expireAfter(field string, seconds int32) mongo.IndexModel {
	return mongo.IndexModel{
		Keys:    bson.D{{Key: field, Value: 1}},
		Options: options.Index().SetExpireAfterSeconds(seconds),
	}
}

func TestTTLIndex(t *testing.T) {
	coll := fresh(t)
	equal(t, must(coll.Indexes().CreateOne(t.Context(), expireAfter("at", 3600)))(t), "at_1")
	cursor, err := coll.Indexes().List(t.Context())
	indexes := all(t, cursor, err)
	equal(t, len(indexes), 2)
	equal(t, indexes[1]["expireAfterSeconds"], any(int32(3600)))
	specifications := must(coll.Indexes().ListSpecifications(t.Context()))(t)
	equal(t, *specifications[1].ExpireAfterSeconds, 3600)
}

type ttlMetrics struct {
	Passes           int64 `bson:"passes"`
	DeletedDocuments int64 `bson:"deletedDocuments"`
}

func ttl(t *testing.T) ttlMetrics {
	t.Helper()
	var status struct {
		Metrics struct {
			TTL ttlMetrics `bson:"ttl"`
		} `bson:"metrics"`
	}
	command := bson.D{{Key: "serverStatus", Value: 1}}
	ok(t, client.Database("admin").RunCommand(t.Context(), command).Decode(&status))
	return status.Metrics.TTL
}

func waitForPasses(t *testing.T, more int64) {
	t.Helper()
	target, deadline := ttl(t).Passes+more, time.Now().Add(30*time.Second)
	for ttl(t).Passes < target {
		if time.Now().After(deadline) {
			t.Fatalf("no %d passes in 30 s", more)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestTTLDeletion(t *testing.T) {
	coll := fresh(t)
	must(coll.Indexes().CreateOne(t.Context(), expireAfter("at", 60)))(t)
	faster := bson.D{{Key: "setParameter", Value: 1}, {Key: "ttlMonitorSleepSecs", Value: 1}}
	ok(t, client.Database("admin").RunCommand(t.Context(), faster).Err())
	waitForPasses(t, 1)
	before, now := ttl(t).DeletedDocuments, time.Now()
	var documents []any
	for i := range 25 {
		documents = append(documents, bson.M{"_id": fmt.Sprint("due", i), "at": now.Add(time.Duration(-61-i) * time.Second)})
	}
	documents = append(documents,
		bson.M{"_id": "fresh", "at": now},
		bson.M{"_id": "future", "at": now.Add(time.Hour)},
		bson.M{"_id": "missing"},
		bson.M{"_id": "number", "at": 0},
		bson.M{"_id": "text", "at": "2001-01-01"},
	)
	must(coll.InsertMany(t.Context(), documents))(t)
	waitForPasses(t, 2)
	cursor, err := coll.Find(t.Context(), bson.D{}, options.Find().SetSort(bson.M{"_id": 1}))
	var left []any
	for _, document := range all(t, cursor, err) {
		left = append(left, document["_id"])
	}
	equal(t, left, []any{"fresh", "future", "missing", "number", "text"})
	equal(t, ttl(t).DeletedDocuments-before, 25)
}

func TestDuplicateKey(t *testing.T) {
	coll := fresh(t)
	unique := func(field string) mongo.IndexModel {
		return mongo.IndexModel{Keys: bson.D{{Key: field, Value: 1}}, Options: options.Index().SetUnique(true)}
	}
	must(coll.Indexes().CreateOne(t.Context(), unique("email")))(t)
	must(coll.InsertOne(t.Context(), bson.M{"_id": 1, "email": "a@b"}))(t)
	_, err := coll.InsertOne(t.Context(), bson.M{"_id": 2, "email": "a@b"})
	if !mongo.IsDuplicateKeyError(err) {
		t.Fatal(err)
	}
	must(coll.InsertMany(t.Context(), []any{bson.M{"twice": 1, "email": 1}, bson.M{"twice": 1, "email": 2}}))(t)
	_, err = coll.Indexes().CreateOne(t.Context(), unique("twice"))
	fails(t, err, 11000, "DuplicateKey", "E11000")
}

func TestUnknownCommand(t *testing.T) {
	err := client.Database(database).RunCommand(t.Context(), bson.D{{Key: "noSuchCommand", Value: 1}}).Err()
	fails(t, err, 59, "CommandNotFound", "no such command: 'noSuchCommand'")
}

func TestIndexErrors(t *testing.T) {
	indexes := fresh(t).Indexes()
	must(indexes.CreateOne(t.Context(), expireAfter("at", 60)))(t)
	_, err := indexes.CreateOne(t.Context(), expireAfter("at", 61))
	fails(t, err, 85, "IndexOptionsConflict", "")
	_, err = indexes.CreateOne(t.Context(), expireAfter("x", -1))
	fails(t, err, 67, "CannotCreateIndex", "")
}

func TestWriteAndQueryErrors(t *testing.T) {
	coll := fresh(t)
	must(coll.InsertOne(t.Context(), bson.M{"_id": 1, "text": "x"}))(t)
	_, err := coll.UpdateOne(t.Context(), bson.M{"_id": 1}, bson.M{"$inc": bson.M{"text": 1}})
	fails(t, err, 14, "TypeMismatch", "")
	err = coll.FindOne(t.Context(), bson.M{"a": bson.M{"$noSuchOperator": 1}}).Err()
	fails(t, err, 2, "BadValue", "unknown operator: $noSuchOperator")
}

// postures are the servers under test: one that says that it is a router, and a member of a replica set.
var postures = []string{"MONGODB_URI", "MONGODB_REPLICA_SET_URI"}

// twoClients gives one collection through two clients that know nothing of each other.
func twoClients(t *testing.T, posture, name string) (*mongo.Client, *mongo.Collection, *mongo.Client, *mongo.Collection) {
	t.Helper()
	var clients [2]*mongo.Client
	var colls [2]*mongo.Collection
	for i := range clients {
		connected, err := mongo.Connect(options.Client().ApplyURI(os.Getenv(posture)))
		ok(t, err)
		t.Cleanup(func() { connected.Disconnect(context.Background()) })
		clients[i], colls[i] = connected, connected.Database(database).Collection(name)
	}
	ok(t, colls[0].Drop(t.Context()))
	return clients[0], colls[0], clients[1], colls[1]
}

func TestSnapshotSessionSeesOneState(t *testing.T) {
	for _, posture := range postures {
		here, mine, _, theirs := twoClients(t, posture, "snapshot_session")
		for i := range 50 {
			_, err := mine.InsertOne(t.Context(), bson.D{{"_id", i}, {"n", 1}, {"kind", i % 2}})
			ok(t, err)
		}
		session, err := here.StartSession(options.Session().SetSnapshot(true))
		ok(t, err)
		ctx := mongo.NewSessionContext(t.Context(), session)
		open, err := mine.Find(ctx, bson.D{}, options.Find().SetBatchSize(10))
		ok(t, err)
		equal(t, open.Next(ctx), true)
		_, err = theirs.UpdateMany(t.Context(), bson.D{}, bson.D{{"$inc", bson.D{{"n", 1}}}})
		ok(t, err)
		_, err = theirs.DeleteMany(t.Context(), bson.D{{"_id", bson.D{{"$gte", 20}}}})
		ok(t, err)
		rest := 0
		for open.Next(ctx) {
			rest++
		}
		ok(t, open.Err())
		equal(t, rest, 49)
		found, err := mine.Find(ctx, bson.D{{"n", 1}})
		equal(t, len(all(t, found, err)), 50)
		var kinds []int32
		ok(t, mine.Distinct(ctx, "kind", bson.D{}).Decode(&kinds))
		equal(t, len(kinds), 2)
		summed, err := mine.Aggregate(ctx, mongo.Pipeline{{{"$count", "n"}}})
		equal(t, all(t, summed, err), []bson.M{{"n": int32(50)}})
		_, err = theirs.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{"n", 1}}})
		ok(t, err)
		var failed mongo.CommandError
		if err := mine.FindOne(ctx, bson.D{{"n", 1}}).Err(); !errors.As(err, &failed) || failed.Code != 246 {
			t.Fatalf("got %v, want code 246", err)
		}
		session.EndSession(t.Context())
		found, err = mine.Find(t.Context(), bson.D{})
		equal(t, len(all(t, found, err)), 20)
	}
}

func TestCausalSessionReadsWhatAnotherClientWrote(t *testing.T) {
	for _, posture := range postures {
		here, mine, elsewhere, theirs := twoClients(t, posture, "causal_session")
		for n := range 20 {
			writing, err := elsewhere.StartSession()
			ok(t, err)
			reading, err := here.StartSession()
			ok(t, err)
			_, err = theirs.InsertOne(mongo.NewSessionContext(t.Context(), writing), bson.D{{"_id", n}})
			ok(t, err)
			ok(t, reading.AdvanceClusterTime(writing.ClusterTime()))
			ok(t, reading.AdvanceOperationTime(writing.OperationTime()))
			ok(t, mine.FindOne(mongo.NewSessionContext(t.Context(), reading), bson.D{{"_id", n}}).Err())
			writing.EndSession(t.Context())
			reading.EndSession(t.Context())
		}
	}
}

func TestReadConcernLevels(t *testing.T) {
	for _, posture := range postures {
		_, coll, _, _ := twoClients(t, posture, "levels")
		_, err := coll.InsertOne(t.Context(), bson.D{{"_id", 1}})
		ok(t, err)
		for _, level := range []string{"local", "available", "majority", "linearizable", "snapshot"} {
			concern := options.Collection().SetReadConcern(&readconcern.ReadConcern{Level: level})
			reading := coll.Database().Collection(coll.Name(), concern)
			ok(t, reading.FindOne(t.Context(), bson.D{{"_id", 1}}).Err())
		}
	}
}
