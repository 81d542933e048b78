/* libmongoc against a running server; what is expected is listed in ../README.md. Prints TAP. */

#include "suite.h"

#include <time.h>

#define DATABASE "clients_c"

static mongoc_client_t *client;
static mongoc_collection_t *coll;
_Thread_local bson_error_t error;
_Thread_local bool good;

bson_t *
json (const char *text)
{
   bson_error_t why;
   bson_t *document = bson_new_from_json ((const uint8_t *) text, -1, &why);
   if (!document) {
      fprintf (stderr, "bad JSON: %s: %s\n", text, why.message);
      exit (2);
   }
   return document;
}

int64_t
field (const bson_t *document, const char *path)
{
   bson_iter_t start, found;
   if (bson_iter_init (&start, document) && bson_iter_find_descendant (&start, path, &found)) {
      return bson_iter_as_int64 (&found);
   }
   return -1;
}

static bool
same (const bson_t *document, const char *text)
{
   char *left = bson_as_relaxed_extended_json (document, NULL);
   char *right = bson_as_relaxed_extended_json (json (text), NULL);
   bool equal = strcmp (left, right) == 0;
   if (!equal) {
      printf ("# got %s, want %s\n", left, right);
   }
   bson_free (left);
   bson_free (right);
   return equal;
}

static bool
insert_numbers (mongoc_collection_t *into, int count, const char *text)
{
   mongoc_bulk_operation_t *bulk = mongoc_collection_create_bulk_operation_with_opts (into, NULL);
   bson_t reply;
   for (int i = 0; i < count; i++) {
      bson_t *document = BCON_NEW ("_id", BCON_INT32 (i), "n", BCON_INT32 (i * 10), "mod",
                                   BCON_INT32 (i % 3), "text", BCON_UTF8 (text));
      mongoc_bulk_operation_insert (bulk, document);
      bson_destroy (document);
   }
   bool done = mongoc_bulk_operation_execute (bulk, &reply, &error) != 0;
   done = done && field (&reply, "nInserted") == count;
   bson_destroy (&reply);
   mongoc_bulk_operation_destroy (bulk);
   return done;
}

static int64_t
count_documents (const char *filter)
{
   return mongoc_collection_count_documents (coll, json (filter), NULL, NULL, NULL, &error);
}

static void
ping_and_build_info (void)
{
   bson_t reply;
   CHECK_OK (mongoc_client_command_simple (client, "admin", json ("{\"ping\": 1}"), NULL, &reply, &error));
   CHECK_OK (mongoc_client_command_simple (client, "admin", json ("{\"buildInfo\": 1}"), NULL, &reply, &error));
   bson_iter_t version;
   CHECK (bson_iter_init_find (&version, &reply, "version") && BSON_ITER_HOLDS_UTF8 (&version), " ");
   CHECK (strncmp (bson_iter_utf8 (&version, NULL), "8.", 2) == 0, " ");
}

static void
compression (void)
{
   static const char *names[] = {"zlib", "snappy", "zstd"};
   char text[20001];
   memset (text, 'x', sizeof text - 1);
   text[sizeof text - 1] = 0;
   for (int i = 0; i < 3; i++) {
      mongoc_uri_t *uri = mongoc_uri_new (getenv ("MONGODB_URI"));
      CHECK (mongoc_uri_set_compressors (uri, names[i]), ": %s", names[i]);
      mongoc_client_t *compressed = mongoc_client_new_from_uri (uri);
      mongoc_collection_t *other = mongoc_client_get_collection (compressed, DATABASE, "compressed");
      mongoc_collection_drop (other, NULL);
      CHECK_OK (insert_numbers (other, 20, text));
      mongoc_cursor_t *cursor = mongoc_collection_find_with_opts (other, json ("{}"), NULL, NULL);
      const bson_t *document;
      int seen = 0;
      while (mongoc_cursor_next (cursor, &document)) {
         seen++;
      }
      CHECK (!mongoc_cursor_error (cursor, &error), ": %s", error.message);
      CHECK (seen == 20, ": %d", seen);
      mongoc_cursor_destroy (cursor);
      mongoc_collection_destroy (other);
      mongoc_client_destroy (compressed);
      mongoc_uri_destroy (uri);
   }
}

static void
insert (void)
{
   bson_t reply;
   CHECK_OK (mongoc_collection_insert_one (coll, json ("{\"name\": \"ann\"}"), NULL, &reply, &error));
   CHECK (field (&reply, "insertedCount") == 1, " ");
   CHECK_OK (insert_numbers (coll, 10, ""));
   CHECK (count_documents ("{}") == 11, ": %s", error.message);
}

