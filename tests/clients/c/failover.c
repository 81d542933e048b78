/* What clients of libmongoc see while the primary of their replica set steps down; what is expected is listed in
   ../README.md. */

#include "suite.h"

#include <time.h>

#define WAIT_SECS 12

/* The client under test, and an operator who steps the primary down. A pool watches the set in the background. */
static mongoc_client_pool_t *pool;
static mongoc_client_t *tested, *operator;
static mongoc_database_t *database;
static char first[sizeof ((mongoc_host_list_t *) NULL)->host_and_port];
static int members;

static void
pause_briefly (void)
{
   nanosleep (&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* Whether the set has a primary and all members; the name of the primary goes to `name`. */
static bool
is_whole (char *name, size_t size)
{
   bson_t reply;
   bson_iter_t hosts, items, me;
   int count = 0;
   bool whole = mongoc_client_command_simple (operator, "admin", json ("{\"hello\": 1}"), NULL, &reply, &error);
   if (whole && bson_iter_init_find (&hosts, &reply, "hosts") && bson_iter_recurse (&hosts, &items)) {
      while (bson_iter_next (&items)) {
         count++;
      }
   }
   whole = whole && count == members && field (&reply, "isWritablePrimary") == 1;
   if (whole && bson_iter_init_find (&me, &reply, "me")) {
      snprintf (name, size, "%s", bson_iter_utf8 (&me, NULL));
   }
   bson_destroy (&reply);
   return whole;
}

static bool
find_primary (char *name, size_t size)
{
   time_t deadline = time (NULL) + WAIT_SECS;
   while (!is_whole (name, size)) {
      if (time (NULL) > deadline) {
         return false;
      }
      pause_briefly ();
   }
   return true;
}

/* Makes the other member the primary. A member alone is the primary again after a second. */
static bool
step_down (bson_error_t *why)
{
   const char *alone = "{\"replSetStepDown\": 1, \"secondaryCatchUpPeriodSecs\": 0, \"force\": true}";
   const char *command = members > 1 ? "{\"replSetStepDown\": 60}" : alone;
   return mongoc_client_command_simple (operator, "admin", json (command), NULL, NULL, why);
}

/* The proxy leads to the first member. */
static void
give_back (void)
{
   char name[sizeof first];
   CHECK (find_primary (name, sizeof name), ": %s", error.message);
   if (strcmp (name, first) != 0) {
      CHECK_OK (step_down (&error));
      CHECK (find_primary (name, sizeof name) && strcmp (name, first) == 0, ": %s", name);
   }
}

static void
with_set (const char *name, void (*run) (void))
{
   char primary[sizeof first];
   mongoc_uri_t *uri = mongoc_uri_new (getenv ("MONGODB_REPLICA_SET_URI"));
   const mongoc_host_list_t *hosts = mongoc_uri_get_hosts (uri);
   snprintf (first, sizeof first, "%s", hosts->host_and_port);
   for (members = 0; hosts; hosts = hosts->next) {
      members++;
   }
   /* The driver warns of what is expected here. */
   mongoc_log_set_handler (NULL, NULL);
   pool = mongoc_client_pool_new (uri);
   mongoc_client_pool_set_error_api (pool, MONGOC_ERROR_API_VERSION_2);
   tested = mongoc_client_pool_pop (pool);
   operator = mongoc_client_pool_pop (pool);
   database = mongoc_client_get_database (tested, name);
   good = find_primary (primary, sizeof primary) && mongoc_database_drop (database, &error);
   if (good) {
      run ();
      bool so_far = good;
      give_back ();
      good = good && so_far;
   } else {
      printf ("# %s\n", error.message);
   }
   mongoc_database_destroy (database);
   mongoc_client_pool_push (pool, tested);
   mongoc_client_pool_push (pool, operator);
   mongoc_client_pool_destroy (pool);
   mongoc_uri_destroy (uri);
   mongoc_log_set_handler (mongoc_log_default_handler, NULL);
}

static bool
insert_id (mongoc_collection_t *coll, int id, mongoc_client_session_t *session)
{
   bson_t *document = BCON_NEW ("_id", BCON_INT32 (id));
   bson_t *options = bson_new ();
   bool done = (!session || mongoc_client_session_append (session, options, &error)) &&
               mongoc_collection_insert_one (coll, document, options, NULL, &error);
   bson_destroy (document);
   bson_destroy (options);
   return done;
}

static bool
count_up (mongoc_collection_t *coll)
{
   bson_t *counter = json ("{\"_id\": 1}"), *increment = json ("{\"$inc\": {\"n\": 1}}");
   return mongoc_collection_update_one (coll, counter, increment, NULL, NULL, &error);
}

/* The number `n` of a document, -2 where it is not there. */
static int64_t
number_of (mongoc_collection_t *coll, const char *filter)
{
   const bson_t *document;
   mongoc_cursor_t *cursor = mongoc_collection_find_with_opts (coll, json (filter), NULL, NULL);
   int64_t n = mongoc_cursor_next (cursor, &document) ? field (document, "n") : -2;
   mongoc_cursor_error (cursor, &error);
   mongoc_cursor_destroy (cursor);
   return n;
}

static void
write_on (void)
{
   mongoc_collection_t *counters = mongoc_database_get_collection (database, "counters");
   mongoc_collection_t *items = mongoc_database_get_collection (database, "items");
   CHECK_OK (mongoc_collection_insert_one (counters, json ("{\"_id\": 1, \"n\": 0}"), NULL, NULL, &error));
   for (int i = 0; i < 100; i++) {
      if (i == 50) {
         CHECK_OK (step_down (&error));
      }
      CHECK_OK (count_up (counters));
      CHECK_OK (insert_id (items, i, NULL));
   }
   int64_t n = number_of (counters, "{\"_id\": 1}");
   CHECK (n == 100, ": %lld %s", (long long) n, error.message);
   n = mongoc_collection_count_documents (items, json ("{}"), NULL, NULL, NULL, &error);
   CHECK (n == 100, ": %lld %s", (long long) n, error.message);
   mongoc_collection_destroy (counters);
   mongoc_collection_destroy (items);
}

void
failover_writers (void)
{
   with_set ("clients_c_failover_writers", write_on);
}

/* Reads the events of inserts `from` up to `to`. */
static void
see (mongoc_change_stream_t *stream, int from, int to)
{
   time_t deadline = time (NULL) + WAIT_SECS;
   const bson_t *event, *reply;
   while (from < to) {
      if (mongoc_change_stream_next (stream, &event)) {
         int64_t id = field (event, "documentKey._id");
         CHECK (id == from, ": %lld, want %d", (long long) id, from);
         from++;
      }
      CHECK (!mongoc_change_stream_error_document (stream, &error, &reply), ": %s", error.message);
      CHECK (time (NULL) <= deadline, ": no event of %d", from);
   }
}

static void
watch (void)
{
   mongoc_collection_t *items = mongoc_database_create_collection (database, "items", NULL, &error);
   CHECK (items, ": %s", error.message);
   bson_t *options = BCON_NEW ("maxAwaitTimeMS", BCON_INT64 (200));
   mongoc_change_stream_t *stream = mongoc_collection_watch (items, json ("[]"), options);
   for (int i = 0; i < 10; i++) {
      CHECK_OK (insert_id (items, i, NULL));
   }
   see (stream, 0, 5);
   CHECK_OK (step_down (&error));
   for (int i = 10; good && i < 20; i++) {
      CHECK_OK (insert_id (items, i, NULL));
   }
   if (good) {
      see (stream, 5, 20);
   }
   mongoc_change_stream_destroy (stream);
   mongoc_collection_destroy (items);
   bson_destroy (options);
}

void
failover_change_stream (void)
{
   with_set ("clients_c_failover_change_stream", watch);
}

/* Whether a session finds a document on a secondary. */
static bool
is_on_secondary (mongoc_collection_t *coll, mongoc_client_session_t *session, int id)
{
   const bson_t *document;
   bson_t *filter = BCON_NEW ("_id", BCON_INT32 (id)), *options = bson_new ();
   mongoc_read_prefs_t *secondary = mongoc_read_prefs_new (MONGOC_READ_SECONDARY);
   bool found = mongoc_client_session_append (session, options, &error);
   mongoc_cursor_t *cursor = mongoc_collection_find_with_opts (coll, filter, options, secondary);
   found = found && mongoc_cursor_next (cursor, &document);
   mongoc_cursor_error (cursor, &error);
   mongoc_cursor_destroy (cursor);
   mongoc_read_prefs_destroy (secondary);
   bson_destroy (filter);
   bson_destroy (options);
   return found;
}

static void
read_on_secondary (void)
{
   if (members < 2) {
      printf ("# skipped: the set has one member\n");
      return;
   }
   mongoc_collection_t *items = mongoc_database_get_collection (database, "items");
   mongoc_session_opt_t *consistent = mongoc_session_opts_new ();
   mongoc_session_opts_set_causal_consistency (consistent, true);
   mongoc_client_session_t *session = mongoc_client_start_session (tested, consistent, &error);
   CHECK (session, ": %s", error.message);
   for (int i = 0; i < 20; i++) {
      if (i == 10) {
         CHECK_OK (step_down (&error));
      }
      CHECK_OK (insert_id (items, i, session));
      CHECK (is_on_secondary (items, session, i), ": %d %s", i, error.message);
   }
   mongoc_client_session_destroy (session);
   mongoc_session_opts_destroy (consistent);
   mongoc_collection_destroy (items);
}

void
failover_reads_on_a_secondary (void)
{
   with_set ("clients_c_failover_reads", read_on_secondary);
}

static bool
add (mongoc_client_session_t *session, const char *id, int amount, bson_t **answer, bson_error_t *why)
{
   bson_t reply;
   bson_t *filter = BCON_NEW ("_id", BCON_UTF8 (id)), *options = bson_new ();
   bson_t *change = BCON_NEW ("$inc", "{", "n", BCON_INT32 (amount), "}");
   mongoc_collection_t *accounts = mongoc_database_get_collection (database, "accounts");
   bool done = mongoc_client_session_append (session, options, why);
   if (done) {
      done = mongoc_collection_update_one (accounts, filter, change, options, &reply, why);
      if (!done) {
         *answer = bson_copy (&reply);
      }
      bson_destroy (&reply);
   }
   mongoc_collection_destroy (accounts);
   bson_destroy (filter);
   bson_destroy (options);
   bson_destroy (change);
   return done;
}

static bool
move (mongoc_client_session_t *session, void *context, bson_t **answer, bson_error_t *why)
{
   int *runs = context;
   if (!add (session, "ann", -30, answer, why)) {
      return false;
   }
   if (++*runs == 1 && !step_down (why)) {
      return false;
   }
   return add (session, "bob", 30, answer, why);
}

static void
transact (void)
{
   int runs = 0;
   mongoc_collection_t *accounts = mongoc_database_get_collection (database, "accounts");
   CHECK_OK (mongoc_collection_insert_one (accounts, json ("{\"_id\": \"ann\", \"n\": 100}"), NULL, NULL, &error));
   CHECK_OK (mongoc_collection_insert_one (accounts, json ("{\"_id\": \"bob\", \"n\": 0}"), NULL, NULL, &error));
   mongoc_client_session_t *session = mongoc_client_start_session (tested, NULL, &error);
   CHECK (session, ": %s", error.message);
   CHECK_OK (mongoc_client_session_with_transaction (session, move, NULL, &runs, NULL, &error));
   mongoc_client_session_destroy (session);
   int64_t ann = number_of (accounts, "{\"_id\": \"ann\"}"), bob = number_of (accounts, "{\"_id\": \"bob\"}");
   CHECK (runs > 1 && ann == 70 && bob == 30, ": %d runs, %lld, %lld", runs, (long long) ann, (long long) bob);
   mongoc_collection_destroy (accounts);
}

void
failover_transaction (void)
{
   with_set ("clients_c_failover_transaction", transact);
}
