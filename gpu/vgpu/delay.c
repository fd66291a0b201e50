/* LOCKSTEP_VGPU_DELAY: operations that start late, so that whoever relies on time instead of waiting is found. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/vgpu/modes.h"

enum { MOST_DELAYS = 16, ANY_DEVICE = -1 };

typedef struct delay {
    vgpu_kind kind; /* VGPU_NOTHING: of any kind */
    int device;
    char name[64]; /* part of the operation's name; empty: any */
    long long ns;
} delay;

static delay delays[MOST_DELAYS];
static size_t delay_count;

/* "2ms", "150us", "1s". */
static bool parse_time(const char *text, size_t length, long long *ns) {
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *end = NULL;
    double value = strtod(text, &end);
    size_t used = (size_t)(end - text);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (used > 0 && used < length && length - used == strlen(units[i].unit) &&
            memcmp(end, units[i].unit, length - used) == 0 && value >= 0 && value * units[i].ns <= 60e9) {
            *ns = (long long)(value * units[i].ns);
            return true;
        }
    }
    return false;
}

/* "kernel", "copy", "fill", "collective", "all" or "name:TEXT". */
static bool parse_what(const char *text, size_t length, delay *out) {
    static const struct {
        const char *name;
        vgpu_kind kind;
    } kinds[] = {{"all", VGPU_NOTHING},
                 {"kernel", VGPU_KERNEL},
                 {"copy", VGPU_COPY},
                 {"fill", VGPU_FILL},
                 {"collective", VGPU_COLLECTIVE}};
    static const char prefix[] = "name:";
    size_t skip = sizeof prefix - 1;
    if (length > skip && length - skip < sizeof out->name && memcmp(text, prefix, skip) == 0) {
        out->kind = VGPU_NOTHING;
        memcpy(out->name, text + skip, length - skip);
        return true;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strlen(kinds[i].name) == length && memcmp(text, kinds[i].name, length) == 0) {
            out->kind = kinds[i].kind;
            return true;
        }
    }
    return false;
}

/* WHAT[@DEVICE]=TIME */
static bool parse_one(const char *text, size_t length) {
    delay parsed = {.device = ANY_DEVICE};
    const char *equals = memchr(text, '=', length);
    if (equals == NULL || delay_count == MOST_DELAYS) {
        return false;
    }
    size_t what = (size_t)(equals - text);
    const char *at = memchr(text, '@', what);
    if (at != NULL) {
        char *end = NULL;
        errno = 0;
        long device = strtol(at + 1, &end, 10);
        if (at[1] < '0' || at[1] > '9' || end != equals || errno != 0 || device > 1023) {
            return false;
        }
        parsed.device = (int)device;
        what = (size_t)(at - text);
    }
    if (!parse_what(text, what, &parsed) || !parse_time(equals + 1, length - (size_t)(equals + 1 - text), &parsed.ns)) {
        return false;
    }
    delays[delay_count] = parsed;
    delay_count++;
    return true;
}

bool vgpu_delay_parse(const char *text) {
    for (;;) {
        size_t length = strcspn(text, ",");
        if (!parse_one(text, length)) {
            return false;
        }
        if (text[length] == '\0') {
            return true;
        }
        text += length + 1;
    }
}

void vgpu_delay(vgpu_kind kind, const char *name, int device) {
    vgpu_kind asked = kind == VGPU_PEER_COPY ? VGPU_COPY : kind;
    for (size_t i = 0; i < delay_count; i++) {
        const delay *d = &delays[i];
        if ((d->kind == VGPU_NOTHING || d->kind == asked) && (d->device == ANY_DEVICE || d->device == device) &&
            (d->name[0] == '\0' || strstr(name, d->name) != NULL)) {
            struct timespec left = {.tv_sec = (time_t)(d->ns / 1000000000LL), .tv_nsec = (long)(d->ns % 1000000000LL)};
            while (nanosleep(&left, &left) != 0 && errno == EINTR) {
            }
        }
    }
}