static void
unordered_bulk_reports_the_duplicate (void)
{
   bson_t reply;
   const bson_t *documents[] = {json ("{\"_id\": 1}"), json ("{\"_id\": 1}"), json ("{\"_id\": 2}")};
   bson_t *unordered = json ("{\"ordered\": false}");
   CHECK_FAILS (11000, mongoc_collection_insert_many (coll, documents, 3, unordered, &reply, &error));
   CHECK (field (&reply, "insertedCount") == 2, " ");
   CHECK (field (&reply, "writeErrors.0.index") == 1, " ");
   CHECK (field (&reply, "writeErrors.0.code") == 11000, " ");
   CHECK (field (&reply, "writeErrors.1.index") == -1, " ");
   CHECK (count_documents ("{}") == 2, " ");
}

static void
find (void)
{
   static const char *expected[] = {"{\"n\": 160}", "{\"n\": 130}", "{\"n\": 100}"};
   CHECK_OK (insert_numbers (coll, 20, ""));
   mongoc_cursor_t *cursor = mongoc_collection_find_with_opts (
      coll, json ("{\"mod\": 1, \"n\": {\"$gte\": 40}}"),
      json ("{\"projection\": {\"_id\": 0, \"n\": 1}, \"sort\": {\"n\": -1}, \"skip\": 1, \"limit\": 3}"), NULL);
   const bson_t *document;
   int seen = 0;
   while (mongoc_cursor_next (cursor, &document)) {
      CHECK (seen < 3 && same (document, expected[seen]), " ");
      seen++;
   }
   CHECK (!mongoc_cursor_error (cursor, &error), ": %s", error.message);
   CHECK (seen == 3, ": %d", seen);
   mongoc_cursor_destroy (cursor);
}

static bool
first_is (const char *filter, const char *expected)
{
   const bson_t *document;
   mongoc_cursor_t *cursor = mongoc_collection_find_with_opts (coll, json (filter), NULL, NULL);
   bool equal = mongoc_cursor_next (cursor, &document) && same (document, expected);
   mongoc_cursor_destroy (cursor);
   return equal;
}

static void
update (void)
{
   bson_t reply;
   CHECK_OK (insert_numbers (coll, 5, "x"));
   bson_t *change = json ("{\"$set\": {\"name\": \"three\"}, \"$inc\": {\"n\": 10}, \"$unset\": {\"text\": 1}, "
                          "\"$push\": {\"tags\": \"b\"}}");
   CHECK_OK (mongoc_collection_update_one (coll, json ("{\"_id\": 3}"), change, NULL, &reply, &error));
   CHECK (field (&reply, "matchedCount") == 1 && field (&reply, "modifiedCount") == 1, " ");
   CHECK (first_is ("{\"_id\": 3}", "{\"_id\": 3, \"n\": 40, \"mod\": 0, \"name\": \"three\", \"tags\": [\"b\"]}"), " ");
   bson_t *increment = json ("{\"$inc\": {\"n\": 1}}");
   CHECK_OK (mongoc_collection_update_many (coll, json ("{\"n\": {\"$lt\": 25}}"), increment, NULL, &reply, &error));
   CHECK (field (&reply, "matchedCount") == 3 && field (&reply, "modifiedCount") == 3, " ");
}

static void
replace_and_upsert (void)
{
   bson_t reply;
   bson_t *upsert = json ("{\"upsert\": true}");
   CHECK_OK (mongoc_collection_insert_one (coll, json ("{\"_id\": 1, \"a\": 1}"), NULL, NULL, &error));
   CHECK_OK (mongoc_collection_replace_one (coll, json ("{\"_id\": 1}"), json ("{\"c\": 3}"), NULL, &reply, &error));
   CHECK (field (&reply, "modifiedCount") == 1 && first_is ("{}", "{\"_id\": 1, \"c\": 3}"), " ");
   bson_t *set = json ("{\"$set\": {\"v\": 1}}");
   CHECK_OK (mongoc_collection_update_one (coll, json ("{\"key\": \"k\"}"), set, upsert, &reply, &error));
   CHECK (field (&reply, "upsertedCount") == 1 && bson_has_field (&reply, "upsertedId"), " ");
   CHECK_OK (mongoc_collection_update_one (coll, json ("{\"key\": \"k\"}"), set, upsert, &reply, &error));
   CHECK (field (&reply, "matchedCount") == 1 && field (&reply, "modifiedCount") == 0, " ");
}

