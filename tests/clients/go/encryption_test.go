package clients

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func encrypted(t *testing.T, uri string) *mongo.Client {
	t.Helper()
	connected, err := mongo.Connect(options.Client().ApplyURI(uri))
	ok(t, err)
	t.Cleanup(func() { connected.Disconnect(context.Background()) })
	return connected
}

func TestEncryption(t *testing.T) {
	uri, files, name := os.Getenv("MONGODB_TLS_URI"), os.Getenv("MONGODB_TLS_FILES"), os.Getenv("MONGODB_TLS_CLIENT_NAME")
	anonymous := encrypted(t, uri)
	command(t, anonymous, "admin", newUser("root", "secret", "root"))
	refused(t, 13, "Unauthorized", orders(anonymous).FindOne(t.Context(), bson.D{}).Err())

	root := encrypted(t, strings.Replace(uri, "//", "//root:secret@", 1)+"&authMechanism=SCRAM-SHA-256")
	_, err := orders(root).InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "text", Value: strings.Repeat("x", 100_000)}})
	ok(t, err)
	sees(t, root)
	role := bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: "shop"}}
	command(t, root, "$external", bson.D{{Key: "createUser", Value: name}, {Key: "roles", Value: bson.A{role}}})

	byCertificate := uri + "&authMechanism=MONGODB-X509"
	ann := encrypted(t, byCertificate+"&tlsCertificateKeyFile="+files+"/client.pem")
	var found struct{ Text string }
	ok(t, orders(ann).FindOne(t.Context(), bson.D{}).Decode(&found))
	equal(t, len(found.Text), 100_000)
	refused(t, 13, "Unauthorized", ann.Database("other").Collection("c").FindOne(t.Context(), bson.D{}).Err())

	without := encrypted(t, byCertificate)
	refused(t, 18, "AuthenticationFailed", orders(without).FindOne(t.Context(), bson.D{}).Err())

	plain, _, _ := strings.Cut(uri, "?")
	for _, other := range [][2]string{
		{plain + "?", `EOF|reset by peer`},
		{strings.Replace(uri, "authority.crt", "stranger.crt", 1) + "&", "certificate signed by unknown authority"},
	} {
		err := encrypted(t, other[0]+"serverSelectionTimeoutMS=1000").Ping(t.Context(), nil)
		if err == nil || !regexp.MustCompile(other[1]).MatchString(err.Error()) {
			t.Fatalf("got %v, want %s", err, other[1])
		}
	}
}
