package clients

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

const failoverWait = 12 * time.Second

// replicaSet is the set, a client under test, and an operator who steps its primary down.
type replicaSet struct {
	members  []string
	operator *mongo.Database
	client   *mongo.Client
	db       *mongo.Database
}

type helloReply struct {
	Me                string
	IsWritablePrimary bool
	Hosts             []string
}

func openSet(t *testing.T) *replicaSet {
	t.Helper()
	uri := os.Getenv("MONGODB_REPLICA_SET_URI")
	connect := func() *mongo.Client {
		connected := must(mongo.Connect(options.Client().ApplyURI(uri)))(t)
		t.Cleanup(func() { connected.Disconnect(context.Background()) })
		return connected
	}
	s := &replicaSet{members: strings.Split(strings.Split(uri, "/")[2], ","), client: connect()}
	s.operator = connect().Database("admin")
	s.db = s.client.Database("clients_go_" + t.Name())
	// The proxy leads to the first member.
	t.Cleanup(func() {
		if s.primary(t) != s.members[0] {
			ok(t, s.stepDown(context.Background()))
			equal(t, s.primary(t), s.members[0])
		}
	})
	s.primary(t)
	ok(t, s.db.Drop(t.Context()))
	return s
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(failoverWait); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", failoverWait, what)
		}
	}
}

// primary waits until every member is there, and gives the name of the primary.
func (s *replicaSet) primary(t *testing.T) string {
	t.Helper()
	var found helloReply
	eventually(t, "the set has a primary and all members", func() bool {
		found = helloReply{}
		err := s.operator.RunCommand(context.Background(), bson.D{{"hello", 1}}).Decode(&found)
		return err == nil && found.IsWritablePrimary && len(found.Hosts) == len(s.members)
	})
	return found.Me
}

// stepDown makes the other member the primary. A member alone is the primary again after a second.
func (s *replicaSet) stepDown(ctx context.Context) error {
	command := bson.D{{"replSetStepDown", 60}}
	if len(s.members) == 1 {
		command = bson.D{{"replSetStepDown", 1}, {"secondaryCatchUpPeriodSecs", 0}, {"force", true}}
	}
	return s.operator.RunCommand(ctx, command).Err()
}

func TestStepDownUnderWriters(t *testing.T) {
	s := openSet(t)
	counters, items := s.db.Collection("counters"), s.db.Collection("items")
	var done [4]atomic.Int64
	for id := range 3 {
		must(counters.InsertOne(t.Context(), bson.D{{"_id", id}, {"n", 0}}))(t)
	}
	var ended atomic.Bool
	var work sync.WaitGroup
	failures := make(chan error, len(done))
	write := func(count *atomic.Int64, act func() error) {
		work.Go(func() {
			for !ended.Load() {
				if err := act(); err != nil {
					failures <- err
					return
				}
				count.Add(1)
			}
		})
	}
	for id := range 3 {
		write(&done[id], func() error {
			_, err := counters.UpdateByID(t.Context(), id, bson.D{{"$inc", bson.D{{"n", 1}}}})
			return err
		})
	}
	write(&done[3], func() error {
		_, err := items.InsertOne(t.Context(), bson.D{{"_id", done[3].Load()}})
		return err
	})
	defer work.Wait()
	defer ended.Store(true)
	goOn := func() {
		t.Helper()
		for i := range done {
			before := done[i].Load()
			eventually(t, fmt.Sprintf("writer %d goes on", i), func() bool {
				select {
				case err := <-failures:
					t.Fatal(err)
				default:
				}
				return done[i].Load() >= before+20
			})
		}
	}
	goOn()
	ok(t, s.stepDown(t.Context()))
	goOn()
	ended.Store(true)
	work.Wait()
	equal(t, len(failures), 0)
	for id := range 3 {
		var counter struct{ N int64 }
		ok(t, counters.FindOne(t.Context(), bson.D{{"_id", id}}).Decode(&counter))
		equal(t, counter.N, done[id].Load())
	}
	equal(t, must(items.CountDocuments(t.Context(), bson.D{}))(t), done[3].Load())
}

func TestStepDownUnderAChangeStream(t *testing.T) {
	s := openSet(t)
	items := s.db.Collection("items")
	ok(t, s.db.CreateCollection(t.Context(), "items"))
	ctx, cancel := context.WithTimeout(t.Context(), failoverWait)
	defer cancel()
	stream := must(items.Watch(ctx, mongo.Pipeline{}))(t)
	defer func() { stream.Close(context.Background()) }()
	insert := func(from, to int) {
		for id := from; id < to; id++ {
			must(items.InsertOne(ctx, bson.D{{"_id", id}}))(t)
		}
	}
	see := func(from, to int) {
		for id := from; id < to; id++ {
			// The driver does not resume when its pool was cleared by the closed connection of another operation.
			for !stream.Next(ctx) {
				if ctx.Err() != nil {
					t.Fatalf("no event of %d: %v", id, stream.Err())
				}
				stream = must(items.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(stream.ResumeToken())))(t)
			}
			var event struct {
				DocumentKey struct {
					ID int `bson:"_id"`
				} `bson:"documentKey"`
			}
			ok(t, stream.Decode(&event))
			equal(t, event.DocumentKey.ID, id)
		}
	}
	insert(0, 10)
	see(0, 5)
	ok(t, s.stepDown(ctx))
	insert(10, 20)
	see(5, 20)
}

func TestStepDownUnderReadsOnASecondary(t *testing.T) {
	s := openSet(t)
	if len(s.members) < 2 {
		t.Skip("the set has one member")
	}
	items := s.db.Collection("items")
	secondary := s.db.Collection("items", options.Collection().SetReadPreference(readpref.Secondary()))
	inSession(t, s.client, func(ctx context.Context, _ *mongo.Session) {
		read := func(from, to int) {
			for id := from; id < to; id++ {
				must(items.InsertOne(ctx, bson.D{{"_id", id}}))(t)
				ok(t, secondary.FindOne(ctx, bson.D{{"_id", id}}).Err())
			}
		}
		read(0, 10)
		ok(t, s.stepDown(t.Context()))
		read(10, 20)
		equal(t, must(secondary.CountDocuments(ctx, bson.D{}))(t), 20)
	})
}

func TestStepDownUnderATransaction(t *testing.T) {
	s := openSet(t)
	accounts := s.db.Collection("accounts")
	must(accounts.InsertMany(t.Context(), []any{bson.D{{"_id", "ann"}, {"n", 100}}, bson.D{{"_id", "bob"}, {"n", 0}}}))(t)
	runs := 0
	inSession(t, s.client, func(_ context.Context, session *mongo.Session) {
		_, err := session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
			runs++
			if _, err := accounts.UpdateByID(ctx, "ann", bson.D{{"$inc", bson.D{{"n", -30}}}}); err != nil {
				return nil, err
			}
			if runs == 1 {
				ok(t, s.stepDown(t.Context()))
			}
			return accounts.UpdateByID(ctx, "bob", bson.D{{"$inc", bson.D{{"n", 30}}}})
		})
		ok(t, err)
	})
	if runs < 2 {
		t.Fatal("the callback ran once")
	}
	cursor, err := accounts.Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{"_id", 1}}))
	found := all(t, cursor, err)
	equal(t, found, []bson.M{{"_id": "ann", "n": int32(70)}, {"_id": "bob", "n": int32(30)}})
}
