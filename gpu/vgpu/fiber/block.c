/* The threads of a block on fibers, and __syncthreads. Contexts are few when nothing waits: one runs thread after thread
 * until a thread waits, then the next takes over. */
#include "gpu/vgpu/fiber/block.h"

#include <stdio.h>

#include "gpu/base/error.h"

ls_fiber_index threadIdx, blockIdx, blockDim, gridDim;
fiber_block fiber_now = {.kernel = "none"};

static ls_fiber_config config = {.block = 256};
static fiber_context scheduler;
static fiber_context *contexts; /* LS_FIBER_MAX_THREADS, made by the first launch */
static fiber_context *running;
static fiber_context *idle[LS_FIBER_MAX_THREADS];
static size_t idle_count;

static void (*body)(void *);
static void *body_arguments;
static unsigned order[LS_FIBER_MAX_THREADS]; /* in which threads start */
static unsigned started, ended;              /* of the block */
static bool abandoned;                       /* the block: its waiting threads never go on */

static unsigned ready[LS_FIBER_MAX_THREADS]; /* a ring: each thread is in it once at most */
static size_t ready_first, ready_count;

void ls_fiber_configure(ls_fiber_config given) {
    config = given;
}

unsigned ls_fiber_block_threads(void) {
    return config.block;
}

static void become(unsigned thread) {
    fiber_now.current = thread;
    threadIdx.x = thread;
}

/* What a context does: it starts threads while there are any, and rests in between. */
static void work(void) {
    (void)setjmp(running->restart);
    for (;;) {
        while (started < fiber_now.threads) {
            unsigned thread = order[started++];
            fiber_now.thread[thread].state = FIBER_READY;
            fiber_now.thread[thread].context = running;
            become(thread);
            body(body_arguments);
            thread = fiber_now.current;
            fiber_now.thread[thread].state = FIBER_ENDED;
            ended++;
            fiber_warp_ended(thread);
        }
        idle[idle_count++] = running;
        fiber_switch(running, &scheduler);
    }
}

static void resume(fiber_context *context) {
    running = context;
    fiber_switch(&scheduler, context);
}

void fiber_wait(fiber_state state, ls_fiber_place place) {
    fiber_thread *self = &fiber_now.thread[fiber_now.current];
    self->state = state;
    self->place = place;
    fiber_switch(running, &scheduler);
    if (abandoned) {
        longjmp(running->restart, 1); /* the kernel's frames have nothing to clean up */
    }
}

void fiber_wake(unsigned thread) {
    fiber_now.thread[thread].state = FIBER_READY;
    ready[(ready_first + ready_count++) % LS_FIBER_MAX_THREADS] = thread;
}

static void resume_ready(void) {
    unsigned thread = ready[ready_first];
    ready_first = (ready_first + 1) % LS_FIBER_MAX_THREADS;
    ready_count--;
    become(thread);
    resume(fiber_now.thread[thread].context);
}

static void new_interval(void) {
    fiber_now.interval++;
    for (unsigned t = 0; t < fiber_now.threads; t++) {
        fiber_thread *thread = &fiber_now.thread[t];
        thread->time = 1;
        for (unsigned l = 0; l < FIBER_WARP; l++) {
            thread->knows[l] = 0;
        }
    }
}

void ls_fiber_barrier(ls_fiber_place place) {
    if (++fiber_now.thread[fiber_now.current].barriers == config.drop_barrier) {
        return;
    }
    fiber_wait(FIBER_AT_BARRIER, place);
}

static bool alike(const fiber_thread *a, const fiber_thread *b) {
    return a->state == b->state && (a->state == FIBER_ENDED || a->place.line == b->place.line);
}

static void describe(char *text, size_t bytes, unsigned thread) {
    const fiber_thread *t = &fiber_now.thread[thread];
    unsigned others = 0;
    for (unsigned i = 0; i < fiber_now.threads; i++) {
        others += i != thread && alike(t, &fiber_now.thread[i]) ? 1 : 0;
    }
    char who[64];
    (void)snprintf(who, sizeof who, others > 0 ? "thread %u (and %u more)" : "thread %u", thread, others);
    if (t->state == FIBER_ENDED) {
        (void)snprintf(text, bytes, "%s has ended", who);
    } else if (t->state == FIBER_AT_BARRIER) {
        (void)snprintf(text, bytes, "%s waits at __syncthreads, %s:%d", who, t->place.file, t->place.line);
    } else {
        (void)snprintf(text, bytes, "%s waits in %s, mask %#x, %s:%d", who, fiber_operation_name(t->operation), t->mask,
                       t->place.file, t->place.line);
    }
}

