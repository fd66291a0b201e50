#include "bench/verify_determinism.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/determinism_relations.h"
#include "bench/determinism_runs.h"
#include "bench/results.h"
#include "gpu/base/clock.h"
#include "gpu/gpu.h"
#include "impls/impl.h"
#include "impls/launch.h"
#include "impls/run_spec.h"

typedef struct session {
    const ls_options *options;
    ls_run base; /* model, dtype and global batch of the matrix under way */
    ls_run_cache cache;
    size_t equal, documented, unexpected, failed;
    double start; /* ls_now_seconds */
} session;

/* One comparison: of two runs, or of the ranks of one. */
typedef struct cell {
    bool applies; /* false: nothing of the kind on so many devices */
    bool failed;  /* a run came to no end */
    ls_sameness sameness;
    ls_run first, second;
    char bits[2][LS_BITS_TEXT];
    char why[512]; /* failed: the reason */
} cell;

static bool known(const ls_impl *impl, unsigned capability) {
    return (impl->capabilities & capability) != 0;
}

static size_t fewest_devices(const ls_options *options) {
    size_t fewest = options->devices[0];
    for (size_t i = 1; i < options->device_count; i++) {
        fewest = options->devices[i] < fewest ? options->devices[i] : fewest;
    }
    return fewest;
}

/* The run of an implementation that the others are compared with. */
static void plain_run(const session *s, const ls_impl *impl, size_t devices, ls_run *out) {
    const ls_options *o = s->options;
    *out = s->base;
    snprintf(out->impl, sizeof out->impl, "%s", impl->name);
    out->devices = devices;
    out->ranks = known(impl, LS_CAP_RANK_THREADS) ? o->ranks[0] : LS_RANKS_PROCESSES;
    out->nccl_register = out->nccl_register && known(impl, LS_CAP_NCCL_REGISTER);
    out->bucket_bytes = known(impl, LS_CAP_BUCKETS) ? o->buckets[o->bucket_count - 1] : (size_t)LS_BUCKET_BYTES_DEFAULT;
}

/* Compares second with first (repeat: the same command again), or without second the ranks of first. */
static ls_rc compare(session *s, const ls_relation *relation, const ls_run *first, const ls_run *second, cell *out) {
    const ls_run_bits *a = NULL, *b = NULL;
    bool again = relation->varied == LS_VARIED_NOTHING;
    LS_TRY(ls_run_cache_get(&s->cache, first, 0, &a));
    LS_TRY(ls_run_cache_get(&s->cache, second, again ? 1 : 0, &b));
    *out = (cell){.applies = true, .first = *first, .second = *second};
    const char *failure = a->failure[0] != '\0' ? a->failure : b->failure;
    if (failure[0] != '\0') {
        out->failed = true;
        snprintf(out->why, sizeof out->why, "%s", failure);
        return LS_OK;
    }
    size_t rank = 0;
    bool equal = true;
    size_t ranks = relation->varied == LS_VARIED_RANK ? b->ranks : 1;
    for (size_t r = 0; r < ranks && equal; r++) {
        equal = strcmp(a->bits[0], b->bits[r]) == 0;
        rank = r;
    }
    out->sameness = ls_relation_judge(relation, first->devices, equal);
    memcpy(out->bits[0], a->bits[0], LS_BITS_TEXT);
    memcpy(out->bits[1], b->bits[rank], LS_BITS_TEXT);
    return LS_OK;
}

static int severity(const cell *c) {
    return !c->applies ? 0 : c->failed ? 4 : 1 + (int)c->sameness;
}

/* The base against every other bucket cap; the worst of them counts. */
static ls_rc compare_buckets(session *s, const ls_relation *relation, const ls_run *base, cell *out) {
    for (size_t i = 0; i + 1 < s->options->bucket_count; i++) {
        ls_run other = *base;
        cell found;
        other.bucket_bytes = s->options->buckets[i];
        LS_TRY(compare(s, relation, base, &other, &found));
        if (severity(&found) > severity(out)) {
            *out = found;
        }
    }
    return LS_OK;
}

static ls_rc compare_impls(session *s, const ls_relation *relation, const ls_run *base, cell *out) {
    const ls_impl *other = ls_impl_find(relation->other);
    char why[256];
    ls_run run;
    plain_run(s, other, base->devices, &run);
    if (!ls_impl_available(other, why, sizeof why) || (base->devices > 1 && !known(other, LS_CAP_MULTI_DEVICE)) ||
        !ls_run_suits(&run, other, why, sizeof why)) {
        return LS_OK;
    }
    return compare(s, relation, base, &run, out);
}

