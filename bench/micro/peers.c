/* Ratios to peers and roofs. The two sides of a ratio take turns, in an order drawn anew each round, on ranks that are all
 * there all the time and sleep while the others work; a few times all ranks are started afresh. Each round gives one ratio;
 * what is shown is the median of their logarithms with its sign-test interval. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/micro/job.h"
#include "bench/micro/peer.h"
#include "bench/results.h"
#include "bench/stats.h"
#include "gpu/base/clock.h"

enum {
    MIN_ITERATIONS = 3,
    MAX_ITERATIONS = 200,
    CREWS = 8,
};
/* A side's share of a round: iterations until they fill about so much. */
static const double turn_seconds = 0.05;

typedef struct samples {
    double *log_ratios, *ours, *theirs; /* [restarts*rounds] */
    size_t count;
} samples;

/* The ranks of one start. */
typedef struct crews {
    struct {
        ls_crew_kind kind;
        size_t world;
        ls_crew *crew;
    } open[CREWS];
    size_t count;
} crews;

static ls_rc find_crew(crews *all, const ls_micro_side *side, ls_crew **out) {
    for (size_t i = 0; i < all->count; i++) {
        if (all->open[i].kind == side->kind && all->open[i].world == side->world) {
            *out = all->open[i].crew;
            return LS_OK;
        }
    }
    if (all->count == CREWS) {
        return ls_fail(LS_DEVICE_FAILED, "more than %d kinds of ranks at the same time", CREWS);
    }
    LS_TRY(ls_crew_open(side->kind, side->world, out));
    all->open[all->count].kind = side->kind;
    all->open[all->count].world = side->world;
    all->open[all->count++].crew = *out;
    return LS_OK;
}

static void close_crews(crews *all) {
    for (size_t i = 0; i < all->count; i++) {
        ls_crew_close(all->open[i].crew);
    }
    all->count = 0;
}

typedef struct turn {
    ls_crew *crew;
    size_t slot, iterations;
} turn;

static ls_rc take_turn(const turn *t, double *median) {
    double seconds[MAX_ITERATIONS];
    LS_TRY(ls_crew_measure(t->crew, t->slot, t->iterations, seconds));
    *median = ls_micro_median(seconds, t->iterations);
    return LS_OK;
}

/* Opens a side and chooses its iterations, which warms it up too. */
static ls_rc open_turn(crews *all, const ls_micro_side *side, size_t slot, turn *out) {
    *out = (turn){.slot = slot, .iterations = MIN_ITERATIONS};
    double ignored = 0;
    LS_TRY(find_crew(all, side, &out->crew));
    LS_TRY(ls_crew_prepare(out->crew, slot, &side->job));
    LS_TRY(take_turn(out, &ignored));
    double wall = ls_now_seconds();
    LS_TRY(take_turn(out, &ignored));
    wall = (ls_now_seconds() - wall) / MIN_ITERATIONS; /* with what is outside the clock */
    double wanted = turn_seconds / (wall > 1e-9 ? wall : 1e-9);
    out->iterations = wanted > MAX_ITERATIONS   ? MAX_ITERATIONS
                      : wanted < MIN_ITERATIONS ? MIN_ITERATIONS
                                                : (size_t)wanted;
    return LS_OK;
}

static ls_rc measure_row(crews *all, const ls_micro_peer *row, size_t rounds, uint64_t *random, samples *out) {
    turn ours, theirs;
    LS_TRY(open_turn(all, &row->ours, 0, &ours));
    LS_TRY(open_turn(all, &row->theirs, 1, &theirs));
    for (size_t i = 0; i < rounds; i++) {
        double mine = 0, other = 0;
        *random = *random * 6364136223846793005ULL + 1442695040888963407ULL; /* Knuth, MMIX */
        bool first = *random >> 63 != 0;
        if (first) {
            LS_TRY(take_turn(&ours, &mine));
        }
        LS_TRY(take_turn(&theirs, &other));
        if (!first) {
            LS_TRY(take_turn(&ours, &mine));
        }
        if (!(mine > 0) || !(other > 0)) {
            return ls_fail(LS_DEVICE_FAILED, "%s: a time of zero was measured", row->name);
        }
        out->ours[out->count] = mine;
        out->theirs[out->count] = other;
        out->log_ratios[out->count++] = log(row->scale * other / mine);
    }
    LS_TRY(ls_crew_release(ours.crew, 0));
    return ls_crew_release(theirs.crew, 1);
}

static ls_rc measure_all(const ls_micro_options *options, const ls_micro_peer *rows, size_t count, samples *all) {
    uint64_t random = 1;
    for (size_t restart = 0; restart < options->restarts; restart++) {
        crews ranks = {.count = 0};
        ls_rc rc = LS_OK;
        for (size_t i = 0; i < count && rc == LS_OK; i++) {
            if (isatty(STDERR_FILENO)) {
                fprintf(stderr, "\r\033[Kstart %zu of %zu: %s", restart + 1, options->restarts, rows[i].name);
            }
            rc = measure_row(&ranks, &rows[i], options->rounds, &random, &all[i]);
        }
        if (isatty(STDERR_FILENO)) {
            fprintf(stderr, "\r\033[K");
        }
        close_crews(&ranks);
        LS_TRY(rc);
    }
    return LS_OK;
}

