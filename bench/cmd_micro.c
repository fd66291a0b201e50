/* lockstep micro: how fast kernels, layers and collectives are. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cmd.h"
#include "bench/flags.h"
#include "bench/gbench_shim.h"
#include "bench/micro/collective.h"
#include "bench/micro/micro.h"
#include "bench/results.h"
#include "impls/impl.h"
#include "impls/launch.h"

/* What the words say before it is looked at. */
typedef struct words {
    const char *ranks, *clock, *min, *max, *step, *type, *redop;
    size_t check;
} words;

/* "8", "4K", "64M", "1G": powers of 1024, as nccl-tests reads them. */
static ls_rc read_bytes(const char *flag, const char *text, size_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const char *units = "KMG";
    const char *unit = *end != '\0' ? strchr(units, *end & ~0x20) : NULL;
    bool good = errno == 0 && text[0] >= '0' && text[0] <= '9' && (*end == '\0' || (unit != NULL && end[1] == '\0'));
    unsigned shift = unit != NULL ? 10U * (unsigned)(unit - units + 1) : 0;
    if (!good || value == 0 || value > (1ULL << 40) >> shift) {
        return ls_fail(LS_BAD_INPUT, "option '%s': '%s' is not a number of bytes from 1 to 1024G (8, 4K, 64M)", flag,
                       text);
    }
    *out = (size_t)value << shift;
    return LS_OK;
}

static const char all_kinds[] = "threads,processes,mpi";

/* Why ranks of that kind cannot meet here; false when they can. */
static bool cannot_meet(ls_crew_kind kind, size_t devices, char *why, size_t size) {
    return kind == LS_CREW_MPI ? !ls_impl_find("mpi")->available(why, size)
                               : devices > 1 && !ls_platform_has_collectives(why, size);
}

/* Kinds that cannot run here: not among all of them, and an error when asked for. */
static ls_rc check_kinds(bool asked, ls_micro_options *options) {
    for (ls_crew_kind kind = 0; kind < LS_CREW_KINDS; kind++) {
        char why[256] = "";
        if (!options->kinds[kind] || !cannot_meet(kind, options->devices, why, sizeof why)) {
            continue;
        }
        if (asked) {
            return ls_fail(LS_BAD_INPUT, "option '--ranks': %s cannot run here: %s", ls_crew_kind_name(kind), why);
        }
        ls_notice("--ranks %s: SKIPPED (%s)", ls_crew_kind_name(kind), why);
        options->kinds[kind] = false;
    }
    return LS_OK;
}

/* "threads,mpi" */
static ls_rc read_kinds(const char *list, ls_micro_options *options) {
    const char *text = list;
    memset(options->kinds, 0, sizeof options->kinds);
    while (true) {
        size_t length = strcspn(text, ",");
        ls_crew_kind kind = 0;
        while (kind < LS_CREW_KINDS &&
               (strlen(ls_crew_kind_name(kind)) != length || strncmp(ls_crew_kind_name(kind), text, length) != 0)) {
            kind++;
        }
        if (kind == LS_CREW_KINDS) {
            return ls_fail(LS_BAD_INPUT, "option '--ranks': '%.*s' is not threads, processes or mpi", (int)length,
                           text);
        }
        options->kinds[kind] = true;
        if (text[length] == '\0') {
            return check_kinds(list != all_kinds, options);
        }
        text += length + 1;
    }
}

