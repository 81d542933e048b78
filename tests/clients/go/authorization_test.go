package clients

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const rootName = "r@ot:/%"

// SASLprep makes one password of both.
const password, samePassword = "p@ss:/%\u2168", "p@ss:/%I\u00adX"

// as gives a client that logs in with its first command.
func as(t *testing.T, name, password, further string) *mongo.Client {
	t.Helper()
	login := url.UserPassword(name, password).String() + "@"
	uri := strings.Replace(os.Getenv("MONGODB_AUTH_URI"), "//", "//"+login, 1) + further
	connected, err := mongo.Connect(options.Client().ApplyURI(uri))
	ok(t, err)
	t.Cleanup(func() { connected.Disconnect(context.Background()) })
	return connected
}

func refused(t *testing.T, code int32, name string, err error) {
	t.Helper()
	var failed mongo.CommandError
	if !errors.As(err, &failed) || failed.Code != code || failed.Name != name {
		t.Fatalf("got %v, want %d %s", err, code, name)
	}
}

func orders(client *mongo.Client) *mongo.Collection {
	return client.Database("shop").Collection("orders")
}

func command(t *testing.T, client *mongo.Client, database string, command bson.D) {
	t.Helper()
	ok(t, client.Database(database).RunCommand(t.Context(), command).Err())
}

func newUser(name, password, role string) bson.D {
	return bson.D{{Key: "createUser", Value: name}, {Key: "pwd", Value: password}, {Key: "roles", Value: bson.A{role}}}
}

// sees fails when the client does not count the one order.
func sees(t *testing.T, client *mongo.Client) {
	t.Helper()
	count, err := orders(client).CountDocuments(t.Context(), bson.D{})
	ok(t, err)
	equal(t, count, 1)
}

func TestAuthorization(t *testing.T) {
	anonymous, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_AUTH_URI")))
	ok(t, err)
	defer anonymous.Disconnect(context.Background())
	command(t, anonymous, "admin", newUser(rootName, password, "root"))
	refused(t, 13, "Unauthorized", orders(anonymous).FindOne(t.Context(), bson.D{}).Err())
	root := as(t, rootName, password, "&authSource=admin")
	command(t, root, "shop", newUser("reader", password, "read"))
	_, err = orders(root).InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	ok(t, err)

	for _, mechanism := range []string{"SCRAM-SHA-1", "SCRAM-SHA-256"} {
		by := "&authMechanism=" + mechanism
		sees(t, as(t, rootName, password, "&authSource=admin"+by))
		sees(t, as(t, "reader", password, "&authSource=shop"+by))
		for _, other := range [][3]string{
			{"reader", "wrong", "shop"}, {"reader", password, "admin"}, {"nobody", password, "shop"},
		} {
			client := as(t, other[0], other[1], "&authSource="+other[2]+by)
			refused(t, 18, "AuthenticationFailed", orders(client).FindOne(t.Context(), bson.D{}).Err())
		}
	}
	sees(t, as(t, "reader", samePassword, "&authSource=shop&authMechanism=SCRAM-SHA-256"))

	reader := as(t, "reader", password, "&authSource=shop")
	_, err = orders(reader).InsertOne(t.Context(), bson.D{})
	refused(t, 13, "Unauthorized", err)
	refused(t, 13, "Unauthorized", reader.Database("other").Collection("c").FindOne(t.Context(), bson.D{}).Err())

	command(t, root, "shop", newUser("changing", "before", "read"))
	old := as(t, "changing", "before", "&authSource=shop")
	sees(t, old)
	command(t, root, "shop", bson.D{{Key: "updateUser", Value: "changing"}, {Key: "pwd", Value: "after"}})
	sees(t, old)
	late := as(t, "changing", "before", "&authSource=shop")
	refused(t, 18, "AuthenticationFailed", orders(late).FindOne(t.Context(), bson.D{}).Err())
	sees(t, as(t, "changing", "after", "&authSource=shop"))
}