static void
delete_one_and_many (void)
{
   bson_t reply;
   CHECK_OK (insert_numbers (coll, 9, ""));
   CHECK_OK (mongoc_collection_delete_one (coll, json ("{\"mod\": 1}"), NULL, &reply, &error));
   CHECK (field (&reply, "deletedCount") == 1, " ");
   CHECK_OK (mongoc_collection_delete_many (coll, json ("{\"mod\": 1}"), NULL, &reply, &error));
   CHECK (field (&reply, "deletedCount") == 2, " ");
   CHECK (count_documents ("{}") == 6, " ");
}

static void
read_all (int count, const char *options)
{
   const bson_t *document;
   mongoc_cursor_t *cursor = mongoc_collection_find_with_opts (coll, json ("{}"), json (options), NULL);
   int seen = 0;
   while (mongoc_cursor_next (cursor, &document)) {
      CHECK (field (document, "_id") == seen, ": %d", seen);
      seen++;
   }
   CHECK (!mongoc_cursor_error (cursor, &error), ": %s", error.message);
   CHECK (seen == count, ": %d", seen);
   mongoc_cursor_destroy (cursor);
}

static void
small_batches (void)
{
   CHECK_OK (insert_numbers (coll, 1000, ""));
   read_all (1000, "{\"batchSize\": 7, \"sort\": {\"_id\": 1}}");
   const bson_t *document;
   mongoc_cursor_t *abandoned = mongoc_collection_find_with_opts (coll, json ("{}"), json ("{\"batchSize\": 7}"), NULL);
   CHECK (mongoc_cursor_next (abandoned, &document) && mongoc_cursor_get_id (abandoned) != 0, " ");
   mongoc_cursor_destroy (abandoned);
}

static void
default_batches (void)
{
   CHECK_OK (insert_numbers (coll, 20000, "xxxxxxxxxxxxxxxxxxxx"));
   read_all (20000, "{\"sort\": {\"_id\": 1}}");
}

static void
counts (void)
{
   CHECK_OK (insert_numbers (coll, 30, ""));
   CHECK (count_documents ("{\"mod\": 1}") == 10, ": %s", error.message);
   CHECK (mongoc_collection_estimated_document_count (coll, NULL, NULL, NULL, &error) == 30, ": %s", error.message);
}

static void
aggregate (void)
{
   static const char *expected[] = {"{\"_id\": 1, \"total\": 700}", "{\"_id\": 0, \"total\": 630}"};
   CHECK_OK (insert_numbers (coll, 30, ""));
   bson_t *pipeline = json ("{\"pipeline\": [{\"$match\": {\"n\": {\"$lt\": 200}}}, "
                            "{\"$group\": {\"_id\": \"$mod\", \"total\": {\"$sum\": \"$n\"}}}, "
                            "{\"$sort\": {\"total\": -1}}, {\"$limit\": 2}]}");
   mongoc_cursor_t *cursor = mongoc_collection_aggregate (coll, MONGOC_QUERY_NONE, pipeline, NULL, NULL);
   const bson_t *document;
   int seen = 0;
   while (mongoc_cursor_next (cursor, &document)) {
      CHECK (seen < 2 && same (document, expected[seen]), " ");
      seen++;
   }
   CHECK (!mongoc_cursor_error (cursor, &error), ": %s", error.message);
   CHECK (seen == 2, ": %d", seen);
   mongoc_cursor_destroy (cursor);
}

static bool
listed (char **names, const char *name)
{
   bool found = false;
   for (int i = 0; names && names[i]; i++) {
      found = found || strcmp (names[i], name) == 0;
   }
   bson_strfreev (names);
   return found;
}

static void
catalog (void)
{
   CHECK_OK (insert_numbers (coll, 1, ""));
   CHECK (listed (mongoc_client_get_database_names_with_opts (client, NULL, &error), DATABASE), " ");
   mongoc_database_t *database = mongoc_client_get_database (client, DATABASE);
   CHECK (listed (mongoc_database_get_collection_names_with_opts (database, NULL, &error), "catalog"), " ");
   CHECK_OK (mongoc_collection_drop (coll, &error));
   CHECK (!listed (mongoc_database_get_collection_names_with_opts (database, NULL, &error), "catalog"), " ");
   mongoc_database_destroy (database);
}

/* The driver's helper leaves a negative number of seconds out. */
static bool
create_index (const char *key, bool unique, int32_t expire_after_seconds)
{
   mongoc_index_opt_t options;
   mongoc_index_opt_init (&options);
   options.unique = unique;
   options.expire_after_seconds = expire_after_seconds;
   return mongoc_collection_create_index_with_opts (coll, json (key), &options, NULL, NULL, &error);
}