static ls_rc make_cell(session *s, const ls_relation *relation, const ls_impl *impl, size_t devices, cell *out) {
    *out = (cell){0};
    if (devices > 1 && !known(impl, LS_CAP_MULTI_DEVICE)) {
        return LS_OK;
    }
    ls_run base, other;
    plain_run(s, impl, devices, &base);
    other = base;
    switch (relation->varied) {
    case LS_VARIED_NOTHING:
        break;
    case LS_VARIED_RANK:
        if (impl->ranks(devices) < 2) {
            return LS_OK;
        }
        break;
    case LS_VARIED_LOADER:
        base.loader_threads = 0;
        other.loader_threads = 2;
        break;
    case LS_VARIED_KIND:
        if (s->options->ranks_count < 2) {
            return LS_OK;
        }
        other.ranks = s->options->ranks[1];
        break;
    case LS_VARIED_BUCKETS:
        return compare_buckets(s, relation, &base, out);
    case LS_VARIED_ORDER:
        base.bucket_bytes = other.bucket_bytes = s->options->buckets[0];
        other.reverse_buckets = true;
        break;
    case LS_VARIED_GRAPH:
        if (!known(impl, LS_CAP_GRAPH)) {
            return LS_OK;
        }
        base.graph = false;
        other.graph = true;
        break;
    case LS_VARIED_IMPL:
        return compare_impls(s, relation, &base, out);
    case LS_VARIED_WORLD:
        if (devices == fewest_devices(s->options)) {
            return LS_OK;
        }
        other.devices = fewest_devices(s->options);
        break;
    }
    return compare(s, relation, &base, &other, out);
}

static ls_rc append_row(const session *s, const ls_relation *relation, const cell *c) {
    if (s->options->run.json[0] == '\0') {
        return LS_OK;
    }
    char lines[2][4096];
    ls_options_line("lockstep", LS_COMMAND_TRAIN, &c->first, lines[0], sizeof lines[0]);
    ls_options_line("lockstep", LS_COMMAND_TRAIN, &c->second, lines[1], sizeof lines[1]);
    json_t *row = ls_result_row("determinism", &c->first, lines[0]);
    if (row == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for a result row");
    }
    bool bad = c->failed || c->sameness == LS_DIFFERS_UNEXPECTEDLY;
    json_object_set_new(row, "status", json_string(bad ? "FAILED" : "PASSED"));
    json_object_set_new(row, "reason", json_string(c->failed ? c->why : relation->reason));
    json_object_set_new(row, "determinism",
                        json_pack("{s:s, s:s?, s:s?, s:s, s:s, s:s}", "varied", ls_varied_name(relation->varied),
                                  "result", c->failed ? NULL : ls_sameness_name(c->sameness), "other_impl",
                                  relation->other, "other_command", lines[1], "bits", c->bits[0], "other_bits",
                                  c->bits[1]));
    ls_rc rc = ls_results_append(s->options->run.json, row);
    json_decref(row);
    return rc;
}

static void print_wrong(const ls_relation *relation, const cell *c) {
    char line[4096];
    printf("  FAILED %s, %zu devices: ", ls_varied_name(relation->varied), c->first.devices);
    if (c->failed) {
        printf("%s\n", c->why);
    } else {
        printf("parameters/gradient hash to %s and %s, expected equal bits\n", c->bits[0], c->bits[1]);
    }
    ls_options_line("lockstep", LS_COMMAND_TRAIN, &c->first, line, sizeof line);
    printf("    %s\n", line);
    ls_options_line("lockstep", LS_COMMAND_TRAIN, &c->second, line, sizeof line);
    printf("    %s\n", line);
}

static const char *count_cell(session *s, const cell *c) {
    if (!c->applies) {
        return "-";
    }
    if (c->failed) {
        s->failed++;
        return "FAILED";
    }
    static const char *const words[] = {
        [LS_SAME] = "equal", [LS_DIFFERS_AS_DOCUMENTED] = "differs", [LS_DIFFERS_UNEXPECTEDLY] = "DIFFERS"};
    size_t *counts[] = {&s->equal, &s->documented, &s->unexpected};
    (*counts[c->sameness])++;
    return words[c->sameness];
}

static ls_rc make_row(session *s, const ls_relation *relation, const ls_impl *impl) {
    const ls_options *o = s->options;
    char whose[48];
    cell *cells = ls_calloc(o->device_count, sizeof *cells, "a row of the matrix");
    ls_rc rc = cells != NULL ? LS_OK : LS_DEVICE_FAILED;
    bool any = false;
    for (size_t d = 0; d < o->device_count && rc == LS_OK; d++) {
        rc = make_cell(s, relation, impl, o->devices[d], &cells[d]);
        any = any || cells[d].applies;
    }
    snprintf(whose, sizeof whose, "%s%s%s", impl->name, relation->other != NULL ? ", " : "",
             relation->other != NULL ? relation->other : "");
    if (rc == LS_OK && any) {
        printf("%-15s %-12s", ls_varied_name(relation->varied), whose);
        for (size_t d = 0; d < o->device_count; d++) {
            printf(" %-8s", count_cell(s, &cells[d]));
        }
        printf(" %s\n", relation->reason);
    }
    for (size_t d = 0; d < o->device_count && rc == LS_OK; d++) {
        if (cells[d].applies && (cells[d].failed || cells[d].sameness == LS_DIFFERS_UNEXPECTEDLY)) {
            print_wrong(relation, &cells[d]);
        }
        rc = cells[d].applies ? append_row(s, relation, &cells[d]) : LS_OK;
    }
    fflush(stdout);
    free(cells);
    return rc;
}

