/* Another order of operations for each seed, among those that streams and events allow.
 *
 * Nothing runs because it could: operations stay queued until a host thread waits for them, and then only those run that it
 * needs, one at a time, in an order drawn from the seed. Three seeds of four also run operations that nobody needs yet, and two of
 * them by priorities of the streams that change now and then, so that one stream runs far ahead of another (after PCT:
 * Burckhardt, Kothari, Musuvathi, Nagarakatte 2010). So what relies on a wait that is missing finds its input old, or its output still wanted. A collective runs with its peers: the parts of other
 * ranks in this process are needed with it, those of other processes enter when their own scheduler lets them.
 *
 * What runs next is decided here; the streams' threads run it, each granted one operation at a time. Operations that may wait for
 * something outside (collectives, host functions) do not hold up the others. Where nobody waits for a while (a host thread that
 * waits for another process, or that polls) a ticker lets the oldest work go on, so that everything runs in the end. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/runtime.h"

/* Idle time after which the ticker steps in, and between its steps then. Far beyond what a busy host needs between two calls,
 * since its steps make the order depend on time. */
static const long patience_ns = 100000000L;
static const long step_ns = 1000000L;

typedef struct joint_part {
    vgpu_joint joint;
    vgpu_stream *stream;
    uint64_t position;
} joint_part;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something was submitted or has completed */
    vgpu_stream **streams;  /* [count]: all that have ever started */
    size_t count, capacity;
    joint_part *parts; /* [part_count]: queued, not completed */
    size_t part_count, part_capacity;
    vgpu_stream *busy; /* runs an operation that the rest waits for; NULL: none */
    uint64_t random;
    bool seeded;
    uint64_t activity; /* counts submissions and grants */
    uint64_t phase;    /* changes the priorities */
    bool ticking;      /* the ticker runs */
} fuzz = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(void) {
    if (!fuzz.seeded) {
        fuzz.random = vgpu_mode.seed;
        fuzz.seeded = true;
    }
    fuzz.random += 0x9E3779B97F4A7C15ULL;
    uint64_t z = fuzz.random;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

/* A property of the seed: how often an operation that nobody needs runs, in eighths, and whether streams have priorities. */
static uint64_t eagerness(void) {
    static const uint64_t eighths[] = {0, 2, 4, 7};
    return eighths[vgpu_mode.seed % 4];
}

static bool by_priority(void) {
    return vgpu_mode.seed % 4 >= 2;
}

static uint64_t priority(size_t stream) {
    uint64_t before = fuzz.random;
    fuzz.random = fuzz.phase + stream;
    uint64_t drawn = draw();
    fuzz.random = before;
    return drawn;
}

static void *grown(void *list, size_t *capacity, size_t element) {
    size_t more = *capacity == 0 ? 64 : 2 * *capacity;
    void *made = realloc(list, more * element);
    if (made == NULL) {
        ls_notice("out of memory for LOCKSTEP_VGPU_SCHED=fuzz");
        abort();
    }
    *capacity = more;
    return made;
}

/* What follows is called with the lock held, but for the calls of modes.h. */

static bool running(vgpu_stream *stream) {
    return atomic_load(&stream->granted) > atomic_load(&stream->completed);
}

static bool has_work(vgpu_stream *stream) {
    return atomic_load(&stream->submitted) > atomic_load(&stream->completed);
}

static const vgpu_queued *head(vgpu_stream *stream) {
    return &stream->ring[atomic_load(&stream->completed) % VGPU_RING];
}

static bool runnable(vgpu_stream *stream) {
    if (running(stream) || !has_work(stream)) {
        return false;
    }
    const vgpu_queued *next = head(stream);
    return next->wait_stream == NULL || vgpu_stream_reached(next->wait_stream, next->wait_position);
}

static bool may_block(const vgpu_queued *operation) {
    return operation->kind == VGPU_COLLECTIVE || operation->kind == VGPU_HOST_FUNCTION;
}

static void grant(vgpu_stream *stream) {
    fuzz.activity++;
    fuzz.busy = may_block(head(stream)) ? fuzz.busy : stream;
    vgpu_stream_grant(stream);
}

static void drop_finished_parts(void) {
    size_t kept = 0;
    for (size_t i = 0; i < fuzz.part_count; i++) {
        if (!vgpu_stream_reached(fuzz.parts[i].stream, fuzz.parts[i].position)) {
            fuzz.parts[kept] = fuzz.parts[i];
            kept++;
        }
    }
    fuzz.part_count = kept;
}

/* Raises what is needed of a stream; true when that was less. */
static bool need(vgpu_stream *stream, uint64_t position) {
    if (position <= stream->needed || vgpu_stream_reached(stream, position)) {
        return false;
    }
    stream->needed = position;
    return true;
}

/* What the needed entries of a stream need themselves. */
static bool need_behind(vgpu_stream *stream) {
    bool more = false;
    for (uint64_t p = atomic_load(&stream->completed); p < stream->needed; p++) {
        const vgpu_queued *entry = &stream->ring[p % VGPU_RING];
        if (entry->wait_stream != NULL) {
            more = need(entry->wait_stream, entry->wait_position) || more;
        }
        for (size_t i = 0; i < fuzz.part_count && entry->joint.parts > 1; i++) {
            const joint_part *other = &fuzz.parts[i];
            if (other->joint.clique == entry->joint.clique && other->joint.sequence == entry->joint.sequence) {
                more = need(other->stream, other->position) || more;
            }
        }
    }
    return more;
}

static void find_needed(vgpu_stream *stream, uint64_t position) {
    drop_finished_parts();
    for (size_t i = 0; i < fuzz.count; i++) {
        fuzz.streams[i]->needed = 0;
    }
    bool more = need(stream, position);
    while (more) {
        more = false;
        for (size_t i = 0; i < fuzz.count; i++) {
            more = need_behind(fuzz.streams[i]) || more;
        }
    }
}

/* One of the streams that can run something, or NULL: needed ones only, or any but those whose next operation may block. */
static vgpu_stream *choose(bool needed_only, bool blocking_too) {
    enum { PHASE = 24 }; /* choices with the same priorities, on average */
    vgpu_stream *chosen = NULL;
    uint64_t seen = 0;
    uint64_t best = 0;
    fuzz.phase = by_priority() && draw() % PHASE == 0 ? draw() : fuzz.phase;
    for (size_t i = 0; i < fuzz.count; i++) {
        vgpu_stream *stream = fuzz.streams[i];
        bool wanted = !needed_only || stream->needed > atomic_load(&stream->completed);
        if (wanted && runnable(stream) && (blocking_too || !may_block(head(stream)))) {
            seen++;
            uint64_t rank = by_priority() ? priority(i) : 0;
            bool better = by_priority() ? rank >= best : draw() % seen == 0; /* each with the same chance */
            chosen = better ? stream : chosen;
            best = better ? rank : best;
        }
    }
    return chosen;
}

void vgpu_fuzz_wait(vgpu_stream *stream, uint64_t position) {
    pthread_mutex_lock(&fuzz.lock);
    while (!vgpu_stream_reached(stream, position)) {
        vgpu_stream *next = NULL;
        if (fuzz.busy == NULL) {
            find_needed(stream, position);
            bool extra = draw() % 8 < eagerness();
            next = extra ? choose(false, false) : NULL;
            next = next == NULL ? choose(true, true) : next;
        }
        if (next != NULL) {
            grant(next);
        } else {
            pthread_cond_wait(&fuzz.changed, &fuzz.lock);
        }
    }
    pthread_mutex_unlock(&fuzz.lock);
}

static void *tick(void *unused) {
    (void)unused;
    uint64_t seen = 0;
    bool going = false;
    pthread_mutex_lock(&fuzz.lock);
    fuzz.ticking = true;
    pthread_cond_broadcast(&fuzz.changed);
    pthread_mutex_unlock(&fuzz.lock);
    for (;;) {
        struct timespec pause = {.tv_nsec = going ? step_ns : patience_ns};
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&fuzz.lock);
        going = seen == fuzz.activity && fuzz.busy == NULL;
        vgpu_stream *next = going ? choose(false, true) : NULL;
        going = next != NULL;
        if (going) {
            grant(next);
        }
        seen = fuzz.activity;
        pthread_mutex_unlock(&fuzz.lock);
    }
    return NULL;
}