static void
ttl_index (void)
{
   CHECK_OK (create_index ("{\"at\": 1}", false, 3600));
   mongoc_cursor_t *cursor = mongoc_collection_find_indexes_with_opts (coll, NULL);
   const bson_t *index;
   bson_iter_t seconds;
   int seen = 0;
   while (mongoc_cursor_next (cursor, &index)) {
      if (bson_iter_init_find (&seconds, index, "expireAfterSeconds")) {
         CHECK (BSON_ITER_HOLDS_INT32 (&seconds) && bson_iter_int32 (&seconds) == 3600, " ");
         seen++;
      }
   }
   CHECK (!mongoc_cursor_error (cursor, &error), ": %s", error.message);
   CHECK (seen == 1, ": %d", seen);
   mongoc_cursor_destroy (cursor);
}

static int64_t
ttl_metric (const char *path)
{
   bson_t reply;
   int64_t value = -1;
   if (mongoc_client_command_simple (client, "admin", json ("{\"serverStatus\": 1}"), NULL, &reply, &error)) {
      value = field (&reply, path);
   }
   bson_destroy (&reply);
   return value;
}

static void
wait_for_passes (int more)
{
   const struct timespec pause = {0, 50 * 1000 * 1000};
   int64_t target = ttl_metric ("metrics.ttl.passes") + more;
   time_t deadline = time (NULL) + 30;
   while (ttl_metric ("metrics.ttl.passes") < target) {
      CHECK (time (NULL) < deadline, ": no %d passes in 30 s", more);
      nanosleep (&pause, NULL);
   }
}

static void
ttl_deletion (void)
{
   CHECK_OK (create_index ("{\"at\": 1}", false, 60));
   bson_t *faster = json ("{\"setParameter\": 1, \"ttlMonitorSleepSecs\": 1}");
   CHECK_OK (mongoc_client_command_simple (client, "admin", faster, NULL, NULL, &error));
   wait_for_passes (1);
   int64_t before = ttl_metric ("metrics.ttl.deletedDocuments");
   int64_t now = (int64_t) time (NULL) * 1000;
   for (int i = 0; i < 25; i++) {
      bson_t *due = BCON_NEW ("_id", BCON_INT32 (i), "at", BCON_DATE_TIME (now - (61 + i) * 1000));
      CHECK_OK (mongoc_collection_insert_one (coll, due, NULL, NULL, &error));
   }
   bson_t *kept[] = {
      BCON_NEW ("_id", BCON_INT32 (100), "at", BCON_DATE_TIME (now)),
      BCON_NEW ("_id", BCON_INT32 (101), "at", BCON_DATE_TIME (now + 3600 * 1000)),
      BCON_NEW ("_id", BCON_INT32 (102), "at", BCON_UTF8 ("2001-01-01")),
      BCON_NEW ("_id", BCON_INT32 (103), "at", BCON_INT64 (0)),
      BCON_NEW ("_id", BCON_INT32 (104)),
   };
   for (int i = 0; i < 5; i++) {
      CHECK_OK (mongoc_collection_insert_one (coll, kept[i], NULL, NULL, &error));
   }
   wait_for_passes (2);
   CHECK (count_documents ("{\"_id\": {\"$gte\": 100}}") == 5, " ");
   CHECK (count_documents ("{}") == 5, " ");
   int64_t deleted = ttl_metric ("metrics.ttl.deletedDocuments") - before;
   CHECK (deleted == 25, ": %lld", (long long) deleted);
}

static bool
code_name_is (const bson_t *reply, const char *expected)
{
   bson_iter_t name;
   return bson_iter_init_find (&name, reply, "codeName") && strcmp (bson_iter_utf8 (&name, NULL), expected) == 0;
}

static void
duplicate_key (void)
{
   bson_t reply;
   CHECK_OK (create_index ("{\"email\": 1}", true, -1));
   CHECK_OK (mongoc_collection_insert_one (coll, json ("{\"_id\": 1, \"email\": \"a\"}"), NULL, NULL, &error));
   CHECK_FAILS (11000, mongoc_collection_insert_one (coll, json ("{\"_id\": 2, \"email\": \"a\"}"), NULL, &reply, &error));
   CHECK (field (&reply, "writeErrors.0.keyPattern.email") == 1, " ");
   CHECK_OK (mongoc_collection_insert_one (coll, json ("{\"twice\": 1, \"email\": 1}"), NULL, NULL, &error));
   CHECK_OK (mongoc_collection_insert_one (coll, json ("{\"twice\": 1, \"email\": 2}"), NULL, NULL, &error));
   CHECK_FAILS (11000, create_index ("{\"twice\": 1}", true, -1));
   CHECK (strstr (error.message, "E11000 duplicate key error"), ": %s", error.message);
}

