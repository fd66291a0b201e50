#include "bench/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/unpacked.h"
#include "impls/impl.h"
#include "impls/launch.h"
#include "verify/check.h"

struct ls_replayer {
    ls_dataset data;
    ls_unpacked unpacked;
    ls_oracle_cache *oracle;
};

const char *ls_replayer_data(const ls_replayer *replayer) {
    return replayer->unpacked.data;
}

ls_rc ls_replayer_open(const char *program, const char *data, ls_replayer **out) {
    ls_replayer *replayer = ls_calloc(1, sizeof *replayer, "the replays of a sweep");
    if (replayer == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_rc rc = ls_dataset_open(data, LS_SPLIT_TRAIN, &replayer->data);
    if (rc == LS_OK) {
        rc = ls_unpacked_make(program, data, &replayer->data, &replayer->unpacked);
    }
    if (rc == LS_OK) {
        rc = ls_oracle_cache_open(&replayer->oracle);
    }
    if (rc != LS_OK) {
        ls_replayer_close(replayer);
        return rc;
    }
    *out = replayer;
    return LS_OK;
}

void ls_replayer_close(ls_replayer *replayer) {
    if (replayer == NULL) {
        return;
    }
    if (replayer->oracle != NULL) {
        ls_oracle_cache_close(replayer->oracle);
    }
    ls_unpacked_remove(&replayer->unpacked);
    ls_dataset_close(&replayer->data);
    free(replayer);
}

static void refuse(ls_replay *out, const char *reason) {
    out->status = LS_FAILED;
    snprintf(out->reason, sizeof out->reason, "replay: %s", reason);
}

/* What the checks of verify/ say of a record. */
static ls_rc judge(ls_replayer *replayer, const ls_run *run, const char *run_dir, ls_replay *out) {
    ls_case record;
    LS_TRY(ls_case_open(run, ls_impl_find(run->impl), &replayer->data, run->steps, &record));
    char why[256];
    ls_rc rc = ls_case_read(&record, run_dir, why, sizeof why);
    if (rc == LS_CHECK_FAILED) {
        refuse(out, why);
        rc = LS_OK;
    } else if (rc == LS_OK) {
        ls_check_input input = {.c = &record, .oracle = replayer->oracle};
        ls_verdict verdict;
        rc = ls_case_verify(&input, &verdict);
        if (rc == LS_OK && verdict.status != LS_PASSED) {
            const ls_finding *finding = &verdict.findings[verdict.decisive];
            snprintf(out->reason, sizeof out->reason, "replay: layer %d, %s: %s%s%s", ls_checks[verdict.decisive].layer,
                     ls_checks[verdict.decisive].name, verdict.status == LS_FAILED ? finding->detail : finding->reason,
                     finding->cause[0] != '\0' ? "; " : "", finding->cause);
            out->status = verdict.status;
        }
    }
    ls_case_close(&record);
    return rc;
}

ls_rc ls_replay_point(ls_replayer *replayer, const char *program, const ls_sweep_point *point, size_t steps,
                      const char *param_hash, ls_replay *out) {
    *out = (ls_replay){.status = LS_PASSED};
    ls_run run = point->run;
    snprintf(run.data, sizeof run.data, "%s", replayer->unpacked.data);
    run.steps = steps;
    run.log_every = 0;
    run.evaluate = run.time_steps = false;
    run.capture = true;
    run.warmup = 0;
    run.save[0] = run.json[0] = '\0';
    ls_outcome outcome = {0};
    ls_rc rc = ls_launch(program, &run, &outcome);
    if (rc == LS_DEVICE_FAILED) {
        refuse(out, outcome.reason);
        rc = LS_OK;
    } else if (rc == LS_OK) {
        const char *hash = json_string_value(json_object_get(json_array_get(outcome.ranks, 0), "param_hash"));
        if (hash == NULL || strcmp(hash, param_hash) != 0) {
            char reason[256];
            snprintf(reason, sizeof reason, "the parameters after %zu steps hash to %s, after the timed steps to %s",
                     steps, hash != NULL ? hash : "nothing", param_hash);
            refuse(out, reason);
        } else {
            rc = judge(replayer, &run, outcome.run_dir, out);
        }
    }
    ls_outcome_release(&outcome);
    return rc;
}
