package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

var proxies = map[string]string{
	"MONGODB_URI":             "MONGODB_PROXY_URI",
	"MONGODB_REPLICA_SET_URI": "MONGODB_REPLICA_SET_PROXY_URI",
}

// bank is two accounts in two databases, and the ways to them.
type bank struct {
	client, elsewhere, proxied *mongo.Client
	name                       string
	lock                       sync.Mutex
	sent                       map[string]int
}

// onPostures runs a test on both servers.
func onPostures(t *testing.T, run func(*testing.T, *bank)) {
	for _, posture := range postures {
		t.Run(posture, func(t *testing.T) {
			run(t, newBank(t, posture))
		})
	}
}

func newBank(t *testing.T, posture string) *bank {
	t.Helper()
	b := &bank{name: "accounts", sent: map[string]int{}}
	monitor := &event.CommandMonitor{Started: func(_ context.Context, started *event.CommandStartedEvent) {
		b.lock.Lock()
		defer b.lock.Unlock()
		b.sent[started.CommandName]++
	}}
	for into, variable := range map[**mongo.Client]string{
		&b.client: posture, &b.elsewhere: posture, &b.proxied: proxies[posture],
	} {
		connecting := options.Client().ApplyURI(os.Getenv(variable))
		if variable == proxies[posture] {
			connecting.SetMonitor(monitor)
		}
		connected, err := mongo.Connect(connecting)
		ok(t, err)
		t.Cleanup(func() { connected.Disconnect(context.Background()) })
		*into = connected
	}
	for i, account := range []bson.D{{{"_id", "ann"}, {"n", 100}}, {{"_id", "bob"}, {"n", 0}}} {
		coll := b.accounts(b.client)[i]
		ok(t, coll.Drop(t.Context()))
		_, err := coll.InsertOne(t.Context(), account)
		ok(t, err)
	}
	return b
}

func (b *bank) accounts(client *mongo.Client) [2]*mongo.Collection {
	return [2]*mongo.Collection{
		client.Database("clients_go_a").Collection(b.name), client.Database("clients_go_b").Collection(b.name),
	}
}

func (b *bank) move(ctx context.Context, client *mongo.Client, amount int) error {
	accounts := b.accounts(client)
	take, give := bson.D{{"$inc", bson.D{{"n", -amount}}}}, bson.D{{"$inc", bson.D{{"n", amount}}}}
	if _, err := accounts[0].UpdateOne(ctx, bson.D{{"_id", "ann"}}, take); err != nil {
		return err
	}
	_, err := accounts[1].UpdateOne(ctx, bson.D{{"_id", "bob"}}, give)
	return err
}

func (b *bank) money(t *testing.T, ctx context.Context, client *mongo.Client) [2]int {
	t.Helper()
	var found [2]int
	for i, id := range []string{"ann", "bob"} {
		var account struct{ N int }
		ok(t, b.accounts(client)[i].FindOne(ctx, bson.D{{"_id", id}}).Decode(&account))
		found[i] = account.N
	}
	return found
}

// cut asks the proxy for a cut, and gives how many there have been.
func (b *bank) cut(t *testing.T, what string) int {
	t.Helper()
	var reply struct{ Cuts int }
	ok(t, b.proxied.Database("admin").RunCommand(t.Context(), bson.D{{"cut", what}}).Decode(&reply))
	return reply.Cuts
}

func (b *bank) counted(name string) int {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.sent[name]
}

func inSession(t *testing.T, client *mongo.Client, run func(context.Context, *mongo.Session)) {
	t.Helper()
	ok(t, client.UseSession(t.Context(), func(ctx context.Context) error {
		run(ctx, mongo.SessionFromContext(ctx))
		return nil
	}))
}

func TestTransactionIsAllOrNothing(t *testing.T) {
	onPostures(t, func(t *testing.T, b *bank) {
		inSession(t, b.client, func(_ context.Context, session *mongo.Session) {
			result, err := session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
				err := b.move(ctx, b.client, 30)
				equal(t, b.money(t, ctx, b.client), [2]int{70, 30})
				equal(t, b.money(t, t.Context(), b.elsewhere), [2]int{100, 0})
				return "done", err
			})
			ok(t, err)
			equal(t, result, any("done"))
			equal(t, b.money(t, t.Context(), b.elsewhere), [2]int{70, 30})
			notThisTime := errors.New("not this time")
			_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
				ok(t, b.move(ctx, b.client, 30))
				return nil, notThisTime
			})
			equal(t, errors.Is(err, notThisTime), true)
			equal(t, b.money(t, t.Context(), b.elsewhere), [2]int{70, 30})
		})
	})
}

func TestLoserOfAConflictIsRunAgain(t *testing.T) {
	onPostures(t, func(t *testing.T, b *bank) {
		increment := bson.D{{"$inc", bson.D{{"n", 1}}}}
		inSession(t, b.client, func(first context.Context, winner *mongo.Session) {
			inSession(t, b.elsewhere, func(second context.Context, loser *mongo.Session) {
				ok(t, winner.StartTransaction())
				ok(t, loser.StartTransaction())
				_, err := b.accounts(b.client)[0].UpdateOne(first, bson.D{{"_id", "ann"}}, increment)
				ok(t, err)
				_, err = b.accounts(b.elsewhere)[0].UpdateOne(second, bson.D{{"_id", "ann"}}, increment)
				var failed mongo.ServerError
				equal(t, errors.As(err, &failed), true)
				equal(t, failed.HasErrorCode(112), true)
				equal(t, failed.HasErrorLabel("TransientTransactionError"), true)
				ok(t, loser.AbortTransaction(t.Context()))
				ok(t, winner.CommitTransaction(t.Context()))
			})
		})
		var work sync.WaitGroup
		failures := make(chan error, 2)
		for _, client := range []*mongo.Client{b.client, b.elsewhere} {
			work.Go(func() { failures <- b.countUp(t.Context(), client) })
		}
		work.Wait()
		ok(t, <-failures)
		ok(t, <-failures)
		equal(t, b.money(t, t.Context(), b.client)[0], 121)
	})
}

