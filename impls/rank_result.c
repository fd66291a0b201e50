/* The result file of a rank. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gpu/layer_math.h"
#include "impls/rank_internal.h"

static json_t *hash_text(const uint64_t *hash) {
    char text[24];
    if (hash == NULL) {
        return json_null();
    }
    snprintf(text, sizeof text, "%016" PRIx64, *hash);
    return json_string(text);
}

static json_t *counters_object(const ls_rank_task *task) {
    ls_counters c = {0};
    task->data->impl->counters(task->self, &c);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "steps",
                     (json_int_t)(task->steps - task->resumed), "allreduces", (json_int_t)c.allreduces,
                     "allreduce_bytes", (json_int_t)c.allreduce_bytes, "broadcasts", (json_int_t)c.broadcasts,
                     "broadcast_bytes", (json_int_t)c.broadcast_bytes, "peer_copies", (json_int_t)c.peer_copies,
                     "peer_copy_bytes", (json_int_t)c.peer_copy_bytes, "graph_launches", (json_int_t)c.graph_launches,
                     "buckets", (json_int_t)c.buckets, "overlap_steps", (json_int_t)c.overlap_steps, "overlap_measured",
                     (json_int_t)c.overlap_measured, "overlap_lead_seconds", c.overlap_lead);
}

static json_int_t max_rss_bytes(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (json_int_t)usage.ru_maxrss * 1024 : 0;
}

ls_rc ls_rank_result_open(ls_rank_task *task) {
    task->epochs = json_array();
    task->step_seconds = json_array();
    task->warmup_seconds = json_array();
    task->log = json_array();
    if (task->log == NULL || task->epochs == NULL || task->step_seconds == NULL || task->warmup_seconds == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the result of a rank");
    }
    return LS_OK;
}

void ls_rank_result_close(ls_rank_task *task) {
    json_decref(task->epochs);
    json_decref(task->step_seconds);
    json_decref(task->warmup_seconds);
    json_decref(task->log);
}

ls_rc ls_rank_result_write(ls_rank_task *task, uint64_t params, const uint64_t *grads) {
    char path[LS_PATH_SIZE + 32], temporary[LS_PATH_SIZE + 48];
    snprintf(path, sizeof path, "%s/rank-%zu.json", task->data->folder, task->rank.rank);
    snprintf(temporary, sizeof temporary, "%s.part", path);
    json_t *result =
        json_pack("{s:I, s:I, s:I, s:O, s:O, s:O, s:O, s:o, s:o, s:I, s:f, s:f, s:o, s:s, s:I}", "rank",
                  (json_int_t)task->rank.rank, "pid", (json_int_t)getpid(), "steps", (json_int_t)task->steps, "log",
                  task->log, "epochs", task->epochs, "step_seconds", task->step_seconds, "warmup_seconds",
                  task->warmup_seconds, "param_hash", hash_text(&params), "grad_hash", hash_text(grads), "samples",
                  (json_int_t)task->samples, "train_seconds", task->train_seconds, "input_seconds", task->input_seconds,
                  "counters", counters_object(task), "math", ls_math_description(), "max_rss_bytes", max_rss_bytes());
    if (result == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the result of a rank");
    }
    /* 17 digits: a double read back is the same double */
    int failed = json_dump_file(result, temporary, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(result);
    if (failed != 0 || rename(temporary, path) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "cannot write the result of a rank to %s", path);
    }
    return LS_OK;
}