static void start_ticker(void) {
    pthread_t thread;
    sigset_t blocked;
    sigset_t before;
    sigfillset(&blocked); /* signals of the process are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int failed = pthread_create(&thread, NULL, tick, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        ls_notice("cannot start the ticker of LOCKSTEP_VGPU_SCHED=fuzz");
        abort();
    }
    (void)pthread_detach(thread);
    /* A short program could end while the thread is still being set up, with memory that nobody owns yet. */
    pthread_mutex_lock(&fuzz.lock);
    while (!fuzz.ticking) {
        pthread_cond_wait(&fuzz.changed, &fuzz.lock);
    }
    pthread_mutex_unlock(&fuzz.lock);
}

void vgpu_fuzz_opened(vgpu_stream *stream) {
    static pthread_once_t ticker = PTHREAD_ONCE_INIT;
    pthread_once(&ticker, start_ticker);
    pthread_mutex_lock(&fuzz.lock);
    size_t i = 0;
    while (i < fuzz.count && fuzz.streams[i] != stream) {
        i++;
    }
    if (i == fuzz.count) { /* else the slot serves another stream now */
        if (fuzz.count == fuzz.capacity) {
            fuzz.streams = grown(fuzz.streams, &fuzz.capacity, sizeof *fuzz.streams);
        }
        fuzz.streams[fuzz.count] = stream;
        fuzz.count++;
    }
    pthread_mutex_unlock(&fuzz.lock);
}

void vgpu_fuzz_submitted(vgpu_stream *stream, const vgpu_request *request, uint64_t position) {
    pthread_mutex_lock(&fuzz.lock);
    fuzz.activity++;
    if (request->joint.parts > 1) {
        if (fuzz.part_count == fuzz.part_capacity) {
            drop_finished_parts();
        }
        if (fuzz.part_count == fuzz.part_capacity) {
            fuzz.parts = grown(fuzz.parts, &fuzz.part_capacity, sizeof *fuzz.parts);
        }
        fuzz.parts[fuzz.part_count] = (joint_part){request->joint, stream, position + 1};
        fuzz.part_count++;
    }
    pthread_cond_broadcast(&fuzz.changed); /* it may be what a collective under way waits for */
    pthread_mutex_unlock(&fuzz.lock);
}

void vgpu_fuzz_completed(vgpu_stream *stream) {
    pthread_mutex_lock(&fuzz.lock);
    fuzz.busy = fuzz.busy == stream ? NULL : fuzz.busy;
    pthread_cond_broadcast(&fuzz.changed);
    pthread_mutex_unlock(&fuzz.lock);
}

void vgpu_fuzz_asked(void) {
    pthread_mutex_lock(&fuzz.lock);
    vgpu_stream *next = fuzz.busy == NULL && draw() % 2 == 0 ? choose(false, true) : NULL;
    if (next != NULL) {
        grant(next);
    }
    pthread_mutex_unlock(&fuzz.lock);
}