static void
unknown_command (void)
{
   bson_t reply;
   bson_t *command = json ("{\"noSuchCommand\": 1}");
   CHECK_FAILS (59, mongoc_client_command_simple (client, DATABASE, command, NULL, &reply, &error));
   CHECK (code_name_is (&reply, "CommandNotFound"), " ");
}

static void
index_errors (void)
{
   CHECK_OK (create_index ("{\"at\": 1}", false, 60));
   CHECK_FAILS (85, create_index ("{\"at\": 1}", false, 61));
   bson_t *negative = json ("{\"createIndexes\": \"index_errors\", "
                            "\"indexes\": [{\"key\": {\"x\": 1}, \"name\": \"x_1\", \"expireAfterSeconds\": -1}]}");
   CHECK_FAILS (67, mongoc_client_command_simple (client, DATABASE, negative, NULL, NULL, &error));
}

static void
write_and_query_errors (void)
{
   const bson_t *document;
   bson_t *one = json ("{\"_id\": 1}");
   CHECK_OK (mongoc_collection_insert_one (coll, json ("{\"_id\": 1, \"text\": \"x\"}"), NULL, NULL, &error));
   CHECK_FAILS (14, mongoc_collection_update_one (coll, one, json ("{\"$inc\": {\"text\": 1}}"), NULL, NULL, &error));
   mongoc_cursor_t *cursor = mongoc_collection_find_with_opts (coll, json ("{\"a\": {\"$noSuchOperator\": 1}}"), NULL, NULL);
   CHECK (!mongoc_cursor_next (cursor, &document), " ");
   CHECK (mongoc_cursor_error (cursor, &error) && error.code == 2, ": %u %s", error.code, error.message);
   mongoc_cursor_destroy (cursor);
}

static const struct {
   const char *name;
   void (*run) (void);
} tests[] = {
   {"ping_and_build_info", ping_and_build_info},
   {"compression", compression},
   {"insert", insert},
   {"unordered_bulk_reports_the_duplicate", unordered_bulk_reports_the_duplicate},
   {"find", find},
   {"update", update},
   {"replace_and_upsert", replace_and_upsert},
   {"delete", delete_one_and_many},
   {"small_batches", small_batches},
   {"default_batches", default_batches},
   {"counts", counts},
   {"aggregate", aggregate},
   {"catalog", catalog},
   {"ttl_index", ttl_index},
   {"ttl_deletion", ttl_deletion},
   {"duplicate_key", duplicate_key},
   {"unknown_command", unknown_command},
   {"index_errors", index_errors},
   {"write_and_query_errors", write_and_query_errors},
   {"transaction_is_all_or_nothing", transaction_is_all_or_nothing},
   {"loser_of_a_conflict_is_run_again", loser_of_a_conflict_is_run_again},
   {"causal_session", causal_session},
   {"snapshot_session", snapshot_session},
   {"commit_is_tried_again", commit_is_tried_again},
   {"result_of_a_commit_is_unknown", result_of_a_commit_is_unknown},
   {"abort_leaves_nothing", abort_leaves_nothing},
   {"statement_is_lost", statement_is_lost},
   {"authorization", authorization},
   {"encryption", encryption},
   {"failover_writers", failover_writers},
   {"failover_change_stream", failover_change_stream},
   {"failover_reads_on_a_secondary", failover_reads_on_a_secondary},
   {"failover_transaction", failover_transaction},
   {"search", search},
};

int
main (void)
{
   const int count = sizeof tests / sizeof tests[0];
   int passed = 0;
   mongoc_init ();
   client = mongoc_client_new (getenv ("MONGODB_URI"));
   if (!client) {
      fprintf (stderr, "MONGODB_URI does not name a server\n");
      return 2;
   }
   mongoc_client_set_error_api (client, MONGOC_ERROR_API_VERSION_2);
   printf ("1..%d\n", count);
   for (int i = 0; i < count; i++) {
      coll = mongoc_client_get_collection (client, DATABASE, tests[i].name);
      mongoc_collection_drop (coll, NULL);
      good = true;
      tests[i].run ();
      passed += good;
      printf ("%s %d - %s\n", good ? "ok" : "not ok", i + 1, tests[i].name);
      fflush (stdout);
      mongoc_collection_destroy (coll);
   }
   mongoc_client_destroy (client);
   mongoc_cleanup ();
   printf ("%d passed, %d failed\n", passed, count - passed);
   return passed == count ? 0 : 1;
}