/* No thread can go on. a: one that waits, at a barrier if any does; b: the first that is elsewhere. */
static void report_stuck(unsigned a) {
    unsigned b = 0;
    char waits[160], elsewhere[160];
    while (b + 1 < fiber_now.threads && alike(&fiber_now.thread[a], &fiber_now.thread[b])) {
        b++;
    }
    describe(waits, sizeof waits, a);
    describe(elsewhere, sizeof elsewhere, b);
    if (fiber_now.thread[a].state == FIBER_AT_BARRIER) {
        fiber_report(fiber_now.thread[a].place, "barrier divergence: %s; %s", waits, elsewhere);
    } else {
        fiber_report(fiber_now.thread[a].place, "a warp operation lacks lanes: %s; %s", waits, elsewhere);
    }
}

/* All threads wait or have ended: they go on if all wait at one barrier. */
static bool release_barrier(void) {
    unsigned waiting = 0, first = 0;
    for (unsigned t = fiber_now.threads; t-- > 0;) {
        const fiber_thread *thread = &fiber_now.thread[t];
        bool barrier = thread->state == FIBER_AT_BARRIER;
        first = barrier || (thread->state == FIBER_IN_WARP && waiting == 0) ? t : first;
        waiting += barrier ? 1 : 0;
    }
    bool together = waiting == fiber_now.threads;
    for (unsigned t = 0; t < fiber_now.threads && together; t++) {
        together = alike(&fiber_now.thread[first], &fiber_now.thread[t]);
    }
    if (!together) {
        report_stuck(first);
        return false;
    }
    new_interval();
    for (unsigned t = 0; t < fiber_now.threads; t++) {
        fiber_wake(order[t]);
    }
    return true;
}

/* Ends the fibers of all threads that wait, so that their stacks are free again. */
static void abandon(void) {
    abandoned = true;
    for (unsigned t = 0; t < fiber_now.threads; t++) {
        if (fiber_now.thread[t].state != FIBER_ENDED) {
            resume(fiber_now.thread[t].context);
        }
    }
    abandoned = false;
}

static bool run_block(unsigned index) {
    fiber_now.index = index;
    fiber_now.number++;
    blockIdx.x = index;
    started = 0;
    ended = 0;
    for (unsigned t = 0; t < fiber_now.threads; t++) {
        fiber_now.thread[t].state = FIBER_NEW;
        fiber_now.thread[t].barriers = 0;
    }
    new_interval();
    while (ended < fiber_now.threads) {
        if (ready_count > 0) {
            resume_ready();
        } else if (started < fiber_now.threads) {
            resume(idle[--idle_count]);
        } else if (!release_barrier()) {
            abandon();
            return false;
        }
    }
    return true;
}

/* Fisher and Yates, over a linear congruential generator: any order will do. */
static void draw_order(void) {
    uint64_t state = config.order;
    for (unsigned t = 0; t < fiber_now.threads; t++) {
        order[t] = t;
    }
    for (unsigned t = fiber_now.threads; config.order != 0 && t > 1; t--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned with = (unsigned)((state >> 33) % t);
        unsigned kept = order[t - 1];
        order[t - 1] = order[with];
        order[with] = kept;
    }
}

static bool ready_to_run(size_t dynamic_bytes) {
    if (contexts == NULL) {
        contexts = fiber_contexts_open(LS_FIBER_MAX_THREADS, work);
        if (contexts == NULL) {
            return false;
        }
        fiber_context_main(&scheduler);
        for (size_t i = 0; i < LS_FIBER_MAX_THREADS; i++) {
            idle[idle_count++] = &contexts[i];
        }
    }
    return fiber_dynamic_open(dynamic_bytes);
}

cudaError_t ls_fiber_launch(const char *kernel, unsigned blocks, size_t dynamic_bytes, void (*run)(void *),
                            void *arguments) {
    if (blocks == 0 || config.block == 0 || config.block > LS_FIBER_MAX_THREADS) {
        return cudaErrorInvalidConfiguration;
    }
    if (!ready_to_run(dynamic_bytes)) {
        return cudaErrorMemoryAllocation;
    }
    size_t before = ls_fiber_reports();
    unsigned grid = config.grid > 0 && config.grid < blocks ? config.grid : blocks;
    fiber_now.kernel = kernel;
    fiber_now.threads = config.block;
    blockDim.x = config.block;
    gridDim.x = grid;
    body = run;
    body_arguments = arguments;
    draw_order();
    bool complete = true;
    for (unsigned b = 0; b < grid && complete; b++) {
        complete = run_block(b);
    }
    fiber_outputs_check();
    fiber_dynamic_close();
    return ls_fiber_reports() > before ? cudaErrorLaunchFailure : cudaSuccess;
}