// countUp adds ten times one to what it read.
func (b *bank) countUp(ctx context.Context, client *mongo.Client) error {
	return client.UseSession(ctx, func(ctx context.Context) error {
		for range 10 {
			_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
				var account struct{ N int }
				coll := b.accounts(client)[0]
				if err := coll.FindOne(ctx, bson.D{{"_id", "ann"}}).Decode(&account); err != nil {
					return nil, err
				}
				set := bson.D{{"$set", bson.D{{"n", account.N + 1}}}}
				return coll.UpdateOne(ctx, bson.D{{"_id", "ann"}}, set)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func TestCausalSessionReadsItsOwnWrites(t *testing.T) {
	onPostures(t, func(t *testing.T, b *bank) {
		coll := b.client.Database("clients_go_a").Collection(b.name,
			options.Collection().SetWriteConcern(writeconcern.W1()).SetReadConcern(readconcern.Majority()))
		inSession(t, b.client, func(ctx context.Context, _ *mongo.Session) {
			for n := range 20 {
				_, err := coll.InsertOne(ctx, bson.D{{"_id", n}})
				ok(t, err)
				ok(t, coll.FindOne(ctx, bson.D{{"_id", n}}).Err())
			}
		})
	})
}

// onCuts runs a test on both servers, with a request that is lost and with a reply that is lost.
func onCuts(t *testing.T, run func(*testing.T, *bank, string)) {
	onPostures(t, func(t *testing.T, b *bank) {
		for _, when := range []string{"request", "reply"} {
			t.Run(when, func(t *testing.T) {
				for i, n := range []int{100, 0} {
					ids := []string{"ann", "bob"}
					_, err := b.accounts(b.client)[i].ReplaceOne(t.Context(), bson.D{{"_id", ids[i]}}, bson.D{{"n", n}})
					ok(t, err)
				}
				run(t, b, when)
			})
		}
	})
}

func TestCommitIsTriedAgain(t *testing.T) {
	onCuts(t, func(t *testing.T, b *bank, when string) {
		inSession(t, b.proxied, func(ctx context.Context, session *mongo.Session) {
			ok(t, session.StartTransaction())
			ok(t, b.move(ctx, b.proxied, 30))
			cuts, sent := b.cut(t, when+" commitTransaction 1"), b.counted("commitTransaction")
			ok(t, session.CommitTransaction(t.Context()))
			equal(t, b.cut(t, "nothing")-cuts, 1)
			equal(t, b.counted("commitTransaction")-sent, 2)
			equal(t, b.money(t, t.Context(), b.elsewhere), [2]int{70, 30})
		})
	})
}

func TestResultOfACommitIsUnknown(t *testing.T) {
	onCuts(t, func(t *testing.T, b *bank, when string) {
		inSession(t, b.proxied, func(ctx context.Context, session *mongo.Session) {
			ok(t, session.StartTransaction())
			ok(t, b.move(ctx, b.proxied, 30))
			b.cut(t, when+" commitTransaction 2")
			var failed mongo.LabeledError
			equal(t, errors.As(session.CommitTransaction(t.Context()), &failed), true)
			equal(t, failed.HasErrorLabel("UnknownTransactionCommitResult"), true)
			equal(t, failed.HasErrorLabel("TransientTransactionError"), false)
			ok(t, session.CommitTransaction(t.Context()))
			equal(t, b.money(t, t.Context(), b.elsewhere), [2]int{70, 30})

			runs, cuts := 0, b.cut(t, when+" commitTransaction 3")
			_, err := session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
				runs++
				return nil, b.move(ctx, b.proxied, 30)
			})
			ok(t, err)
			equal(t, fmt.Sprint(b.cut(t, "nothing")-cuts, runs), "3 1")
			equal(t, b.money(t, t.Context(), b.elsewhere), [2]int{40, 60})
		})
	})
}

func TestAbortLeavesNothing(t *testing.T) {
	onCuts(t, func(t *testing.T, b *bank, when string) {
		inSession(t, b.proxied, func(ctx context.Context, session *mongo.Session) {
			ok(t, session.StartTransaction())
			ok(t, b.move(ctx, b.proxied, 30))
			cuts, sent := b.cut(t, when+" abortTransaction 1"), b.counted("abortTransaction")
			ok(t, session.AbortTransaction(t.Context()))
			equal(t, b.cut(t, "nothing")-cuts, 1)
			equal(t, b.counted("abortTransaction")-sent, 2)
			// It waits for no transaction that is still open.
			increment := bson.D{{"$inc", bson.D{{"n", 1}}}}
			_, err := b.accounts(b.elsewhere)[0].UpdateOne(t.Context(), bson.D{{"_id", "ann"}}, increment)
			ok(t, err)
			equal(t, b.money(t, t.Context(), b.elsewhere), [2]int{101, 0})
		})
	})
}

func TestStatementOfATransactionIsLost(t *testing.T) {
	onCuts(t, func(t *testing.T, b *bank, when string) {
		inSession(t, b.proxied, func(_ context.Context, session *mongo.Session) {
			runs := 0
			b.cut(t, when+" update 1")
			_, err := session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
				runs++
				return nil, b.move(ctx, b.proxied, 30)
			})
			ok(t, err)
			equal(t, runs, 2)
			equal(t, b.money(t, t.Context(), b.elsewhere), [2]int{70, 30})
		})
	})
}
