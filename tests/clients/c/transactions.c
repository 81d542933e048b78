/* Transactions, causal and snapshot sessions of libmongoc; what is expected is listed in ../README.md. */

#include "suite.h"

#include <pthread.h>

#define TRANSIENT "TransientTransactionError"
#define UNKNOWN "UnknownTransactionCommitResult"

/* Two accounts in two databases, and the ways to them. */
static _Thread_local mongoc_client_t *direct, *elsewhere, *proxied;
static _Thread_local int commits, aborts;
/* What the running test loses: the request, the reply, or nothing. It names its clients and collections. */
static _Thread_local const char *when;

static mongoc_collection_t *
account (mongoc_client_t *of, bool second)
{
   return mongoc_client_get_collection (of, second ? "clients_c_b" : "clients_c_a", when);
}

static void
count_commands (const mongoc_apm_command_started_t *event)
{
   const char *name = mongoc_apm_command_started_get_command_name (event);
   commits += strcmp (name, "commitTransaction") == 0;
   aborts += strcmp (name, "abortTransaction") == 0;
}

static mongoc_client_t *
connect_to (const char *variable)
{
   mongoc_client_t *connected = mongoc_client_new (getenv (variable));
   if (!connected) {
      fprintf (stderr, "%s does not name a server\n", variable);
      exit (2);
   }
   mongoc_client_set_error_api (connected, MONGOC_ERROR_API_VERSION_2);
   mongoc_client_set_appname (connected, when);
   return connected;
}

static bool
put (bool second, const char *document)
{
   mongoc_collection_t *coll = account (direct, second);
   mongoc_collection_drop (coll, NULL);
   bool done = mongoc_collection_insert_one (coll, json (document), NULL, NULL, &error);
   mongoc_collection_destroy (coll);
   return done;
}

static void
open_bank (const char *posture, const char *proxy)
{
   direct = connect_to (posture);
   elsewhere = connect_to (posture);
   proxied = connect_to (proxy);
   mongoc_apm_callbacks_t *callbacks = mongoc_apm_callbacks_new ();
   mongoc_apm_set_command_started_cb (callbacks, count_commands);
   mongoc_client_set_apm_callbacks (proxied, callbacks, NULL);
   mongoc_apm_callbacks_destroy (callbacks);
   CHECK_OK (put (false, "{\"_id\": \"ann\", \"n\": 100}"));
   CHECK_OK (put (true, "{\"_id\": \"bob\", \"n\": 0}"));
   commits = aborts = 0;
}

static void
close_bank (void)
{
   mongoc_client_destroy (direct);
   mongoc_client_destroy (elsewhere);
   mongoc_client_destroy (proxied);
}

/* A test on one server, in a thread of its own: the driver comes back half a second after its connection was cut. */
typedef struct {
   const char *posture, *proxy, *when;
   void (*run) (void);
   bool good;
   pthread_t thread;
} case_t;

static void *
run_case (void *context)
{
   case_t *mine = context;
   good = true;
   when = mine->when;
   open_bank (mine->posture, mine->proxy);
   if (good) {
      mine->run ();
   }
   close_bank ();
   mine->good = good;
   return NULL;
}

static void
run_cases (case_t *cases, int count, void (*run) (void))
{
   /* The driver warns of what is expected here. */
   mongoc_log_set_handler (NULL, NULL);
   for (int i = 0; i < count; i++) {
      cases[i].run = run;
      pthread_create (&cases[i].thread, NULL, run_case, &cases[i]);
   }
   for (int i = 0; i < count; i++) {
      pthread_join (cases[i].thread, NULL);
      good = good && cases[i].good;
   }
   mongoc_log_set_handler (mongoc_log_default_handler, NULL);
}

/* Runs a test on both servers. */
static void
on_postures (void (*run) (void))
{
   case_t cases[] = {
      {.posture = "MONGODB_URI", .proxy = "MONGODB_PROXY_URI", .when = "nothing"},
      {.posture = "MONGODB_REPLICA_SET_URI", .proxy = "MONGODB_REPLICA_SET_PROXY_URI", .when = "nothing"},
   };
   run_cases (cases, 2, run);
}

