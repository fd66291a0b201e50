/* Waiting: spin briefly, yield, then sleep on a futex. Long spins cost ten times the hand-over when there are more threads
 * than cores, so the spin is short. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gpu/vgpu/runtime.h"

static long futex(_Atomic unsigned *word, int operation, unsigned value, const struct timespec *timeout) {
    return syscall(SYS_futex, (void *)word, operation, value, timeout, NULL, FUTEX_BITSET_MATCH_ANY);
}

void vgpu_sleep(_Atomic unsigned *word, unsigned expected) {
    futex(word, FUTEX_WAIT_PRIVATE, expected, NULL);
}

void vgpu_wake(_Atomic unsigned *word, int sleepers) {
    futex(word, FUTEX_WAKE_PRIVATE, (unsigned)sleepers, NULL);
}

unsigned long long vgpu_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000ULL + (unsigned long long)now.tv_nsec;
}

/* A yield gives up the thread's whole claim to the core. Where another program is busy there, it returns after that one's time
 * slices, milliseconds later, and again each time; a sleeper is preferred when it wakes. */
bool vgpu_yield(void) {
    enum { LONG_NS = 1000000, SLEEPS = 1000 };
    static _Thread_local unsigned sleeps;
    if (sleeps > 0) {
        sleeps--;
        return false;
    }
    unsigned long long before = vgpu_now_ns();
    sched_yield();
    if (vgpu_now_ns() - before > LONG_NS) {
        sleeps = SLEEPS;
    }
    return true;
}

int vgpu_wait_while(_Atomic unsigned *word, unsigned expected, unsigned long long deadline_ns) {
    for (int i = 0; i < VGPU_SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != expected) {
            return 0;
        }
        vgpu_relax();
    }
    for (int i = 0; i < VGPU_YIELDS && vgpu_yield(); i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != expected) {
            return 0;
        }
    }
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / 1000000000ULL),
                                .tv_nsec = (long)(deadline_ns % 1000000000ULL)};
    while (atomic_load_explicit(word, memory_order_acquire) == expected) {
        /* FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time; without FUTEX_PRIVATE_FLAG it works across processes. */
        long slept = futex(word, FUTEX_WAIT_BITSET, expected, deadline_ns != 0 ? &deadline : NULL);
        if (slept != 0 && errno == ETIMEDOUT) {
            return atomic_load_explicit(word, memory_order_acquire) != expected ? 0 : -1;
        }
    }
    return 0;
}

void vgpu_wake_all(_Atomic unsigned *word) {
    futex(word, FUTEX_WAKE, INT_MAX, NULL);
}
