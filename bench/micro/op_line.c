/* How long a cache line takes from one rank to another and back. Every collective of small size moves with it, and on a shared
 * machine it changes from one minute to the next: it is printed beside them. */
#include <sched.h>
#include <stdlib.h>

#include "bench/micro/ops.h"
#include "gpu/base/clock.h"

enum { TRIPS = 200 };

static ls_rc line_open(ls_micro_place *place, const ls_micro_job *job, void **self) {
    (void)job;
    *self = place;
    return LS_OK;
}

/* Ranks 0 and 1 write the numbers 0, 1, 2, ... in turn, each after it has seen the one before. */
static void play(ls_micro_page *page, uint32_t rank) {
    const int spins = 1000; /* then the other has no core */
    for (uint32_t i = rank; i < 2 * TRIPS; i += 2) {
        for (int spun = 0; atomic_load_explicit(&page->ball, memory_order_acquire) != i; spun++) {
            if (spun >= spins) {
                sched_yield();
            }
        }
        atomic_store_explicit(&page->ball, i + 1, memory_order_release);
    }
}

static ls_rc line_measure(void *self, size_t iterations, double *seconds) {
    ls_micro_place *place = self;
    for (size_t i = 0; i < iterations; i++) {
        if (place->rank == 0) {
            atomic_store(&place->page->ball, 0);
        }
        ls_micro_page_barrier(place->page);
        double begin = ls_now_seconds();
        if (place->rank < 2 && place->world > 1) {
            play(place->page, (uint32_t)place->rank);
        }
        seconds[i] = (ls_now_seconds() - begin) / TRIPS;
        ls_micro_page_barrier(place->page); /* rank 0 begins anew only when rank 1 has seen the end */
    }
    return LS_OK;
}

static void line_close(void *self) {
    (void)self; /* the place is not ours */
}

const ls_micro_op ls_micro_op_line = {.name = "line", .open = line_open, .measure = line_measure, .close = line_close};
