/* Logging in by libmongoc, and what a server with --auth refuses; what is expected is listed in ../README.md. */

#include "suite.h"

#define UNAUTHORIZED 13
/* The driver keeps the server's code, 18, to itself. */
#define REFUSED MONGOC_ERROR_CLIENT_AUTHENTICATE

/* `r@ot:/%`, and two spellings of a password that SASLprep makes one; each as connection strings have it, and as it is. */
#define ROOT "r%40ot%3A%2F%25"
#define PASSWORD "p%40ss%3A%2F%25%E2%85%A8"
#define SAME_PASSWORD "p%40ss%3A%2F%25I%C2%ADX"
#define PLAIN_ROOT "r@ot:/%"
#define PLAIN_PASSWORD "p@ss:/%\xe2\x85\xa8"

/* A client that logs in with its first command; without a login where that is empty. */
static mongoc_client_t *
as (const char *login, const char *further)
{
   const char *base = getenv ("MONGODB_AUTH_URI");
   const char *scheme = "mongodb://";
   if (!base || strncmp (base, scheme, strlen (scheme)) != 0) {
      fprintf (stderr, "MONGODB_AUTH_URI does not name a server\n");
      exit (2);
   }
   char *uri = bson_strdup_printf ("%s%s%s%s", scheme, login, base + strlen (scheme), further);
   mongoc_client_t *connected = mongoc_client_new (uri);
   if (!connected) {
      fprintf (stderr, "%s is no connection string\n", uri);
      exit (2);
   }
   bson_free (uri);
   mongoc_client_set_error_api (connected, MONGOC_ERROR_API_VERSION_2);
   return connected;
}

static bool
command (mongoc_client_t *client, const char *database, const char *text)
{
   return mongoc_client_command_simple (client, database, json (text), NULL, NULL, &error);
}

static bool
sees (mongoc_client_t *client)
{
   return command (client, "shop", "{\"count\": \"orders\"}");
}

/* Whether a new client sees the orders. */
static bool
logs_in (const char *login, const char *further)
{
   mongoc_client_t *client = as (login, further);
   bool done = sees (client);
   mongoc_client_destroy (client);
   return done;
}

static void
log_in_by (const char *mechanism)
{
   char further[2][100];
   const char *sources[] = {"admin", "shop"};
   for (int i = 0; i < 2; i++) {
      bson_snprintf (further[i], sizeof further[i], "&authSource=%s&authMechanism=%s", sources[i], mechanism);
   }
   CHECK_OK (logs_in (ROOT ":" PASSWORD "@", further[0]));
   CHECK_OK (logs_in ("reader:" PASSWORD "@", further[1]));
   CHECK_FAILS (REFUSED, logs_in ("reader:wrong@", further[1]));
   CHECK_FAILS (REFUSED, logs_in ("reader:" PASSWORD "@", further[0]));
   CHECK_FAILS (REFUSED, logs_in ("nobody:" PASSWORD "@", further[1]));
}

static void
change_password (mongoc_client_t *root, mongoc_client_t *old)
{
   CHECK_OK (sees (old));
   CHECK_OK (command (root, "shop", "{\"updateUser\": \"changing\", \"pwd\": \"after\"}"));
   CHECK_OK (sees (old));
   CHECK_FAILS (REFUSED, logs_in ("changing:before@", "&authSource=shop"));
   CHECK_OK (logs_in ("changing:after@", "&authSource=shop"));
}

void
authorization (void)
{
   mongoc_client_t *anonymous = as ("", "");
   CHECK_OK (command (
      anonymous, "admin", "{\"createUser\": \"" PLAIN_ROOT "\", \"pwd\": \"" PLAIN_PASSWORD "\", \"roles\": [\"root\"]}"));
   CHECK_FAILS (UNAUTHORIZED, sees (anonymous));
   mongoc_client_destroy (anonymous);

   mongoc_client_t *root = as (ROOT ":" PASSWORD "@", "&authSource=admin");
   CHECK_OK (command (
      root, "shop", "{\"createUser\": \"reader\", \"pwd\": \"" PLAIN_PASSWORD "\", \"roles\": [\"read\"]}"));
   CHECK_OK (command (root, "shop", "{\"createUser\": \"changing\", \"pwd\": \"before\", \"roles\": [\"read\"]}"));
   CHECK_OK (command (root, "shop", "{\"insert\": \"orders\", \"documents\": [{\"_id\": 1}]}"));

   log_in_by ("SCRAM-SHA-1");
   log_in_by ("SCRAM-SHA-256");
   CHECK_OK (logs_in ("reader:" SAME_PASSWORD "@", "&authSource=shop&authMechanism=SCRAM-SHA-256"));

   mongoc_client_t *reader = as ("reader:" PASSWORD "@", "&authSource=shop");
   CHECK_FAILS (UNAUTHORIZED, command (reader, "shop", "{\"insert\": \"orders\", \"documents\": [{\"_id\": 2}]}"));
   CHECK_FAILS (UNAUTHORIZED, command (reader, "other", "{\"find\": \"c\"}"));
   mongoc_client_destroy (reader);

   mongoc_client_t *old = as ("changing:before@", "&authSource=shop");
   change_password (root, old);
   mongoc_client_destroy (old);
   mongoc_client_destroy (root);
}
