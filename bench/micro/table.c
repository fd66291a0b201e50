/* Tables of a collective in the columns of nccl-tests. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/collective.h"
#include "bench/micro/micro.h"
#include "bench/results.h"
#include "bench/stats.h"

typedef struct measured {
    double microseconds, algbw, busbw;
    bool checked;
    uint64_t wrong;
} measured;

typedef struct table {
    const ls_micro_options *options;
    ls_crew_kind kind;
    ls_crew *crew;
    double *seconds;
    double bus_sum; /* over all measurements, for the average line */
    size_t bus_count;
    uint64_t wrong;
} table;

ls_micro_job ls_micro_collective_job(const ls_micro_options *options, ls_crew_kind kind, size_t collective, size_t type,
                                     size_t redop, size_t bytes, bool in_place) {
    ls_micro_job job = {.collective = collective,
                        .type = type,
                        .redop = redop,
                        .root = options->root,
                        .bytes = bytes,
                        .in_place = in_place,
                        .clock = options->clock};
    snprintf(job.op, sizeof job.op, "%s", kind == LS_CREW_MPI ? "mpi" : "nccl");
    return job;
}

double ls_micro_median(double *samples, size_t count) {
    return ls_stats_summarize(samples, count).median;
}

static ls_rc measure_open(table *t, size_t elements, size_t type_size, measured *out) {
    const ls_micro_options *o = t->options;
    if (o->check) {
        LS_TRY(ls_crew_check(t->crew, 0, &out->wrong));
        out->checked = true;
        t->wrong += out->wrong;
    }
    if (o->warmup > 0) {
        LS_TRY(ls_crew_measure(t->crew, 0, o->warmup, t->seconds));
    }
    LS_TRY(ls_crew_measure(t->crew, 0, o->iterations, t->seconds));
    double median = ls_micro_median(t->seconds, o->iterations);
    out->microseconds = median * 1e6;
    out->algbw = median > 0 ? (double)(elements * type_size) / median * 1e-9 : 0;
    out->busbw = out->algbw * ls_micro_bus_factor(&ls_micro_collectives[o->collective], o->devices);
    t->bus_sum += out->busbw;
    t->bus_count++;
    return LS_OK;
}

static ls_rc measure(table *t, size_t bytes, size_t type, size_t redop, bool in_place, measured *out) {
    const ls_micro_options *o = t->options;
    size_t type_size = ls_micro_types[type].size;
    ls_micro_job job = ls_micro_collective_job(o, t->kind, o->collective, type, redop, bytes, in_place);
    *out = (measured){0};
    LS_TRY(ls_crew_prepare(t->crew, 0, &job));
    LS_TRY(measure_open(t, ls_micro_elements(&ls_micro_collectives[o->collective], bytes, type_size, o->devices),
                        type_size, out));
    return ls_crew_release(t->crew, 0);
}

static void print_head(const table *t) {
    const ls_micro_options *o = t->options;
    printf("# %s, %zu ranks as %s, by %s: median of %zu iterations after %zu for warm-up, of each the slowest rank; "
           "buffers\n# rewritten and ranks met before each, outside the clock%s\n",
           ls_micro_collectives[o->collective].name, o->devices,
           t->kind == LS_CREW_MPI ? "processes under mpirun" : ls_crew_kind_name(t->kind),
           t->kind == LS_CREW_MPI ? "MPI" : "NCCL", o->iterations, o->warmup,
           t->kind == LS_CREW_MPI              ? ""
           : o->clock == LS_MICRO_CLOCK_STREAM ? " (events on the stream)"
                                               : " (the host's clock around call and wait)");
    printf("#\n#%77s%33s\n", "out-of-place", "in-place");
    printf("#%11s  %12s  %8s  %6s  %6s  %8s  %6s  %6s %6s  %8s  %6s  %6s %6s\n", "size", "count", "type", "redop",
           "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    printf("#%11s  %12s  %8s  %6s  %6s  %8s  %6s  %6s %6s  %8s  %6s  %6s %6s\n", "(B)", "(elements)", "", "", "",
           "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
    fflush(stdout); /* the first row may take long */
}

/* Digits as nccl-tests chooses them. */
static void print_cells(const measured *m) {
    char wrong[32] = "N/A";
    int digits = m->microseconds >= 1e4 ? 0 : m->microseconds >= 100 ? 1 : 2;
    if (m->checked) {
        snprintf(wrong, sizeof wrong, "%llu", (unsigned long long)m->wrong);
    }
    printf("  %8.*f  %6.2f  %6.2f %6s", digits, m->microseconds, m->algbw, m->busbw, wrong);
}

static ls_rc write_json(const table *t, size_t bytes, size_t count, size_t type, size_t redop, bool in_place,
                        const measured *m) {
    const ls_micro_options *o = t->options;
    const ls_micro_collective *collective = &ls_micro_collectives[o->collective];
    if (o->json == NULL) {
        return LS_OK;
    }
    json_t *row =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:s, s:I, s:I, s:s, s:s, s:b, s:f, s:f, s:f, s:o}", "schema", 1,
                  "kind", "micro", "collective", collective->name, "library", t->kind == LS_CREW_MPI ? "mpi" : "nccl",
                  "ranks", ls_crew_kind_name(t->kind), "world", (json_int_t)o->devices, "platform", ls_platform_name(),
                  "bytes", (json_int_t)bytes, "count", (json_int_t)count, "type", ls_micro_types[type].name, "redop",
                  collective->reduces ? ls_micro_redops[redop].name : "none", "in_place", in_place, "seconds",
                  m->microseconds * 1e-6, "algbw", m->algbw, "busbw", m->busbw, "wrong",
                  m->checked ? json_integer((json_int_t)m->wrong) : json_null());
    if (row == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for a result row");
    }
    ls_rc rc = ls_results_append(o->json, row);
    json_decref(row);
    return rc;
}

