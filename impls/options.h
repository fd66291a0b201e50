/* The option table: one row an option; it feeds the parser, the help text, the rank programs' command lines and the
 * reproducing line of every case. */
#ifndef LS_IMPLS_OPTIONS_H
#define LS_IMPLS_OPTIONS_H

#include "gpu/base/error.h"
#include "impls/run.h"

/* Commands that an option belongs to. */
enum {
    LS_COMMAND_TRAIN = 1u << 0,
    LS_COMMAND_VERIFY = 1u << 1,
    LS_COMMAND_SWEEP = 1u << 2,
    LS_COMMAND_REPORT = 1u << 3,
    LS_COMMAND_INFO = 1u << 4,
    LS_COMMAND_RANK = 1u << 5, /* the hidden rank program */
    LS_COMMAND_EVAL = 1u << 6,
};

enum { LS_MAX_LIST = 16 };

/* Everything that a command line can say. Lists hold one entry where a command takes one value. */
typedef struct ls_options {
    ls_run run; /* the values of single options; impl, devices and model are the lists' first entries */
    size_t impl_count;
    char impls[LS_MAX_LIST][16]; /* "all" is already expanded */
    bool impl_all;               /* --impl all: an implementation that cannot run here is SKIPPED, not an error */
    size_t device_count;
    size_t devices[LS_MAX_LIST];
    bool devices_given; /* false: the command's default, of which only what is present counts */
    size_t model_count;
    char models[LS_MAX_LIST][LS_MODEL_TEXT_SIZE];
    char model_files[LS_MAX_LIST][LS_PATH_SIZE]; /* see ls_run.model_file */
    bool model_all;                              /* --model all */
    size_t dtype_count;
    ls_dtype dtypes[2];
    size_t bucket_count;
    size_t buckets[LS_MAX_LIST];
    size_t ranks_count;
    ls_rank_kind ranks[2];
    size_t scaling_count;
    char scaling[2][8];        /* "weak", "strong" */
    size_t random_count;       /* verify --random: so many drawn cases; 0: not asked for */
    size_t random_case;        /* the first of them */
    bool determinism;          /* verify --determinism */
    bool steps_given;          /* false: the command's default */
    char output[LS_PATH_SIZE]; /* -o */
    char input[LS_PATH_SIZE];  /* report: the result file (positional) */
} ls_options;

/* Fills options with the defaults of command, then parses arguments (without program and command names). Unknown options,
 * options of another command, bad list members and numbers out of range: one line (what, found, expected) and
 * LS_BAD_INPUT. "--help" prints the command's help on stdout and sets *help. */
ls_rc ls_options_parse(unsigned command, int argc, char **argv, ls_options *options, bool *help);

/* Leaves out of a default list of device counts those above `present`; a list that was given stays as it is. */
void ls_options_fit_devices(ls_options *options, size_t present);

/* The options of command as text for --help, on stdout. */
void ls_options_print_help(unsigned command);

/* The command line of one run, as words for argv (NULL-ended, one allocation: free the returned pointer): every option of
 * the run that differs from its default, program and command first. Also what a reproducing line prints. NULL when memory
 * is short. */
char **ls_options_argv(const char *program, unsigned command, const ls_run *run);

/* The same words joined by blanks and quoted for a shell, into text. */
void ls_options_line(const char *program, unsigned command, const ls_run *run, char *text, size_t size);

/* A run filled with the defaults. */
void ls_run_defaults(ls_run *run);

/* Learning rate and hyper-parameters as the optimizer of run->optimizer.kind has them by default. */
void ls_run_optimizer_defaults(ls_run *run);
/* The same as a command has them: verify takes values under which each of them shows in a few steps (weight decay, dampening,
 * an epsilon that is not lost beside the root). */
void ls_run_command_defaults(unsigned command, ls_run *run);

#endif
