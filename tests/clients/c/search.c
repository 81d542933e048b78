/* Search indexes by their commands and stages: this version of libmongoc has no helpers for them. */

#include "suite.h"

#include <time.h>

#define WAIT_SECS 60

/* What a pipeline gives, each document in a line. The string belongs to the caller; NULL after an error. */
static char *
lines_of (mongoc_collection_t *coll, const char *pipeline)
{
   mongoc_cursor_t *cursor = mongoc_collection_aggregate (coll, MONGOC_QUERY_NONE, json (pipeline), NULL, NULL);
   bson_string_t *lines = bson_string_new ("");
   const bson_t *document;
   while (mongoc_cursor_next (cursor, &document)) {
      char *line = bson_as_relaxed_extended_json (document, NULL);
      bson_string_append_printf (lines, "%s\n", line);
      bson_free (line);
   }
   bool failed = mongoc_cursor_error (cursor, &error);
   mongoc_cursor_destroy (cursor);
   return bson_string_free (lines, failed);
}

static bool
gives (mongoc_collection_t *coll, const char *pipeline, const char *expected)
{
   char *lines = lines_of (coll, pipeline);
   bool equal = lines && strcmp (lines, expected) == 0;
   if (!equal) {
      printf ("# got %s\n# want %s\n", lines ? lines : error.message, expected);
   }
   bson_free (lines);
   return equal;
}

/* Waits until a pipeline that reads the listing gives this. */
static bool
becomes (mongoc_collection_t *coll, const char *pipeline, const char *expected)
{
   const struct timespec pause = {0, 10 * 1000 * 1000};
   for (time_t deadline = time (NULL) + WAIT_SECS; time (NULL) < deadline; nanosleep (&pause, NULL)) {
      char *lines = lines_of (coll, pipeline);
      bool equal = lines && strcmp (lines, expected) == 0;
      bson_free (lines);
      if (equal) {
         return true;
      }
   }
   return gives (coll, pipeline, expected);
}

#define COMMAND(text) mongoc_collection_write_command_with_opts (coll, json (text), NULL, NULL, &error)
#define INSERT(text) mongoc_collection_insert_one (coll, json (text), NULL, NULL, &error)
#define LISTING                                                                                \
   "[{\"$listSearchIndexes\": {}}, {\"$project\": {\"_id\": 0, \"name\": 1, \"type\": 1, "     \
   "\"ready\": {\"$and\": [\"$queryable\", {\"$eq\": [\"$status\", \"READY\"]}]}, "            \
   "\"version\": \"$latestDefinitionVersion.version\"}}]"
#define ID ", {\"$project\": {\"_id\": 1}}]"
#define WORDS(query) "[{\"$search\": {\"text\": {\"path\": \"title\", \"query\": \"" query "\"}}}" ID

static void
search_in (mongoc_collection_t *coll)
{
   CHECK_OK (INSERT ("{\"_id\": 1, \"title\": \"a red pen\", \"kind\": \"thing\", \"v\": [1, 0]}"));
   CHECK_OK (INSERT ("{\"_id\": 2, \"title\": \"blue ink\", \"kind\": \"stuff\", \"v\": [0, 1]}"));
   CHECK_OK (COMMAND ("{\"createSearchIndexes\": \"search\", \"indexes\": ["
                      "{\"definition\": {\"mappings\": {\"dynamic\": true}}}, "
                      "{\"name\": \"near\", \"type\": \"vectorSearch\", \"definition\": {\"fields\": ["
                      "{\"type\": \"vector\", \"path\": \"v\", \"numDimensions\": 2, \"similarity\": \"euclidean\"}, "
                      "{\"type\": \"filter\", \"path\": \"kind\"}]}}]}"));
   CHECK (becomes (coll, LISTING,
                   "{ \"name\" : \"default\", \"type\" : \"search\", \"ready\" : true, \"version\" : 0 }\n"
                   "{ \"name\" : \"near\", \"type\" : \"vectorSearch\", \"ready\" : true, \"version\" : 0 }\n"), " ");

   CHECK (gives (coll, WORDS ("ink"), "{ \"_id\" : 2 }\n"), " ");
   CHECK_OK (INSERT ("{\"_id\": 3, \"title\": \"ink, more ink\", \"kind\": \"stuff\", \"v\": [1, 1]}"));
   CHECK (gives (coll, WORDS ("ink"), "{ \"_id\" : 3 }\n{ \"_id\" : 2 }\n"), " ");
   CHECK (gives (coll, "[{\"$searchMeta\": {\"exists\": {\"path\": \"title\"}, \"count\": {\"type\": \"total\"}}}]",
                 "{ \"count\" : { \"total\" : 3 } }\n"), " ");
   /* The score by euclidean distance is 1 / (1 + its square). */
   CHECK (gives (coll, "[{\"$vectorSearch\": {\"index\": \"near\", \"path\": \"v\", \"queryVector\": [1, 0], "
                       "\"numCandidates\": 10, \"limit\": 2}}, "
                       "{\"$project\": {\"score\": {\"$meta\": \"vectorSearchScore\"}}}]",
                 "{ \"_id\" : 1, \"score\" : 1.0 }\n{ \"_id\" : 3, \"score\" : 0.5 }\n"), " ");
   CHECK (gives (coll, "[{\"$vectorSearch\": {\"index\": \"near\", \"path\": \"v\", \"queryVector\": [1, 0], "
                       "\"exact\": true, \"limit\": 1, \"filter\": {\"kind\": \"stuff\"}}}" ID,
                 "{ \"_id\" : 3 }\n"), " ");

   CHECK (gives (coll, WORDS ("pens"), ""), " ");
   CHECK_OK (COMMAND ("{\"updateSearchIndex\": \"search\", \"name\": \"default\", \"definition\": "
                      "{\"mappings\": {\"dynamic\": true}, \"analyzer\": \"lucene.english\"}}"));
   CHECK_OK (COMMAND ("{\"dropSearchIndex\": \"search\", \"name\": \"near\"}"));
   CHECK (becomes (coll, LISTING, "{ \"name\" : \"default\", \"type\" : \"search\", \"ready\" : true, \"version\" : 1 }\n"), " ");
   CHECK (gives (coll, WORDS ("pens"), "{ \"_id\" : 1 }\n"), " ");
   CHECK_FAILS (27, COMMAND ("{\"dropSearchIndex\": \"search\", \"name\": \"near\"}"));
}

void
search (void)
{
   mongoc_client_t *client = mongoc_client_new (getenv ("MONGODB_URI"));
   mongoc_client_set_error_api (client, MONGOC_ERROR_API_VERSION_2);
   mongoc_collection_t *coll = mongoc_client_get_collection (client, "clients_c", "search");
   search_in (coll);
   mongoc_collection_destroy (coll);
   mongoc_client_destroy (client);
}
