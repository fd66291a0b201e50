#include "bench/micro/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/collective.h"
#include "bench/micro/step.h"
#include "impls/rank.h"

enum { BATCH = 64 };

typedef struct row_list {
    const ls_micro_options *options;
    ls_micro_peer *rows;
    size_t count;
    ls_rc rc;
} row_list;

static void add(row_list *list, const ls_micro_peer *row) {
    if (list->rc != LS_OK || (list->options->only != NULL && strstr(row->name, list->options->only) == NULL)) {
        return;
    }
    ls_micro_peer *grown = realloc(list->rows, (list->count + 1) * sizeof *grown);
    if (grown == NULL) {
        list->rc = ls_fail(LS_DEVICE_FAILED, "out of memory for %zu rows", list->count + 1);
        return;
    }
    list->rows = grown;
    list->rows[list->count++] = *row;
}

static void size_text(size_t bytes, char *text, size_t room) {
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) {
        snprintf(text, room, "%zu MiB", bytes >> 20);
    } else if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) {
        snprintf(text, room, "%zu KiB", bytes >> 10);
    } else {
        snprintf(text, room, "%zu B", bytes);
    }
}

/* An allreduce of two ranks, in place, by size. */
static ls_micro_side allreduce(const ls_micro_options *options, ls_crew_kind kind, size_t bytes) {
    return (ls_micro_side){kind, options->devices,
                           ls_micro_collective_job(options, kind, ls_micro_collective_find("allreduce"),
                                                   ls_micro_type_find("float"), ls_micro_redop_find("sum"), bytes,
                                                   true)};
}

static void add_against_mpi(row_list *list, ls_crew_kind kind) {
    static const size_t kib = 1024, mib = 1024 * 1024;
    const struct {
        size_t bytes;
        double target;
    } sizes[] = {
        {4, 1},     {256, 1},       {kib, 1},   {4 * kib, 2.5}, {8 * kib, 2.5},  {16 * kib, 8},   {64 * kib, 8},
        {87360, 8}, {256 * kib, 8}, {mib, 2.5}, {4 * mib, 2.5}, {16 * mib, 2.5}, {64 * mib, 2.5},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[32];
        ls_micro_peer row = {.scale = 1, .target = sizes[i].target};
        size_text(sizes[i].bytes, text, sizeof text);
        snprintf(row.name, sizeof row.name, "allreduce %s, %zu %s", text, list->options->devices,
                 ls_crew_kind_name(kind));
        snprintf(row.against, sizeof row.against, "MPI_Allreduce, malloc tuned");
        row.ours = allreduce(list->options, kind, sizes[i].bytes);
        row.theirs = allreduce(list->options, LS_CREW_MPI, sizes[i].bytes);
        add(list, &row);
    }
}

/* Both move 2*W*S bytes for W ranks and S bytes: each rank reads its part of every buffer and writes it into every buffer;
 * each loop reads and writes S bytes. */
static void add_against_memory(row_list *list, ls_crew_kind kind) {
    static const size_t mib = 1024 * 1024;
    const size_t sizes[] = {32 * mib, 64 * mib};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[32];
        ls_micro_peer row = {.scale = 1, .target = 0.85};
        size_text(sizes[i], text, sizeof text);
        snprintf(row.name, sizeof row.name, "allreduce %s, %zu %s", text, list->options->devices,
                 ls_crew_kind_name(kind));
        snprintf(row.against, sizeof row.against, "loops that read and write in place");
        row.ours = allreduce(list->options, kind, sizes[i]);
        row.theirs = (ls_micro_side){kind, list->options->devices, {.op = "memory", .bytes = sizes[i]}};
        add(list, &row);
    }
}

static ls_micro_side steps(const char *op, ls_crew_kind kind, size_t world, const char *model) {
    ls_micro_side side = {kind, world, {.dtype = LS_FLOAT32, .batch = BATCH}};
    snprintf(side.job.op, sizeof side.job.op, "%s", op);
    snprintf(side.job.model, sizeof side.job.model, "%s", model);
    return side;
}

static void add_ddp(row_list *list, ls_crew_kind kind) {
    size_t world = list->options->devices;
    ls_micro_peer row = {.scale = 1, .target = 0.97};
    snprintf(row.name, sizeof row.name, "seed-cnn, ddp, %zu %s", world, ls_crew_kind_name(kind));
    snprintf(row.against, sizeof row.against, "replicas that only meet");
    row.ours = steps("ddp", kind, world, "seed-cnn");
    row.theirs = steps("apart", kind, world, "seed-cnn");
    add(list, &row);
}

static void add_ddp_alone(row_list *list) {
    ls_micro_peer row = {.scale = 1, .target = 0.99};
    snprintf(row.name, sizeof row.name, "seed-cnn, ddp, 1 device");
    snprintf(row.against, sizeof row.against, "single");
    row.ours = steps("ddp", LS_CREW_THREADS, 1, "seed-cnn");
    row.theirs = steps("apart", LS_CREW_THREADS, 1, "seed-cnn");
    add(list, &row);
}

static ls_rc add_against_fma(row_list *list) {
    for (const ls_micro_model *named = ls_micro_models; named->label != NULL; named++) {
        ls_run description;
        ls_model model;
        ls_normalize normalize;
        ls_micro_step_run(named->model, LS_FLOAT32, BATCH, &description);
        LS_TRY(ls_run_model(&description, &model, &normalize));
        ls_micro_peer row = {.scale = BATCH * ls_micro_step_flops(&model)};
        row.target = strcmp(named->label, "seed-cnn") == 0 ? 0.55 : 0;
        snprintf(row.name, sizeof row.name, "%s step, 1 device", named->label);
        snprintf(row.against, sizeof row.against, "multiply-adds in registers");
        row.ours = steps("apart", LS_CREW_THREADS, 1, named->model);
        row.theirs = (ls_micro_side){LS_CREW_THREADS, 1, {.op = "fma", .dtype = LS_FLOAT32}};
        add(list, &row);
    }
    return LS_OK;
}

ls_rc ls_micro_peer_rows(const ls_micro_options *options, ls_micro_peer **out, size_t *count) {
    row_list list = {.options = options};
    bool on_cores = ls_platform_shared_cores() > 0; /* else the loops' roofs are not those of the devices */
    for (ls_crew_kind kind = LS_CREW_THREADS; kind <= LS_CREW_PROCESSES; kind++) {
        if (!options->kinds[kind] || options->devices < 2) {
            continue;
        }
        if (options->kinds[LS_CREW_MPI]) {
            add_against_mpi(&list, kind);
        }
        if (on_cores) {
            add_against_memory(&list, kind);
        }
        add_ddp(&list, kind);
    }
    add_ddp_alone(&list);
    if (list.rc == LS_OK && on_cores) {
        list.rc = add_against_fma(&list);
    }
    if (list.rc == LS_OK && list.count == 0) {
        list.rc = ls_fail(LS_BAD_INPUT, "--only '%s': no row has this in its name", options->only);
    }
    if (list.rc != LS_OK) {
        free(list.rows);
        return list.rc;
    }
    *out = list.rows;
    *count = list.count;
    return LS_OK;
}
