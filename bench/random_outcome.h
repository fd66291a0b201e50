/* What became of a drawn case: read from what its `lockstep verify` has left. */
#ifndef LS_BENCH_RANDOM_OUTCOME_H
#define LS_BENCH_RANDOM_OUTCOME_H

#include <jansson.h>

#include "verify/check.h"

typedef struct ls_random_outcome {
    ls_status status;
    char reason[512]; /* one line for all but PASSED */
    char *told;       /* FAILED: what the verification says of it, lines; NULL: nothing. Owned */
    json_t *rows;     /* of the case, and of `single` as its yardstick; owned */
    double seconds;
} ls_random_outcome;

/* status: as of waitpid; out, error, json: paths of the command's output. The worst of its rows counts, since the yardstick is
 * correct code too; a command that ended in another way than its rows say is FAILED. */
void ls_random_outcome_read(int status, const char *out, const char *error, const char *json,
                            ls_random_outcome *outcome);
void ls_random_outcome_free(ls_random_outcome *outcome);

#endif