/* Whether the row exists: the relation is one of this platform and implementation. */
static bool exists(const ls_relation *relation, const char *name) {
    if (relation->platform != NULL && strcmp(relation->platform, ls_platform_name()) != 0) {
        return false;
    }
    return relation->impl == NULL || strcmp(relation->impl, name) == 0;
}

static ls_rc make_matrix(session *s) {
    const ls_options *o = s->options;
    printf("\n%s, %s: %zu samples a step over all devices, %zu steps, %s\n%-15s %-12s", s->base.model,
           ls_dtype_name(s->base.dtype), s->base.global_batch, s->base.steps, s->base.data, "varied", "of");
    for (size_t d = 0; d < o->device_count; d++) {
        printf(" %-8zu", o->devices[d]);
    }
    printf(" devices\n");
    for (const ls_relation *relation = ls_relations; relation->reason != NULL; relation++) {
        for (size_t i = 0; i < o->impl_count; i++) {
            char why[256] = "";
            const ls_impl *impl = ls_impl_find(o->impls[i]);
            bool here = !o->impl_all || ls_impl_available(impl, why, sizeof why);
            if (here && exists(relation, impl->name)) {
                LS_TRY(make_row(s, relation, impl));
            }
        }
    }
    return LS_OK;
}

static size_t common_multiple(const ls_options *options) {
    size_t multiple = 1;
    for (size_t i = 0; i < options->device_count; i++) {
        size_t a = multiple, b = options->devices[i];
        while (b != 0) {
            size_t rest = a % b;
            a = b;
            b = rest;
        }
        multiple *= options->devices[i] / a;
    }
    return multiple;
}

/* The global batch of all runs: as asked for, else about --batch a device on the most devices, for all to divide. */
static size_t global_batch(const ls_options *options) {
    size_t most = 1, multiple = common_multiple(options);
    for (size_t i = 0; i < options->device_count; i++) {
        most = options->devices[i] > most ? options->devices[i] : most;
    }
    size_t wanted = options->run.batch * most;
    size_t given = options->run.global_batch;
    return given > 0 ? given : (wanted + multiple - 1) / multiple * multiple;
}

static ls_rc check_runs(const session *s) {
    const ls_options *o = s->options;
    for (size_t i = 0; i < o->impl_count; i++) {
        const ls_impl *impl = ls_impl_find(o->impls[i]);
        char why[256];
        if (o->impl_all && !ls_impl_available(impl, why, sizeof why)) {
            continue;
        }
        for (size_t d = 0; d < o->device_count; d++) {
            ls_run run;
            plain_run(s, impl, known(impl, LS_CAP_MULTI_DEVICE) ? o->devices[d] : 1, &run);
            LS_TRY(ls_run_check(&run));
        }
    }
    return LS_OK;
}

static ls_rc run_session(session *s) {
    const ls_options *o = s->options;
    if (o->run.json[0] != '\0') {
        LS_TRY(ls_results_check(o->run.json));
    }
    for (size_t m = 0; m < o->model_count; m++) {
        for (size_t t = 0; t < o->dtype_count; t++) {
            s->base = o->run;
            ls_run_use_model(o, m, &s->base);
            s->base.dtype = o->dtypes[t];
            s->base.global_batch = global_batch(o);
            s->base.log_every = 0;
            s->base.json[0] = '\0';
            LS_TRY(check_runs(s));
            LS_TRY(make_matrix(s));
        }
    }
    double seconds = ls_now_seconds() - s->start;
    printf("\n%zu equal, %zu differ as documented, %zu differ unexpectedly, %zu failed: %zu runs in %.0f s\n", s->equal,
           s->documented, s->unexpected, s->failed, s->cache.count, seconds);
    return s->unexpected > 0 || s->failed > 0 || s->equal == 0 ? LS_CHECK_FAILED : LS_OK;
}

ls_rc ls_verify_determinism(const char *program, const ls_options *options) {
    session s = {.options = options, .cache = {.program = program}};
    s.start = ls_now_seconds();
    ls_rc rc = run_session(&s);
    ls_run_cache_free(&s.cache);
    return rc;
}
