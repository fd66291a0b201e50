/* Benchmarks of a replica: its passes and whole steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/micro.h"
#include "bench/micro/step.h"
#include "bench/micro/timed.h"
#include "impls/rank.h"
#include "impls/setup.h"

enum { BATCH = 64 };

typedef struct replica_under_test {
    ls_model model;
    ls_micro_batch batch;
    ls_replica *replica;
} replica_under_test;

static ls_rc input(void *self) {
    replica_under_test *t = self;
    return ls_replica_input(t->replica, &t->batch.batch);
}

static ls_rc forward(void *self) {
    return ls_replica_forward(((replica_under_test *)self)->replica, NULL);
}

static ls_rc loss(void *self) {
    return ls_replica_loss(((replica_under_test *)self)->replica, BATCH);
}

static ls_rc backward(void *self) {
    return ls_replica_backward(((replica_under_test *)self)->replica, NULL);
}

static ls_rc update(void *self) {
    return ls_replica_update(((replica_under_test *)self)->replica);
}

static ls_rc whole(void *self) {
    LS_TRY(input(self));
    LS_TRY(forward(self));
    LS_TRY(loss(self));
    LS_TRY(backward(self));
    return update(self);
}

/* What of the arithmetic of a step a part does. */
typedef enum share { NONE, FORWARD_PASS, BACKWARD_PASS, WHOLE } share;

static const struct {
    const char *name;
    ls_rc (*launch)(void *self);
    share share;
} parts[] = {
    {"whole", whole, WHOLE},
    {"input", input, NONE},
    {"forward", forward, FORWARD_PASS},
    {"loss", loss, NONE},
    {"backward", backward, BACKWARD_PASS},
    {"update", update, NONE},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

typedef struct entry {
    const char *model;
    size_t part;
    ls_dtype dtype;
} entry;

static entry *entries;

static ls_rc open_replica(const entry *e, replica_under_test *t) {
    ls_run run;
    ls_normalize normalize;
    ls_micro_step_run(e->model, e->dtype, BATCH, &run);
    LS_TRY(ls_run_model(&run, &t->model, &normalize));
    LS_TRY(ls_micro_batch_make(&t->model, BATCH, 0, &t->batch));
    LS_TRY(ls_setup_replica(&run, &t->model, 0, BATCH, &t->replica));
    LS_TRY(ls_setup_initial(t->replica, run.seed));
    return whole(t); /* every pass has its inputs */
}

static double flops_of(const ls_model *model, share part) {
    double step = ls_micro_step_flops(model), forward_pass = 0;
    for (size_t i = 0; i < model->layer_count; i++) {
        forward_pass += ls_micro_layer_flops(&model->layers[i], model);
    }
    switch (part) {
    case FORWARD_PASS:
        return forward_pass;
    case BACKWARD_PASS:
        return step - forward_pass;
    case WHOLE:
        return step;
    default:
        return 0;
    }
}

static void run_part(ls_gbench_state *state, void *argument) {
    const entry *e = argument;
    replica_under_test t = {.replica = NULL};
    ls_rc rc = open_replica(e, &t);
    if (rc == LS_OK) {
        ls_micro_work work = {.operations = BATCH * flops_of(&t.model, parts[e->part].share), .dtype = e->dtype};
        rc = ls_micro_timed(state, ls_replica_stream(t.replica), &work, parts[e->part].launch, &t);
        ls_gbench_counter(state, "samples", LS_GBENCH_RATE, BATCH);
    }
    if (rc != LS_OK) {
        ls_gbench_fail(state, rc, "the replica could not be measured");
    }
    if (t.replica != NULL) {
        ls_replica_close(t.replica);
    }
    ls_micro_batch_free(&t.batch);
}

ls_rc ls_micro_add_steps(const ls_micro_options *options) {
    (void)options;
    size_t models = 0, count = 0;
    while (ls_micro_models[models].label != NULL) {
        models++;
    }
    entries = ls_calloc(models * 2 * PARTS, sizeof *entries, "benchmarks");
    if (entries == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t m = 0; m < models; m++) {
        for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
            for (size_t p = 0; p < PARTS; p++) {
                char name[192];
                entries[count] = (entry){ls_micro_models[m].model, p, dtype};
                snprintf(name, sizeof name, "step/%s/%s/%s/batch:%d", ls_micro_models[m].label, parts[p].name,
                         ls_dtype_name(dtype), BATCH);
                ls_gbench_register(name, LS_GBENCH_WALL, run_part, &entries[count++]);
            }
        }
    }
    return LS_OK;
}

void ls_micro_end_steps(void) {
    free(entries);
    entries = NULL;
}
