/* Settings from the environment, read once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/math/direct.h"
#include "gpu/vgpu/runtime.h"

#if defined(__has_feature)
#define SANITIZER(name) __has_feature(name)
#else
#define SANITIZER(name) 0
#endif

/* Sanitizers shadow every mapped byte, so devices are smaller there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || SANITIZER(address_sanitizer) || \
    SANITIZER(thread_sanitizer)
#define DEFAULT_MEMORY ((size_t)1 << 30)
#else
#define DEFAULT_MEMORY ((size_t)8 << 30)
#endif

enum { DEFAULT_DEVICES = 16 };
static const size_t smallest_memory = (size_t)1 << 20;
static const size_t largest_memory = (size_t)1 << 40;

static vgpu_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A whole number from low to high, or an error line. */
static size_t read_number(const char *name, size_t fallback, size_t low, size_t high) {
    const char *text = getenv(name);
    if (text == NULL) {
        return fallback;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < low || value > high) {
        settings.status = cudaErrorInvalidDevice;
        ls_notice("environment: %s is '%s', expected a whole number from %zu to %zu; unset it for %zu", name, text, low,
                  high, fallback);
        return fallback;
    }
    return (size_t)value;
}

static void refuse(const char *name, const char *text, const char *expected) {
    settings.status = cudaErrorInvalidDevice;
    ls_notice("environment: %s is '%s', expected %s; unset it for none of this", name, text, expected);
}

/* A switch: 0 or 1, or an error line. */
static bool read_switch(const char *name, bool fallback) {
    const char *text = getenv(name);
    if (text == NULL) {
        return fallback;
    }
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        refuse(name, text, "0 or 1");
    }
    return strcmp(text, "1") == 0;
}

static void read_sched(void) {
    static const char name[] = "LOCKSTEP_VGPU_SCHED";
    static const char fuzz[] = "fuzz:";
    const char *text = getenv(name);
    if (text == NULL || strcmp(text, "async") == 0) {
        return;
    }
    if (strcmp(text, "check") == 0) {
        vgpu_mode.sched = VGPU_CHECK;
    } else if (strcmp(text, "isolate") == 0) {
        vgpu_mode.sched = VGPU_ISOLATE;
    } else {
        const char *digits = strncmp(text, fuzz, sizeof fuzz - 1) == 0 ? text + sizeof fuzz - 1 : "";
        char *end = NULL;
        errno = 0;
        vgpu_mode.seed = strtoull(digits, &end, 10);
        if (digits[0] < '0' || digits[0] > '9' || *end != '\0' || errno != 0) {
            refuse(name, text, "async, check, isolate or fuzz:SEED with a whole number");
            return;
        }
        vgpu_mode.sched = VGPU_FUZZ;
    }
}

static void read_modes(void) {
    static const char guard[] = "LOCKSTEP_VGPU_GUARD";
    static const char delay[] = "LOCKSTEP_VGPU_DELAY";
    read_sched();
    vgpu_mode.guard = read_switch(guard, false);
    if (vgpu_mode.guard && vgpu_mode.sched == VGPU_ISOLATE) {
        refuse(guard, "1", "0 together with LOCKSTEP_VGPU_SCHED=isolate");
    }
    const char *text = getenv(delay);
    if (text != NULL && !vgpu_delay_parse(text)) {
        refuse(delay, text,
               "WHAT[@DEVICE]=TIME,... with kernel, copy, fill, collective, all or name:TEXT, and a time like 2ms, "
               "500us or "
               "1s, at most 60s");
    }
    vgpu_mode.delays = text != NULL;
    vgpu_mode.inspects = vgpu_mode.guard || vgpu_mode.sched == VGPU_CHECK || vgpu_mode.sched == VGPU_ISOLATE;
    vgpu_wants_access = vgpu_mode.inspects;
}

static void read_settings(void) {
    settings.devices = (int)read_number("LOCKSTEP_VGPU_COUNT", DEFAULT_DEVICES, 1, VGPU_MAX_DEVICES);
    size_t memory = read_number("LOCKSTEP_VGPU_MEMORY", DEFAULT_MEMORY, smallest_memory, largest_memory);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    settings.memory = (memory + page - 1) / page * page;
    settings.fuses = read_switch("LOCKSTEP_VGPU_FUSE", true);
    settings.copies = read_switch("LOCKSTEP_VGPU_COPY_ENGINES", false);
    if (direct_isa_select() == NULL) { /* after its line */
        settings.status = cudaErrorInvalidDevice;
    }
    read_modes();
}

const vgpu_settings *vgpu_get_settings(void) {
    pthread_once(&once, read_settings);
    return &settings;
}
