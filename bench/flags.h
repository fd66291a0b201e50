/* Options of commands that make no run (`data`, `sampler`): a table of flags with where their values go. Runs have
 * impls/options.h. */
#ifndef LS_BENCH_FLAGS_H
#define LS_BENCH_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/base/error.h"

typedef enum ls_flag_kind {
    LS_FLAG_SWITCH, /* bool, takes no value */
    LS_FLAG_TEXT,   /* const char *, points into argv */
    LS_FLAG_SIZE,   /* size_t */
    LS_FLAG_SEED,   /* uint64_t */
} ls_flag_kind;

typedef struct ls_flag {
    const char *flag;     /* "--epoch"; NULL ends a table */
    const char *argument; /* its name in the help; NULL for a switch */
    ls_flag_kind kind;
    void *to;
    size_t low, high; /* of a size */
    const char *help;
} ls_flag;

typedef struct ls_flag_words {
    const char *words[2]; /* positional; NULL: not given */
    size_t count;
    uint64_t given; /* bit i: the flag in row i of the table was given; rows beyond the 64th have no bit */
} ls_flag_words;

/* Parses the words after a command's name. usage: the line above the options, printed with them for --help, which sets *help.
 * most: positional words allowed, 2 at the most. Unknown flags, missing or wrong values, too many words: one line and
 * LS_BAD_INPUT. */
ls_rc ls_flags_parse(const ls_flag *flags, const char *usage, int argc, char **argv, size_t most, ls_flag_words *words,
                     bool *help);

#endif