static ls_rc print_row(table *t, size_t bytes, size_t type, size_t redop) {
    const ls_micro_options *o = t->options;
    const ls_micro_collective *collective = &ls_micro_collectives[o->collective];
    size_t type_size = ls_micro_types[type].size;
    size_t whole = ls_micro_elements(collective, bytes, type_size, o->devices);
    bool parts = !collective->sends_all || !collective->receives_all;
    size_t count = parts ? whole / o->devices : whole;
    if (count == 0) {
        return LS_OK; /* less than one element a rank */
    }
    char root[16] = "-1";
    if (collective->rooted) {
        snprintf(root, sizeof root, "%zu", o->root);
    }
    measured results[2];
    for (int in_place = 0; in_place < 2; in_place++) {
        LS_TRY(measure(t, bytes, type, redop, in_place != 0, &results[in_place]));
        LS_TRY(write_json(t, whole * type_size, count, type, redop, in_place != 0, &results[in_place]));
    }
    printf("%12zu  %12zu  %8s  %6s  %6s", whole * type_size, count, ls_micro_types[type].name,
           collective->reduces ? ls_micro_redops[redop].name : "none", root);
    print_cells(&results[0]);
    print_cells(&results[1]);
    printf("\n");
    fflush(stdout);
    return LS_OK;
}

static ls_rc print_sizes(table *t, size_t type, size_t redop) {
    const ls_micro_options *o = t->options;
    for (size_t bytes = o->min_bytes; bytes <= o->max_bytes;
         bytes = o->step_bytes > 0 ? bytes + o->step_bytes : bytes * o->factor) {
        LS_TRY(print_row(t, bytes, type, redop));
    }
    return LS_OK;
}

/* Every type and reduction that was asked for; with `all` those without exact values are left out. */
static ls_rc print_combinations(table *t) {
    const ls_micro_options *o = t->options;
    const ls_micro_collective *collective = &ls_micro_collectives[o->collective];
    for (size_t type = 0; ls_micro_types[type].name != NULL; type++) {
        for (size_t redop = 0; ls_micro_redops[redop].name != NULL; redop++) {
            bool asked = (o->type == SIZE_MAX || o->type == type) && (o->redop == SIZE_MAX || o->redop == redop) &&
                         (collective->reduces || redop == 0 || o->redop == redop);
            if (!asked) {
                continue;
            }
            const char *why = ls_micro_refuse(collective, &ls_micro_types[type], &ls_micro_redops[redop], o->devices,
                                              t->kind == LS_CREW_MPI);
            if (why[0] == '\0') {
                LS_TRY(print_sizes(t, type, redop));
            } else if (o->type != SIZE_MAX && o->redop != SIZE_MAX) {
                printf("# not by %s: %s %s: %s\n", t->kind == LS_CREW_MPI ? "MPI" : "NCCL", ls_micro_types[type].name,
                       ls_micro_redops[redop].name, why);
            }
        }
    }
    return LS_OK;
}

static ls_rc print_table(table *t) {
    print_head(t);
    LS_TRY(print_combinations(t));
    printf("# Out of bounds values : %llu %s\n", (unsigned long long)t->wrong,
           !t->options->check ? "(not checked)"
           : t->wrong == 0    ? "OK"
                              : "FAILED");
    printf("# Avg bus bandwidth    : %.4f\n", t->bus_count > 0 ? t->bus_sum / (double)t->bus_count : 0);
    double line = 0;
    LS_TRY(ls_crew_line_seconds(t->crew, &line));
    printf("# Cache line, there and back, ranks 0 and 1 : %.0f ns\n#\n", line * 1e9);
    return LS_OK;
}

ls_rc ls_micro_table(const ls_micro_options *options) {
    ls_rc rc = LS_OK;
    uint64_t wrong = 0;
    size_t room = options->iterations > options->warmup ? options->iterations : options->warmup;
    double *seconds = ls_calloc(room, sizeof *seconds, "times");
    if (seconds == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (ls_crew_kind kind = 0; kind < LS_CREW_KINDS && rc == LS_OK; kind++) {
        table t = {.options = options, .kind = kind, .seconds = seconds};
        if (!options->kinds[kind]) {
            continue;
        }
        rc = ls_crew_open(kind, options->devices, &t.crew);
        if (rc == LS_OK) {
            rc = print_table(&t);
        }
        ls_crew_close(t.crew);
        wrong += t.wrong;
    }
    free(seconds);
    if (rc == LS_OK && wrong > 0) {
        return ls_fail(LS_CHECK_FAILED, "%s: %llu elements are wrong", ls_micro_collectives[options->collective].name,
                       (unsigned long long)wrong);
    }
    return rc;
}
