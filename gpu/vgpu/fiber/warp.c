/* Warp operations: each lane of a mask brings its part; the last to come computes the results of all. A lane that has ended
 * or does not exist is not waited for, as on a device, but its value must not be read. */
#include <string.h>

#include "gpu/vgpu/fiber/block.h"

const char *fiber_operation_name(ls_fiber_operation operation) {
    static const char *const names[] = {"__shfl_sync",   "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync",
                                        "__ballot_sync", "__any_sync",     "__all_sync",       "__syncwarp"};
    return names[operation];
}

static uint64_t poison(void) {
    uint64_t value;
    memset(&value, LS_FIBER_POISON, sizeof value);
    return value;
}

/* The lane's thread if it waits in the operation that thread is in; else NULL. */
static fiber_thread *companion(unsigned thread, unsigned lane) {
    const fiber_thread *self = &fiber_now.thread[thread];
    unsigned other = thread / FIBER_WARP * FIBER_WARP + lane;
    if (other >= fiber_now.threads) {
        return NULL;
    }
    fiber_thread *t = &fiber_now.thread[other];
    bool same = t->state == FIBER_IN_WARP && t->operation == self->operation && t->mask == self->mask;
    return same ? t : NULL;
}

/* Every lane of the mask is in the operation, or will never be. */
static bool complete(unsigned thread) {
    for (unsigned lane = 0; lane < FIBER_WARP; lane++) {
        unsigned other = thread / FIBER_WARP * FIBER_WARP + lane;
        bool expected = (fiber_now.thread[thread].mask >> lane & 1u) != 0 && other < fiber_now.threads &&
                        fiber_now.thread[other].state != FIBER_ENDED;
        if (expected && companion(thread, lane) == NULL) {
            return false;
        }
    }
    return true;
}

/* The lane that a shuffle reads from (CUDA C++ Programming Guide, "Warp Shuffle Functions"): its own where the source lies
 * outside its group of width lanes; xor may reach an earlier group. */
static unsigned source_lane(const fiber_thread *t, unsigned lane) {
    unsigned width = (unsigned)t->width, argument = (unsigned)t->argument;
    unsigned first = lane & ~(width - 1), last = first + width - 1;
    switch (t->operation) {
    case LS_FIBER_SHFL:
        return first + (argument & (width - 1));
    case LS_FIBER_SHFL_UP:
        return argument > lane - first ? lane : lane - argument;
    case LS_FIBER_SHFL_DOWN:
        return argument > last - lane ? lane : lane + argument;
    default:
        return (lane ^ argument) > last ? lane : lane ^ argument;
    }
}

static uint64_t vote(const fiber_thread *t, unsigned lanes, unsigned ballot) {
    return t->operation == LS_FIBER_BALLOT ? ballot
           : t->operation == LS_FIBER_ANY  ? ballot != 0
                                           : (ballot & lanes) == lanes;
}

static uint64_t shuffle(unsigned thread, const uint64_t *values, unsigned lanes) {
    const fiber_thread *t = &fiber_now.thread[thread];
    unsigned source = source_lane(t, thread % FIBER_WARP);
    if ((lanes >> source & 1u) == 0) {
        fiber_report(t->place, "thread %u: %s, mask %#x, reads from lane %u, which takes no part", thread,
                     fiber_operation_name(t->operation), t->mask, source);
        return poison();
    }
    return values[source];
}

/* After __syncwarp each lane knows what the others did before it. */
static void synchronise(unsigned first, unsigned lanes) {
    uint32_t joined[FIBER_WARP] = {0};
    for (unsigned l = 0; l < FIBER_WARP; l++) {
        for (unsigned k = 0; k < FIBER_WARP && (lanes >> l & 1u) != 0; k++) {
            const fiber_thread *t = &fiber_now.thread[first + l];
            uint32_t known = k == l ? t->time : t->knows[k];
            joined[k] = known > joined[k] ? known : joined[k];
        }
    }
    for (unsigned l = 0; l < FIBER_WARP; l++) {
        if ((lanes >> l & 1u) != 0) {
            memcpy(fiber_now.thread[first + l].knows, joined, sizeof joined);
            fiber_now.thread[first + l].time++;
        }
    }
}

/* Gives the results of the operation that thread waits in to all of its lanes and wakes them. */
static void finish(unsigned thread) {
    unsigned first = thread / FIBER_WARP * FIBER_WARP;
    uint64_t values[FIBER_WARP] = {0};
    unsigned lanes = 0, ballot = 0;
    for (unsigned l = 0; l < FIBER_WARP; l++) {
        const fiber_thread *t = companion(thread, l);
        if (t != NULL && (fiber_now.thread[thread].mask >> l & 1u) != 0) {
            values[l] = t->value;
            lanes |= 1u << l;
            ballot |= t->value != 0 ? 1u << l : 0;
        }
    }
    if (fiber_now.thread[thread].operation == LS_FIBER_SYNCWARP) {
        synchronise(first, lanes);
    }
    for (unsigned l = 0; l < FIBER_WARP; l++) {
        if ((lanes >> l & 1u) != 0) {
            fiber_thread *t = &fiber_now.thread[first + l];
            t->value = t->operation < LS_FIBER_BALLOT ? shuffle(first + l, values, lanes) : vote(t, lanes, ballot);
            fiber_wake(first + l);
        }
    }
}

void fiber_warp_ended(unsigned thread) {
    unsigned first = thread / FIBER_WARP * FIBER_WARP;
    for (unsigned t = first; t < first + FIBER_WARP && t < fiber_now.threads; t++) {
        if (fiber_now.thread[t].state == FIBER_IN_WARP && complete(t)) {
            finish(t);
        }
    }
}

uint64_t ls_fiber_warp(ls_fiber_operation operation, unsigned mask, uint64_t value, int argument, int width,
                       ls_fiber_place place) {
    unsigned thread = fiber_now.current;
    fiber_thread *self = &fiber_now.thread[thread];
    if ((mask >> thread % FIBER_WARP & 1u) == 0) {
        fiber_report(place, "thread %u: %s, mask %#x, is called by lane %u, which is not in the mask", thread,
                     fiber_operation_name(operation), mask, thread % FIBER_WARP);
        return poison();
    }
    if (width < 1 || width > FIBER_WARP || (width & (width - 1)) != 0) {
        fiber_report(place, "thread %u: %s of width %d, expected a power of two up to 32", thread,
                     fiber_operation_name(operation), width);
        return poison();
    }
    self->operation = operation;
    self->mask = mask;
    self->value = value;
    self->argument = argument;
    self->width = width;
    self->place = place;
    self->state = FIBER_IN_WARP;
    if (complete(thread)) {
        finish(thread);
    }
    fiber_wait(self->state, place); /* woken already when it was the last to come */
    return self->value;
}