static ls_rc read_names(const words *w, ls_micro_options *o) {
    bool all_types = strcmp(w->type, "all") == 0, all_redops = strcmp(w->redop, "all") == 0;
    o->type = all_types ? SIZE_MAX : ls_micro_type_find(w->type);
    o->redop = all_redops ? SIZE_MAX : ls_micro_redop_find(w->redop);
    if (!all_types && o->type == SIZE_MAX) {
        return ls_fail(LS_BAD_INPUT,
                       "option '-d': '%s' is not all, float, double, half, bfloat16, or [u]int8, [u]int32, [u]int64",
                       w->type);
    }
    if (!all_redops && o->redop == SIZE_MAX) {
        return ls_fail(LS_BAD_INPUT, "option '-o': '%s' is not all, sum, prod, max, min or avg", w->redop);
    }
    if (strcmp(w->clock, "stream") != 0 && strcmp(w->clock, "host") != 0) {
        return ls_fail(LS_BAD_INPUT, "option '--clock': '%s' is not stream or host", w->clock);
    }
    o->clock = strcmp(w->clock, "host") == 0 ? LS_MICRO_CLOCK_HOST : LS_MICRO_CLOCK_STREAM;
    return LS_OK;
}

static ls_rc read_words(const words *w, ls_micro_options *o) {
    size_t present = 0;
    LS_TRY(read_bytes("-b", w->min, &o->min_bytes));
    LS_TRY(read_bytes("-e", w->max, &o->max_bytes));
    if (w->step != NULL) {
        LS_TRY(read_bytes("-i", w->step, &o->step_bytes));
    }
    LS_TRY(read_kinds(w->ranks, o));
    LS_TRY(read_names(w, o));
    o->check = w->check != 0;
    LS_TRY(ls_platform_device_count(&present));
    if (o->devices > present) {
        return ls_fail(LS_BAD_INPUT, "--devices %zu: the host has %zu", o->devices, present);
    }
    if (o->min_bytes > o->max_bytes) {
        return ls_fail(LS_BAD_INPUT, "-b %zu is above -e %zu", o->min_bytes, o->max_bytes);
    }
    if (o->root >= o->devices) {
        return ls_fail(LS_BAD_INPUT, "-r %zu: there are ranks 0 to %zu", o->root, o->devices - 1);
    }
    return LS_OK;
}

/* Takes "--allreduce" and its like out of the words, and puts the library's flags apart. */
static ls_rc sort_words(int argc, char **argv, ls_micro_options *options, char **ours, int *our_count, char **theirs,
                        int *their_count) {
    for (int i = 0; i < argc; i++) {
        size_t collective = strncmp(argv[i], "--", 2) == 0 ? ls_micro_collective_find(argv[i] + 2) : SIZE_MAX;
        if (collective != SIZE_MAX && options->collective != SIZE_MAX) {
            return ls_fail(LS_BAD_INPUT, "--%s and %s are two runs", ls_micro_collectives[options->collective].name,
                           argv[i]);
        }
        if (collective != SIZE_MAX) {
            options->collective = collective;
        } else if (strncmp(argv[i], "--benchmark_", 12) == 0 || strncmp(argv[i], "--v=", 4) == 0) {
            theirs[(*their_count)++] = argv[i];
        } else {
            ours[(*our_count)++] = argv[i];
        }
    }
    return LS_OK;
}

static bool is_one_of(const char *value, const char *const *known) {
    while (*known != NULL && strcmp(*known, value) != 0) {
        known++;
    }
    return *known != NULL;
}

/* What the library would answer with its help and exit code 0 or 1. */
static ls_rc check_flags(int count, char **flags) {
    static const char *const formats[] = {"console", "json", "csv", NULL};
    static const char *const prefixes[] = {"--benchmark_format=", "--benchmark_out_format="};
    for (int i = 1; i < count; i++) {
        for (size_t p = 0; p < 2; p++) {
            size_t length = strlen(prefixes[p]);
            if (strncmp(flags[i], prefixes[p], length) == 0 && !is_one_of(flags[i] + length, formats)) {
                return ls_fail(LS_BAD_INPUT, "option '%.*s': '%s' is not console, json or csv", (int)length - 1,
                               prefixes[p], flags[i] + length);
            }
        }
        if (strncmp(flags[i], "--benchmark_out=", 16) == 0) {
            LS_TRY(ls_results_check(flags[i] + 16));
        }
    }
    return LS_OK;
}

