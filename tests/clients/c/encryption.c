/* Encrypted connections of libmongoc, and logging in by a certificate; what is expected is listed in ../README.md. */

#include "suite.h"

#define BY_CERTIFICATE "&authMechanism=MONGODB-X509"

static const char *
variable (const char *name)
{
   const char *value = getenv (name);
   if (!value) {
      fprintf (stderr, "%s is not set\n", name);
      exit (2);
   }
   return value;
}

/* Runs a command with a client of its own; the URI, which it frees, says how that connects. */
static bool
by (char *uri, const char *database, const char *text, bson_t *reply)
{
   mongoc_client_t *client = mongoc_client_new (uri);
   if (!client) {
      fprintf (stderr, "%s is no connection string\n", uri);
      exit (2);
   }
   bson_free (uri);
   mongoc_client_set_error_api (client, MONGOC_ERROR_API_VERSION_2);
   bool done = mongoc_client_command_simple (client, database, json (text), NULL, reply, &error);
   mongoc_client_destroy (client);
   return done;
}

void
encryption (void)
{
   const char *uri = variable ("MONGODB_TLS_URI");
   const char *files = variable ("MONGODB_TLS_FILES");
   const char *address = uri + strlen ("mongodb://");
   const char *options = strchr (address, '?');
   const char *create = "{\"createUser\": \"root\", \"pwd\": \"secret\", \"roles\": [\"root\"]}";
   const char *find = "{\"find\": \"orders\"}";
   CHECK_OK (by (bson_strdup (uri), "admin", create, NULL));
   CHECK_FAILS (13, by (bson_strdup (uri), "shop", find, NULL));

#define ROOT bson_strdup_printf ("mongodb://root:secret@%s&authMechanism=SCRAM-SHA-256", address)
   CHECK_OK (by (ROOT, "shop", "{\"insert\": \"orders\", \"documents\": [{\"_id\": 1}]}", NULL));
   char *user = bson_strdup_printf (
      "{\"createUser\": \"%s\", \"roles\": [{\"role\": \"readWrite\", \"db\": \"shop\"}]}",
      variable ("MONGODB_TLS_CLIENT_NAME"));
   CHECK_OK (by (ROOT, "$external", user, NULL));
   bson_free (user);

#define ANN bson_strdup_printf ("%s" BY_CERTIFICATE "&tlsCertificateKeyFile=%s/client.pem", uri, files)
   bson_t reply;
   CHECK_OK (by (ANN, "shop", find, &reply));
   CHECK (field (&reply, "cursor.firstBatch.0._id") == 1, ": the order");
   bson_destroy (&reply);
   CHECK_FAILS (13, by (ANN, "other", find, NULL));
   CHECK_FAILS (MONGOC_ERROR_CLIENT_AUTHENTICATE, by (bson_strdup_printf ("%s" BY_CERTIFICATE, uri), "shop", find, NULL));

   CHECK_FAILS (
      MONGOC_ERROR_SERVER_SELECTION_FAILURE,
      by (bson_strdup_printf ("mongodb://%.*s", (int) (options - address), address), "shop", find, NULL));
   char *stranger = bson_strdup_printf (
      "mongodb://%.*s?tls=true&tlsCAFile=%s/stranger.crt", (int) (options - address), address, files);
   CHECK_FAILS (MONGOC_ERROR_SERVER_SELECTION_FAILURE, by (stranger, "shop", find, NULL));
   CHECK (strstr (error.message, "TLS") != NULL, ": %s", error.message);
}