/* Runs a test on both servers, with a request that is lost and with a reply that is lost. */
static void
on_cuts (void (*run) (void))
{
   case_t cases[] = {
      {.posture = "MONGODB_URI", .proxy = "MONGODB_PROXY_URI", .when = "request"},
      {.posture = "MONGODB_URI", .proxy = "MONGODB_PROXY_URI", .when = "reply"},
      {.posture = "MONGODB_REPLICA_SET_URI", .proxy = "MONGODB_REPLICA_SET_PROXY_URI", .when = "request"},
      {.posture = "MONGODB_REPLICA_SET_URI", .proxy = "MONGODB_REPLICA_SET_PROXY_URI", .when = "reply"},
   };
   run_cases (cases, 4, run);
}

/* The options of a statement: its session. */
static bson_t *
within (mongoc_client_session_t *session)
{
   bson_t *options = bson_new ();
   if (session && !mongoc_client_session_append (session, options, &error)) {
      fprintf (stderr, "a session of another client\n");
      exit (2);
   }
   return options;
}

/* One statement; what the server answered goes to `answer`, where its labels are looked for. */
static bool
update (mongoc_client_t *of, mongoc_client_session_t *session, bool second, const char *change, bson_t **answer,
        bson_error_t *why)
{
   bson_t reply;
   mongoc_collection_t *coll = account (of, second);
   bson_t *options = within (session);
   bson_t *filter = json (second ? "{\"_id\": \"bob\"}" : "{\"_id\": \"ann\"}");
   bool done = mongoc_collection_update_one (coll, filter, json (change), options, &reply, why);
   if (!done && answer) {
      *answer = bson_copy (&reply);
   }
   bson_destroy (&reply);
   bson_destroy (options);
   mongoc_collection_destroy (coll);
   return done;
}

static int64_t
first_n (mongoc_collection_t *coll, const char *filter, const bson_t *options)
{
   const bson_t *document;
   mongoc_cursor_t *cursor = mongoc_collection_find_with_opts (coll, json (filter), options, NULL);
   int64_t n = mongoc_cursor_next (cursor, &document) ? field (document, "n") : -2;
   mongoc_cursor_error (cursor, &error);
   mongoc_cursor_destroy (cursor);
   return n;
}

static int64_t
money (mongoc_client_t *of, mongoc_client_session_t *session, bool second)
{
   mongoc_collection_t *coll = account (of, second);
   bson_t *options = within (session);
   int64_t n = first_n (coll, second ? "{\"_id\": \"bob\"}" : "{\"_id\": \"ann\"}", options);
   bson_destroy (options);
   mongoc_collection_destroy (coll);
   return n;
}

static bool
has (mongoc_client_t *of, mongoc_client_session_t *session, int64_t ann, int64_t bob)
{
   int64_t found[] = {money (of, session, false), money (of, session, true)};
   if (found[0] != ann || found[1] != bob) {
      printf ("# got %lld and %lld, want %lld and %lld\n", (long long) found[0], (long long) found[1], (long long) ann,
              (long long) bob);
   }
   return found[0] == ann && found[1] == bob;
}

/* What the body of a transaction does, and how often it ran. */
typedef struct {
   mongoc_client_t *client;
   bool fails;
   int runs;
   const char *when;
} body_t;

static bool
move (mongoc_client_session_t *session, void *context, bson_t **answer, bson_error_t *why)
{
   body_t *body = context;
   body->runs++;
   if (!update (body->client, session, false, "{\"$inc\": {\"n\": -30}}", answer, why)) {
      return false;
   }
   if (!update (body->client, session, true, "{\"$inc\": {\"n\": 30}}", answer, why)) {
      return false;
   }
   if (body->fails) {
      bson_set_error (why, 1000, 1000, "not this time");
   }
   return !body->fails;
}