/* theirs[0] and [1] are free for the program's name and our default. */
static ls_rc run_benchmarks(const ls_micro_options *options, char **theirs, int count) {
    theirs[0] = (char *)"lockstep micro";
    theirs[1] = (char *)"--benchmark_min_time=0.05"; /* hundreds of benchmarks; a later word of the user's wins */
    LS_TRY(check_flags(count, theirs));
    ls_rc rc = ls_micro_benchmarks(options);
    if (rc == LS_OK) {
        rc = ls_gbench_run(count, theirs);
    }
    ls_micro_benchmarks_end();
    return rc;
}

static const char usage[] =
    "lockstep micro [--devices N] [--benchmark_filter=REGEX] [--benchmark_format=json] ...\n"
    "       lockstep micro --allreduce|--broadcast|--reduce|--reduce-scatter|--all-gather [-b 8] [-e 64M] [-f 2] ...\n"
    "       lockstep micro --peers [--restarts N] [--rounds N] [--only TEXT]";

/* What a command line asks for. */
enum { BENCHMARKS = 1U << 0, TABLES = 1U << 1, PEERS = 1U << 2, ALL = BENCHMARKS | TABLES | PEERS };

/* As messages say them. */
static const char *name_of(unsigned modes) {
    return modes == BENCHMARKS ? "benchmarks"
           : modes == TABLES   ? "the tables (--allreduce and its like)"
           : modes == PEERS    ? "--peers"
                               : "the tables (--allreduce and its like) and --peers";
}

static unsigned mode_of(const ls_micro_options *o) {
    return o->peers ? PEERS : o->collective != SIZE_MAX ? TABLES : BENCHMARKS;
}

typedef struct micro_flag {
    unsigned modes; /* that read it */
    ls_flag flag;
} micro_flag;

/* An option that the run does not read is refused: whoever gave it expects something of it. */
static ls_rc check_modes(const micro_flag *rows, size_t count, uint64_t given, const ls_micro_options *o) {
    if (o->collective != SIZE_MAX && o->peers) {
        return ls_fail(LS_BAD_INPUT, "--peers and --%s are two runs", ls_micro_collectives[o->collective].name);
    }
    for (size_t i = 0; i < count; i++) {
        if ((given >> i & 1) != 0 && (rows[i].modes & mode_of(o)) == 0) {
            return ls_fail(LS_BAD_INPUT, "option '%s' belongs to %s, not to %s", rows[i].flag.flag,
                           name_of(rows[i].modes), name_of(mode_of(o)));
        }
    }
    return LS_OK;
}

