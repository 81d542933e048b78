/* What the tests of the suite share. */

#ifndef SUITE_H
#define SUITE_H

#include <mongoc/mongoc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The last error of the thread, and whether its test is good so far. */
extern _Thread_local bson_error_t error;
extern _Thread_local bool good;

#define CHECK(condition, ...)                                                                  \
   do {                                                                                        \
      if (!(condition)) {                                                                      \
         good = false;                                                                         \
         printf ("# %s:%d: %s", __FILE__, __LINE__, #condition);                               \
         printf (__VA_ARGS__);                                                                 \
         printf ("\n");                                                                        \
         return;                                                                               \
      }                                                                                        \
   } while (0)

#define CHECK_OK(call)                                                                         \
   CHECK (call, ": %d.%u %s", (int) error.domain, error.code, error.message)

#define CHECK_FAILS(expected, call)                                                            \
   CHECK (!(call) && error.code == (expected), ": %u %s", error.code, error.message)

/* Documents live until the end of the program: it is short. */
bson_t *json (const char *text);

/* A number in a document, -1 where there is none. */
int64_t field (const bson_t *document, const char *path);

/* Of authorization.c. */
void authorization (void);

/* Of encryption.c. */
void encryption (void);

/* Of failover.c. */
void failover_writers (void);
void failover_change_stream (void);
void failover_reads_on_a_secondary (void);
void failover_transaction (void);

/* Of search.c. */
void search (void);

/* Of transactions.c. */
void transaction_is_all_or_nothing (void);
void loser_of_a_conflict_is_run_again (void);
void causal_session (void);
void snapshot_session (void);
void commit_is_tried_again (void);
void result_of_a_commit_is_unknown (void);
void abort_leaves_nothing (void);
void statement_is_lost (void);

#endif
