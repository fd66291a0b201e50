/* Settings from the environment, read once. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/base/error.h"
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

static void read_settings(void) {
    settings.devices = (int)read_number("LOCKSTEP_VGPU_COUNT", DEFAULT_DEVICES, 1, VGPU_MAX_DEVICES);
    size_t memory = read_number("LOCKSTEP_VGPU_MEMORY", DEFAULT_MEMORY, smallest_memory, largest_memory);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    settings.memory = (memory + page - 1) / page * page;
}

const vgpu_settings *vgpu_get_settings(void) {
    pthread_once(&once, read_settings);
    return &settings;
}