static bool
move_and_look (mongoc_client_session_t *session, void *context, bson_t **answer, bson_error_t *why)
{
   body_t *body = context;
   return move (session, context, answer, why) && has (body->client, session, 70, 30) && has (elsewhere, NULL, 100, 0);
}

static void
all_or_nothing (void)
{
   mongoc_client_session_t *session = mongoc_client_start_session (direct, NULL, &error);
   CHECK (session, ": %s", error.message);
   body_t body = {.client = direct};
   CHECK_OK (mongoc_client_session_with_transaction (session, move_and_look, NULL, &body, NULL, &error));
   CHECK (has (elsewhere, NULL, 70, 30), " ");
   body.fails = true;
   CHECK_FAILS (1000, mongoc_client_session_with_transaction (session, move, NULL, &body, NULL, &error));
   CHECK (body.runs == 2 && has (elsewhere, NULL, 70, 30), ": %d runs", body.runs);
   mongoc_client_session_destroy (session);
}

void
transaction_is_all_or_nothing (void)
{
   on_postures (all_or_nothing);
}

/* Adds one to what it read. */
static bool
add_one (mongoc_client_session_t *session, void *context, bson_t **answer, bson_error_t *why)
{
   body_t *body = context;
   char change[64];
   mongoc_collection_t *coll = account (body->client, false);
   bson_t *options = within (session);
   bson_t *command = BCON_NEW ("find", BCON_UTF8 (when), "filter", "{", "_id", "ann", "}");
   bson_t reply;
   body->runs++;
   bool done = mongoc_collection_read_command_with_opts (coll, command, NULL, options, &reply, why);
   if (done) {
      snprintf (change, sizeof change, "{\"$set\": {\"n\": %lld}}", (long long) field (&reply, "cursor.firstBatch.0.n") + 1);
      done = update (body->client, session, false, change, answer, why);
   } else {
      *answer = bson_copy (&reply);
   }
   bson_destroy (&reply);
   bson_destroy (command);
   bson_destroy (options);
   mongoc_collection_destroy (coll);
   return done;
}

static void *
count_up (void *context)
{
   body_t *body = context;
   bson_error_t why;
   when = body->when;
   mongoc_client_session_t *session = mongoc_client_start_session (body->client, NULL, &why);
   for (int i = 0; i < 10 && session && !body->fails; i++) {
      body->fails = !mongoc_client_session_with_transaction (session, add_one, NULL, body, NULL, &why);
   }
   if (!session || body->fails) {
      printf ("# %s\n", why.message);
      body->fails = true;
   }
   mongoc_client_session_destroy (session);
   return NULL;
}

static void
conflict (void)
{
   bson_t *answer = NULL;
   mongoc_client_session_t *winner = mongoc_client_start_session (direct, NULL, &error);
   mongoc_client_session_t *loser = mongoc_client_start_session (elsewhere, NULL, &error);
   CHECK (winner && loser, ": %s", error.message);
   CHECK_OK (mongoc_client_session_start_transaction (winner, NULL, &error));
   CHECK_OK (mongoc_client_session_start_transaction (loser, NULL, &error));
   CHECK_OK (update (direct, winner, false, "{\"$inc\": {\"n\": 1}}", &answer, &error));
   CHECK_FAILS (112, update (elsewhere, loser, false, "{\"$inc\": {\"n\": 1}}", &answer, &error));
   CHECK (mongoc_error_has_label (answer, TRANSIENT), " ");
   CHECK_OK (mongoc_client_session_abort_transaction (loser, &error));
   CHECK_OK (mongoc_client_session_commit_transaction (winner, NULL, &error));
   mongoc_client_session_destroy (winner);
   mongoc_client_session_destroy (loser);

   body_t bodies[] = {{.client = direct, .when = when}, {.client = elsewhere, .when = when}};
   pthread_t threads[2];
   for (int i = 0; i < 2; i++) {
      pthread_create (&threads[i], NULL, count_up, &bodies[i]);
   }
   for (int i = 0; i < 2; i++) {
      pthread_join (threads[i], NULL);
   }
   CHECK (!bodies[0].fails && !bodies[1].fails && bodies[0].runs + bodies[1].runs >= 20, " ");
   CHECK (has (direct, NULL, 121, 0), " ");
}