static ls_rc parse_words(int count, char **ours, words *w, ls_micro_options *o, bool *help) {
    const micro_flag rows[] = {
        {ALL, {"--devices", "N", LS_FLAG_SIZE, &o->devices, 1, 31, "ranks of a collective, one a device (2)"}},
        {ALL,
         {"--ranks", "KIND,...", LS_FLAG_TEXT, &w->ranks, 0, 0, "threads, processes (NCCL), mpi (MPI); all three"}},
        {ALL,
         {"--clock", "stream|host", LS_FLAG_TEXT, &w->clock, 0, 0,
          "NCCL: events on the stream, or call and wait as the host sees them (stream)"}},
        {TABLES | PEERS, {"--json", "FILE", LS_FLAG_TEXT, &o->json, 0, 0, "tables and peers: a row a line as well"}},
        {TABLES, {"-b", "BYTES", LS_FLAG_TEXT, &w->min, 0, 0, "tables: smallest size (8; K, M, G)"}},
        {TABLES, {"-e", "BYTES", LS_FLAG_TEXT, &w->max, 0, 0, "tables: largest size (64M)"}},
        {TABLES, {"-i", "BYTES", LS_FLAG_TEXT, &w->step, 0, 0, "tables: size step, in place of a factor"}},
        {TABLES, {"-f", "N", LS_FLAG_SIZE, &o->factor, 2, 1U << 20, "tables: size factor (2)"}},
        {TABLES, {"-n", "N", LS_FLAG_SIZE, &o->iterations, 1, 1000000, "tables: iterations (20)"}},
        {TABLES, {"-w", "N", LS_FLAG_SIZE, &o->warmup, 0, 1000000, "tables: iterations before, not measured (5)"}},
        {TABLES, {"-d", "TYPE", LS_FLAG_TEXT, &w->type, 0, 0, "tables: type of an element, or all (float)"}},
        {TABLES, {"-o", "REDOP", LS_FLAG_TEXT, &w->redop, 0, 0, "tables: sum, prod, max, min, avg or all (sum)"}},
        {TABLES, {"-r", "RANK", LS_FLAG_SIZE, &o->root, 0, 1U << 20, "tables: root of broadcast and reduce (0)"}},
        {TABLES, {"-c", "0|1", LS_FLAG_SIZE, &w->check, 0, 1, "tables: count wrong elements (1)"}},
        {ALL,
         {"--peers", NULL, LS_FLAG_SWITCH, &o->peers, 0, 0, "ratios to MPI, memory bandwidth and FMA peak, by turns"}},
        {PEERS, {"--restarts", "N", LS_FLAG_SIZE, &o->restarts, 1, 1000, "peers: fresh ranks so often (3)"}},
        {PEERS, {"--rounds", "N", LS_FLAG_SIZE, &o->rounds, 1, 1000, "peers: turns with each (5)"}},
        {PEERS, {"--only", "TEXT", LS_FLAG_TEXT, &o->only, 0, 0, "peers: rows with this in their name"}},
    };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    ls_flag flags[ROWS + 1] = {{.flag = NULL}};
    for (size_t i = 0; i < ROWS; i++) {
        flags[i] = rows[i].flag;
    }
    ls_flag_words found;
    LS_TRY(ls_flags_parse(flags, usage, count, ours, 0, &found, help));
    return *help ? LS_OK : check_modes(rows, ROWS, found.given, o);
}

static ls_rc run_micro(int argc, char **argv, char **ours, char **theirs) {
    words w = {
        .ranks = all_kinds, .clock = "stream", .min = "8", .max = "64M", .type = "float", .redop = "sum", .check = 1};
    ls_micro_options o = {
        .devices = 2, .collective = SIZE_MAX, .factor = 2, .iterations = 20, .warmup = 5, .restarts = 3, .rounds = 5};
    bool help = false;
    int our_count = 0, their_count = 2;
    LS_TRY(sort_words(argc, argv, &o, ours, &our_count, theirs, &their_count));
    LS_TRY(parse_words(our_count, ours, &w, &o, &help));
    if (help) {
        ls_gbench_print_flags();
        return LS_OK;
    }
    if (mode_of(&o) != BENCHMARKS && their_count > 2) {
        return ls_fail(LS_BAD_INPUT, "option '%.*s' belongs to %s, not to %s", (int)strcspn(theirs[2], "="), theirs[2],
                       name_of(BENCHMARKS), name_of(mode_of(&o)));
    }
    LS_TRY(ls_launch_refuse_nested("micro"));
    LS_TRY(read_words(&w, &o));
    if (o.json != NULL) {
        LS_TRY(ls_results_check(o.json));
    }
    return o.peers                 ? ls_micro_peers(&o)
           : mode_of(&o) == TABLES ? ls_micro_table(&o)
                                   : run_benchmarks(&o, theirs, their_count);
}

ls_rc ls_command_micro(int argc, char **argv) {
    size_t room = (size_t)argc + 3;
    char **lists = ls_calloc(2 * room, sizeof *lists, "a command line");
    if (lists == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_rc rc = run_micro(argc, argv, lists, lists + room);
    free(lists);
    return rc;
}
