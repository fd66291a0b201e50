/* Collectives as benchmarks: ranks as threads, as processes and under mpirun, by size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gbench_shim.h"
#include "bench/micro/collective.h"
#include "bench/micro/micro.h"

static const size_t sizes[] = {4,      64,      1024,    4096,     16384,   65536, 87360,
                               262144, 1048576, 4194304, 16777216, 67108864}; /* 87360: the gradient of seed-cnn */
enum { SIZES = sizeof sizes / sizeof sizes[0] };

typedef struct entry {
    const ls_micro_options *options;
    ls_crew_kind kind;
    size_t collective, bytes;
} entry;

static entry *entries;
/* Started when the first benchmark needs them. */
static ls_crew *crews[LS_CREW_KINDS];

static ls_rc measure(ls_gbench_state *state, const entry *e, ls_crew *crew) {
    double seconds[LS_MICRO_CHUNK];
    uint64_t left = ls_gbench_iterations(state);
    LS_TRY(ls_crew_measure(crew, 0, left < 3 ? (size_t)left : 3, seconds)); /* warm-up */
    while (left > 0) {
        size_t count = left < LS_MICRO_CHUNK ? (size_t)left : LS_MICRO_CHUNK;
        LS_TRY(ls_crew_measure(crew, 0, count, seconds));
        for (size_t i = 0; i < count; i++) {
            (void)ls_gbench_next(state, 1);
            ls_gbench_add_seconds(state, seconds[i]);
        }
        left -= count;
    }
    (void)ls_gbench_next(state, 1); /* false: all are done */
    const ls_micro_collective *collective = &ls_micro_collectives[e->collective];
    ls_gbench_bytes(state, (double)e->bytes);
    ls_gbench_counter(state, "busbw", LS_GBENCH_RATE,
                      (double)e->bytes * ls_micro_bus_factor(collective, e->options->devices));
    return LS_OK;
}

static ls_rc run_on_crew(ls_gbench_state *state, const entry *e) {
    if (crews[e->kind] == NULL) {
        LS_TRY(ls_crew_open(e->kind, e->options->devices, &crews[e->kind]));
    }
    ls_micro_job job = ls_micro_collective_job(e->options, e->kind, e->collective, ls_micro_type_find("float"),
                                               ls_micro_redop_find("sum"), e->bytes, true);
    LS_TRY(ls_crew_prepare(crews[e->kind], 0, &job));
    LS_TRY(measure(state, e, crews[e->kind]));
    return ls_crew_release(crews[e->kind], 0);
}

static void run(ls_gbench_state *state, void *argument) {
    ls_rc rc = run_on_crew(state, argument);
    if (rc != LS_OK) {
        ls_gbench_fail(state, rc, "the ranks failed");
    }
}

ls_rc ls_micro_add_collectives(const ls_micro_options *options) {
    size_t collectives = 0, count = 0;
    while (ls_micro_collectives[collectives].name != NULL) {
        collectives++;
    }
    entries = ls_calloc(collectives * LS_CREW_KINDS * SIZES, sizeof *entries, "benchmarks");
    if (entries == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t c = 0; c < collectives; c++) {
        for (ls_crew_kind kind = 0; kind < LS_CREW_KINDS; kind++) {
            for (size_t s = 0; s < SIZES && options->kinds[kind]; s++) {
                char name[128];
                size_t whole = ls_micro_elements(&ls_micro_collectives[c], sizes[s], 4, options->devices) * 4;
                if (whole == 0) {
                    continue;
                }
                entries[count] = (entry){options, kind, c, whole};
                snprintf(name, sizeof name, "%s/%s/%s/ranks:%zu/bytes:%zu", ls_micro_collectives[c].name,
                         kind == LS_CREW_MPI ? "mpi" : "nccl", ls_crew_kind_name(kind), options->devices, whole);
                ls_gbench_register(name, LS_GBENCH_MANUAL, run, &entries[count]);
                count++;
            }
        }
    }
    return LS_OK;
}

void ls_micro_end_collectives(void) {
    for (ls_crew_kind kind = 0; kind < LS_CREW_KINDS; kind++) {
        ls_crew_close(crews[kind]);
        crews[kind] = NULL;
    }
    free(entries);
    entries = NULL;
}