void
loser_of_a_conflict_is_run_again (void)
{
   on_postures (conflict);
}

static void
causal (void)
{
   mongoc_collection_t *mine = account (direct, false), *theirs = account (elsewhere, false);
   mongoc_session_opt_t *consistent = mongoc_session_opts_new ();
   mongoc_session_opts_set_causal_consistency (consistent, true);
   for (int n = 0; n < 20; n++) {
      uint32_t time, increment;
      char filter[32];
      mongoc_client_session_t *writing = mongoc_client_start_session (elsewhere, consistent, &error);
      mongoc_client_session_t *reading = mongoc_client_start_session (direct, consistent, &error);
      CHECK (writing && reading, ": %s", error.message);
      snprintf (filter, sizeof filter, "{\"_id\": %d}", n);
      bson_t *document = BCON_NEW ("_id", BCON_INT32 (n), "n", BCON_INT32 (n));
      bson_t *options = within (writing);
      BCON_APPEND (options, "writeConcern", "{", "w", BCON_INT32 (1), "}");
      CHECK_OK (mongoc_collection_insert_one (theirs, document, options, NULL, &error));
      CHECK (first_n (theirs, filter, within (writing)) == n, ": its own write %d", n);
      mongoc_client_session_advance_cluster_time (reading, mongoc_client_session_get_cluster_time (writing));
      mongoc_client_session_get_operation_time (writing, &time, &increment);
      mongoc_client_session_advance_operation_time (reading, time, increment);
      options = within (reading);
      BCON_APPEND (options, "readConcern", "{", "level", "majority", "}");
      CHECK (first_n (mine, filter, options) == n, ": %d: %s", n, error.message);
      mongoc_client_session_destroy (writing);
      mongoc_client_session_destroy (reading);
   }
   mongoc_session_opts_destroy (consistent);
   mongoc_collection_destroy (mine);
   mongoc_collection_destroy (theirs);
}

void
causal_session (void)
{
   on_postures (causal);
}

static void
snapshot (void)
{
   mongoc_collection_t *theirs = account (elsewhere, false), *mine = account (direct, false);
   mongoc_session_opt_t *of_one_time = mongoc_session_opts_new ();
   mongoc_session_opts_set_snapshot (of_one_time, true);
   mongoc_client_session_t *session = mongoc_client_start_session (direct, of_one_time, &error);
   CHECK (session, ": %s", error.message);
   CHECK (has (direct, session, 100, 0), ": %s", error.message);
   CHECK_OK (update (elsewhere, NULL, false, "{\"$inc\": {\"n\": 5}}", NULL, &error));
   CHECK_OK (update (elsewhere, NULL, true, "{\"$inc\": {\"n\": 7}}", NULL, &error));
   CHECK_OK (mongoc_collection_insert_one (theirs, json ("{\"_id\": 1}"), NULL, NULL, &error));
   CHECK (has (direct, session, 100, 0), ": %s", error.message);
   int64_t count = mongoc_collection_count_documents (mine, json ("{}"), within (session), NULL, NULL, &error);
   CHECK (count == 1, ": %lld %s", (long long) count, error.message);
   CHECK (has (direct, NULL, 105, 7), " ");
   mongoc_client_session_destroy (session);
   mongoc_session_opts_destroy (of_one_time);
   mongoc_collection_destroy (theirs);
   mongoc_collection_destroy (mine);
}

void
snapshot_session (void)
{
   on_postures (snapshot);
}

