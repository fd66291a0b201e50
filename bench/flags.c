#include "bench/flags.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(const ls_flag *flags, const char *usage) {
    printf("usage: %s\n", usage);
    for (const ls_flag *f = flags; f->flag != NULL; f++) {
        char name[64];
        snprintf(name, sizeof name, "%s %s", f->flag, f->argument != NULL ? f->argument : "");
        printf("  %-30s %s\n", name, f->help);
    }
}

static bool read_number(const char *value, unsigned long long *out) {
    char *end = NULL;
    errno = 0;
    *out = strtoull(value, &end, 10);
    return value[0] >= '0' && value[0] <= '9' && *end == '\0' && errno == 0;
}

static ls_rc set(const ls_flag *f, const char *value) {
    unsigned long long number = 0;
    switch (f->kind) {
    case LS_FLAG_SWITCH:
        *(bool *)f->to = true;
        return LS_OK;
    case LS_FLAG_TEXT:
        if (value[0] == '\0') {
            return ls_fail(LS_BAD_INPUT, "option '%s': the value is empty, expected %s", f->flag, f->argument);
        }
        *(const char **)f->to = value;
        return LS_OK;
    case LS_FLAG_SEED:
        if (!read_number(value, &number)) {
            return ls_fail(LS_BAD_INPUT, "option '%s': '%s' is not a whole number from 0", f->flag, value);
        }
        *(uint64_t *)f->to = number;
        return LS_OK;
    case LS_FLAG_SIZE:
        break;
    }
    if (!read_number(value, &number) || number < f->low || number > f->high) {
        return ls_fail(LS_BAD_INPUT, "option '%s': '%s' is not a whole number from %zu to %zu", f->flag, value, f->low,
                       f->high);
    }
    *(size_t *)f->to = (size_t)number;
    return LS_OK;
}

static const ls_flag *find(const ls_flag *flags, const char *word, size_t length) {
    for (const ls_flag *f = flags; f->flag != NULL; f++) {
        if (strlen(f->flag) == length && strncmp(f->flag, word, length) == 0) {
            return f;
        }
    }
    return NULL;
}

/* One flag; *used: how many words it took. */
static ls_rc parse_flag(const ls_flag *flags, int count, char **words, int *used, uint64_t *given) {
    const char *equals = strchr(words[0], '=');
    size_t length = equals != NULL ? (size_t)(equals - words[0]) : strlen(words[0]);
    const ls_flag *f = find(flags, words[0], length);
    *used = 1;
    if (f == NULL) {
        return ls_fail(LS_BAD_INPUT, "unknown option '%.*s'; --help lists the options", (int)length, words[0]);
    }
    *given |= f - flags < 64 ? UINT64_C(1) << (f - flags) : 0;
    if (f->kind == LS_FLAG_SWITCH) {
        return equals == NULL ? set(f, "")
                              : ls_fail(LS_BAD_INPUT, "option '%s' takes no value, found '%s'", f->flag, equals + 1);
    }
    if (equals != NULL) {
        return set(f, equals + 1);
    }
    if (count < 2) {
        return ls_fail(LS_BAD_INPUT, "option '%s' needs a value: %s", f->flag, f->argument);
    }
    *used = 2;
    return set(f, words[1]);
}

ls_rc ls_flags_parse(const ls_flag *flags, const char *usage, int argc, char **argv, size_t most, ls_flag_words *words,
                     bool *help) {
    *words = (ls_flag_words){0};
    *help = false;
    for (int i = 0, used = 0; i < argc; i += used) {
        used = 1;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(flags, usage);
            *help = true;
            return LS_OK;
        }
        if (argv[i][0] == '-') {
            LS_TRY(parse_flag(flags, argc - i, argv + i, &used, &words->given));
        } else if (words->count < most) {
            words->words[words->count++] = argv[i];
        } else {
            return ls_fail(LS_BAD_INPUT, "unexpected word '%s'; usage: %s", argv[i], usage);
        }
    }
    return LS_OK;
}