static void print_time(double seconds) {
    const char *unit = seconds < 1e-9 ? "ps" : seconds < 1e-3 ? "us" : "ms";
    double factor = seconds < 1e-9 ? 1e12 : seconds < 1e-3 ? 1e6 : 1e3;
    printf(" %9.3f %s", seconds * factor, unit);
}

/* Whether the interval is one by which a target may be judged. */
static bool is_judged(const ls_micro_peer *row, const ls_summary *ratio) {
    return row->target > 0 && ratio->confidence >= LS_STATS_CONFIDENCE;
}

static bool is_met(const ls_micro_peer *row, const ls_summary *ratio) {
    return exp(ratio->low) >= row->target;
}

static ls_rc write_json(const ls_micro_options *options, const ls_micro_peer *row, const ls_summary *ratio, double ours,
                        double theirs, size_t turns) {
    if (options->json == NULL) {
        return LS_OK;
    }
    json_t *json = json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:I, s:f, s:f, s:o, s:o}", "schema", 1, "kind", "peer", "name",
        row->name, "against", row->against, "platform", ls_platform_name(), "ratio", exp(ratio->median), "low",
        exp(ratio->low), "high", exp(ratio->high), "confidence", ratio->confidence, "samples", (json_int_t)turns,
        "seconds", ours, "against_seconds", theirs, "target", row->target > 0 ? json_real(row->target) : json_null(),
        "met", is_judged(row, ratio) ? json_boolean(is_met(row, ratio)) : json_null());
    if (json == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for a result row");
    }
    ls_rc rc = ls_results_append(options->json, json);
    json_decref(json);
    return rc;
}

static ls_rc show(const ls_micro_options *options, const ls_micro_peer *row, samples *s) {
    ls_summary ratio = ls_stats_summarize(s->log_ratios, s->count);
    double ours = ls_micro_median(s->ours, s->count), theirs = ls_micro_median(s->theirs, s->count);
    printf("%-34s %-35s", row->name, row->against);
    print_time(ours);
    print_time(theirs);
    printf("  %8.3f  [%.3f, %.3f]", exp(ratio.median), exp(ratio.low), exp(ratio.high));
    if (row->target > 0) {
        printf("  %5g  %s", row->target, !is_judged(row, &ratio) ? "-" : is_met(row, &ratio) ? "met" : "below");
    }
    printf("\n");
    return write_json(options, row, &ratio, ours, theirs, s->count);
}

static ls_rc print_all(const ls_micro_options *options, const ls_micro_peer *rows, size_t count, samples *all) {
    char device[256] = "";
    LS_TRY(ls_platform_describe(device, sizeof device));
    size_t cores = ls_platform_shared_cores();
    size_t rounds = options->restarts * options->rounds;
    double confidence = count > 0 ? ls_stats_summarize(all[0].log_ratios, all[0].count).confidence : 0;
    printf("# %s: %s; NCCL by %s\n# ratio: time of the other side over ours (above 1: ours is faster), of a roof the "
           "share "
           "that is reached; median of %zu turns\n# over %zu starts of all ranks, interval of %.1f %% confidence; met: "
           "its "
           "lower end reaches the target\n",
           ls_platform_name(), device,
           options->clock == LS_MICRO_CLOCK_STREAM ? "events on the stream" : "the host's clock", rounds,
           options->restarts, 100 * confidence);
    if (confidence < LS_STATS_CONFIDENCE) {
        printf(
            "# -: no verdict, which takes an interval of %.0f %% confidence: --restarts times --rounds of %d or more\n",
            100 * LS_STATS_CONFIDENCE, LS_STATS_LEAST);
    }
    if (cores > 0 && options->devices > cores) {
        printf("# %zu devices on %zu cores: oversubscribed, no measure of scaling\n", options->devices, cores);
    }
    printf("%-34s %-35s %12s %12s  %8s  %-16s  %5s\n", "what", "against", "time", "theirs", "ratio", "interval",
           "target");
    for (size_t i = 0; i < count; i++) {
        LS_TRY(show(options, &rows[i], &all[i]));
    }
    return LS_OK;
}

ls_rc ls_micro_peers(const ls_micro_options *options) {
    ls_micro_peer *rows = NULL;
    size_t count = 0, each = options->restarts * options->rounds;
    LS_TRY(ls_micro_peer_rows(options, &rows, &count));
    samples *all = ls_calloc(count, sizeof *all, "ratios");
    double *values = ls_calloc(3 * count * each, sizeof *values, "ratios");
    ls_rc rc = all != NULL && values != NULL ? LS_OK : LS_DEVICE_FAILED;
    for (size_t i = 0; i < count && rc == LS_OK; i++) {
        double *mine = values + 3 * i * each;
        all[i] = (samples){.log_ratios = mine, .ours = mine + each, .theirs = mine + 2 * each};
    }
    if (rc == LS_OK) {
        rc = measure_all(options, rows, count, all);
    }
    if (rc == LS_OK) {
        rc = print_all(options, rows, count, all);
    }
    free(values);
    free(all);
    free(rows);
    return rc;
}