/* Asks the proxy for cuts, and gives how many there have been. */
static int64_t
cut (const char *name, int times)
{
   bson_t reply;
   char what[64];
   snprintf (what, sizeof what, "%s %s %d", when, name, times);
   bson_t *command = BCON_NEW ("cut", BCON_UTF8 (times ? what : "nothing"));
   int64_t cuts = -1;
   if (mongoc_client_command_simple (proxied, "admin", command, NULL, &reply, &error)) {
      cuts = field (&reply, "cuts");
   }
   bson_destroy (&reply);
   bson_destroy (command);
   return cuts;
}

static void
commit_again (void)
{
   body_t body = {.client = proxied};
   mongoc_client_session_t *session = mongoc_client_start_session (proxied, NULL, &error);
   CHECK_OK (mongoc_client_session_start_transaction (session, NULL, &error));
   CHECK_OK (move (session, &body, NULL, &error));
   int64_t before = cut ("commitTransaction", 1);
   CHECK_OK (mongoc_client_session_commit_transaction (session, NULL, &error));
   CHECK (cut ("", 0) - before == 1 && commits == 2, ": %s, %d commits", when, commits);
   CHECK (has (elsewhere, NULL, 70, 30), ": %s", when);
   mongoc_client_session_destroy (session);
}

void
commit_is_tried_again (void)
{
   on_cuts (commit_again);
}

static void
unknown_result (void)
{
   bson_t reply;
   body_t body = {.client = proxied};
   mongoc_client_session_t *session = mongoc_client_start_session (proxied, NULL, &error);
   CHECK_OK (mongoc_client_session_start_transaction (session, NULL, &error));
   CHECK_OK (move (session, &body, NULL, &error));
   cut ("commitTransaction", 2);
   CHECK (!mongoc_client_session_commit_transaction (session, &reply, &error), ": %s", when);
   CHECK (mongoc_error_has_label (&reply, UNKNOWN) && !mongoc_error_has_label (&reply, TRANSIENT), ": %s", when);
   CHECK_OK (mongoc_client_session_commit_transaction (session, NULL, &error));
   CHECK (has (elsewhere, NULL, 70, 30), ": %s", when);

   body.runs = 0;
   int64_t before = cut ("commitTransaction", 3);
   CHECK_OK (mongoc_client_session_with_transaction (session, move, NULL, &body, NULL, &error));
   CHECK (cut ("", 0) - before == 3 && body.runs == 1, ": %s, %d runs", when, body.runs);
   CHECK (has (elsewhere, NULL, 40, 60), ": %s", when);
   mongoc_client_session_destroy (session);
}

void
result_of_a_commit_is_unknown (void)
{
   on_cuts (unknown_result);
}

static void
abort_once (void)
{
   body_t body = {.client = proxied};
   mongoc_client_session_t *session = mongoc_client_start_session (proxied, NULL, &error);
   CHECK_OK (mongoc_client_session_start_transaction (session, NULL, &error));
   CHECK_OK (move (session, &body, NULL, &error));
   int64_t before = cut ("abortTransaction", 1);
   CHECK_OK (mongoc_client_session_abort_transaction (session, &error));
   CHECK (cut ("", 0) - before == 1 && aborts == 2, ": %s, %d aborts", when, aborts);
   /* It waits for no transaction that is still open. */
   CHECK_OK (update (elsewhere, NULL, false, "{\"$inc\": {\"n\": 1}}", NULL, &error));
   CHECK (has (elsewhere, NULL, 101, 0), ": %s", when);
   mongoc_client_session_destroy (session);
}

void
abort_leaves_nothing (void)
{
   on_cuts (abort_once);
}

static void
lose_a_statement (void)
{
   body_t body = {.client = proxied};
   mongoc_client_session_t *session = mongoc_client_start_session (proxied, NULL, &error);
   cut ("update", 1);
   CHECK_OK (mongoc_client_session_with_transaction (session, move, NULL, &body, NULL, &error));
   CHECK (body.runs == 2 && has (elsewhere, NULL, 70, 30), ": %s, %d runs", when, body.runs);
   mongoc_client_session_destroy (session);
}

void
statement_is_lost (void)
{
   on_cuts (lose_a_statement);
}
