/* What has happened before what, from the calls alone: a race is found whichever way the operations happened to run.
 *
 * Every stream is a timeline and has a clock: of what its next operation comes after. Every host thread has a clock: of what it
 * has waited for. Queueing joins the thread's clock into the stream's, since nothing runs before it is queued; a record keeps
 * the stream's clock, a wait joins it into another stream's, a synchronisation into the thread's. The legacy default stream and
 * its device's blocking streams join one another's clocks with every operation, as CUDA's rules have it.
 *
 * What threads tell one another without CUDA is not seen: a thread begins with what any thread knew by then, and leaves what it
 * knew to all when it ends; so creating and joining threads makes no wrong alarm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/host_guard.h"
#include "gpu/vgpu/runtime.h"
#include "gpu/vgpu/shadow.h"

typedef struct vgpu_track {
    struct vgpu_track *next;
    int device;
    unsigned flags;
    bool legacy;
    unsigned number; /* of the stream, for reports */
    size_t timeline;
    vgpu_clock clock;
} vgpu_track;

/* A host thread. */
typedef struct host {
    vgpu_clock clock;
    uint64_t seen; /* threads whose end is in the clock */
} host;

/* A collective of several ranks of this process, while some of them are yet to queue their parts. */
typedef struct part {
    vgpu_track *track;
    vgpu_clock clock;
    bool gives, takes;
} part;

typedef struct joint {
    struct joint *next;
    const void *clique;
    unsigned sequence;
    size_t count;
    part parts[];
} joint;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all of this, and the shadow */
static vgpu_track *tracks;
static size_t timelines;
static joint *joints;
static vgpu_clock known; /* by any thread */
static vgpu_clock left;  /* by threads that have ended */
static uint64_t ended;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Thread_local host *self;

/* Bookkeeping that cannot go on must not look like a clean run. */
static void out_of_memory(void) {
    ls_notice("out of memory for LOCKSTEP_VGPU_SCHED=check");
    abort();
}

static void join(vgpu_clock *into, const vgpu_clock *from) {
    if (!vgpu_clock_join(into, from)) {
        out_of_memory();
    }
}

/* --- threads -------------------------------------------------------------------------------------------------------- */

static void thread_ends(void *value) {
    host *h = value;
    pthread_mutex_lock(&lock);
    join(&left, &h->clock);
    ended++;
    pthread_mutex_unlock(&lock);
    vgpu_clock_free(&h->clock);
    free(h);
}

static void make_key(void) {
    if (pthread_key_create(&key, thread_ends) != 0) {
        out_of_memory();
    }
}

/* The calling thread; with the lock held. */
static host *this_host(void) {
    if (self == NULL) {
        pthread_once(&once, make_key);
        self = calloc(1, sizeof *self);
        if (self == NULL || pthread_setspecific(key, self) != 0) {
            out_of_memory();
        }
        join(&self->clock, &known);
    }
    if (self->seen != ended) {
        join(&self->clock, &left);
        self->seen = ended;
    }
    return self;
}

void vgpu_check_joined(const vgpu_clock *clock) {
    if (vgpu_mode.sched != VGPU_CHECK) {
        return;
    }
    pthread_mutex_lock(&lock);
    host *h = this_host();
    join(&h->clock, clock);
    join(&known, clock);
    vgpu_host_guard_release(&h->clock);
    pthread_mutex_unlock(&lock);
}

/* --- streams -------------------------------------------------------------------------------------------------------- */

static vgpu_track *new_track(vgpu_stream *stream, bool legacy) {
    vgpu_track *track = calloc(1, sizeof *track);
    if (track == NULL) {
        out_of_memory();
    }
    *track = (vgpu_track){.next = tracks,
                          .device = stream->device,
                          .flags = stream->flags,
                          .legacy = legacy,
                          .number = vgpu_stream_number(stream),
                          .timeline = timelines};
    timelines++;
    tracks = track;
    stream->track = track;
    return track;
}

static vgpu_track *track_of(vgpu_stream *stream) {
    if (stream->track != NULL) {
        return stream->track;
    }
    vgpu_device *device = vgpu_device_get(stream->device);
    return new_track(stream, stream == &device->legacy);
}

/* A slot serves many streams in turn. The new one may go on with the old one's timeline where its maker has waited for all that
 * the old one did, so that the clocks of a long run stay short; else it gets its own. */
void vgpu_check_stream_created(vgpu_stream *stream) {
    if (vgpu_mode.sched != VGPU_CHECK) {
        return;
    }
    pthread_mutex_lock(&lock);
    host *h = this_host();
    vgpu_track *track = stream->track;
    if (track == NULL || vgpu_clock_get(&track->clock, track->timeline) > vgpu_clock_get(&h->clock, track->timeline)) {
        track = new_track(stream, false);
    }
    track->device = stream->device;
    track->flags = stream->flags;
    join(&track->clock, &h->clock);
    pthread_mutex_unlock(&lock);
}

/* The rules of the legacy default stream: see cudart's "Stream synchronization behavior". */
static void apply_legacy_rules(vgpu_track *track) {
    if (!track->legacy && (track->flags & cudaStreamNonBlocking)) {
        return;
    }
    for (vgpu_track *other = tracks; other != NULL; other = other->next) {
        bool meets = track->legacy ? !other->legacy && !(other->flags & cudaStreamNonBlocking) : other->legacy;
        if (meets && other->device == track->device) {
            join(&track->clock, &other->clock);
        }
    }
}

void vgpu_check_device_wait(int device) {
    if (vgpu_mode.sched != VGPU_CHECK) {
        return;
    }
    vgpu_clock all = {0};
    pthread_mutex_lock(&lock);
    for (vgpu_track *track = tracks; track != NULL; track = track->next) {
        if (track->device == device) {
            join(&all, &track->clock);
        }
    }
    pthread_mutex_unlock(&lock);
    vgpu_check_joined(&all);
    vgpu_clock_free(&all);
}

void vgpu_check_wait(vgpu_stream *stream, const vgpu_clock *event) {
    if (vgpu_mode.sched != VGPU_CHECK) {
        return;
    }
    pthread_mutex_lock(&lock);
    vgpu_track *track = track_of(stream);
    apply_legacy_rules(track);
    join(&track->clock, &this_host()->clock);
    join(&track->clock, event);
    pthread_mutex_unlock(&lock);
}

/* --- collectives ------------------------------------------------------------------------------------------------------ */

static joint **find_joint(const vgpu_joint *wanted) {
    joint **link = &joints;
    while (*link != NULL && ((*link)->clique != wanted->clique || (*link)->sequence != wanted->sequence)) {
        link = &(*link)->next;
    }
    return link;
}

/* The last part has been queued: what follows it on the takers' streams comes after what was before it on the givers'. */
static void finish_joint(joint **link) {
    joint *j = *link;
    for (size_t taker = 0; taker < j->count; taker++) {
        for (size_t giver = 0; giver < j->count && j->parts[taker].takes; giver++) {
            if (j->parts[giver].gives) {
                join(&j->parts[taker].track->clock, &j->parts[giver].clock);
            }
        }
    }
    for (size_t i = 0; i < j->count; i++) {
        vgpu_clock_free(&j->parts[i].clock);
    }
    *link = j->next;
    free(j);
}

static void add_part(vgpu_track *track, const vgpu_joint *which) {
    joint **link = find_joint(which);
    if (*link == NULL) {
        joint *made = calloc(1, sizeof *made + (size_t)which->parts * sizeof made->parts[0]);
        if (made == NULL) {
            out_of_memory();
        }
        made->clique = which->clique;
        made->sequence = which->sequence;
        *link = made;
    }
    part *p = &(*link)->parts[(*link)->count];
    *p = (part){.track = track, .gives = which->gives, .takes = which->takes};
    join(&p->clock, &track->clock);
    (*link)->count++;
    if ((*link)->count == (size_t)which->parts) {
        finish_joint(link);
    }
}

/* Whether a collective that is not complete yet may still turn out to order work of the two devices. */
static bool undecided(int device, int other) {
    for (const joint *j = joints; j != NULL && device != other; j = j->next) {
        for (size_t i = 0; i < j->count; i++) {
            if (j->parts[i].track->device == device) {
                return true;
            }
        }
    }
    return false;
}

/* --- uses of memory --------------------------------------------------------------------------------------------------- */

static bool ordered(const vgpu_use *before, void *context) {
    const vgpu_track *track = context;
    return vgpu_clock_get(&track->clock, before->timeline) >= before->number ||
           undecided(track->device, before->device);
}

static bool ordered_for_host(const vgpu_use *before, void *context) {
    return vgpu_clock_get(context, before->timeline) >= before->number;
}

/* "4096 bytes at byte 128 of an allocation of 44728 bytes on device 0". */
static void describe_range(char *text, size_t size, uintptr_t from, uintptr_t to) {
    const void *start = (const void *)from;
    size_t whole = 0;
    int device = vgpu_allocation(&start, &whole);
    if (device >= 0) {
        snprintf(text, size, "%zu bytes at byte %zu of an allocation of %zu bytes on device %d", to - from,
                 from - (uintptr_t)start, whole, device);
    } else {
        snprintf(text, size, "%zu bytes of pinned host memory", to - from);
    }
}

static void describe_use(char *text, size_t size, const vgpu_use *use) {
    vgpu_describe_operation(text, size, use->name, use->device, use->stream, use->place);
}

static void report_race(const vgpu_use *use, bool writes, const vgpu_conflict *conflict) {
    char range[160];
    char first[400];
    char second[400];
    describe_range(range, sizeof range, conflict->from, conflict->to);
    describe_use(first, sizeof first, &conflict->before);
    describe_use(second, sizeof second, use);
    ls_notice(
        "race: %s %s and %s %s %s, and nothing orders them: an event, a synchronisation or the same stream is missing",
        first, conflict->before_writes ? "writes" : "reads", second, writes ? "writes" : "reads", range);
}

static cudaError_t check_accesses(vgpu_track *track, const vgpu_request *request, const vgpu_use *use) {
    for (size_t i = 0; i < request->access_count; i++) {
        const vgpu_access *access = &request->access[i];
        vgpu_conflict conflict;
        if (access->pointer == NULL || access->bytes == 0) {
            continue;
        }
        if (vgpu_shadow_conflict(access, ordered, track, &conflict)) {
            report_race(use, (access->how & VGPU_WRITE) != 0, &conflict);
            return cudaErrorLaunchFailure;
        }
    }
    for (size_t i = 0; i < request->access_count; i++) {
        const vgpu_access *access = &request->access[i];
        if (access->pointer == NULL || access->bytes == 0) {
            continue;
        }
        /* Kernels use pinned memory by the program's own mapping, which must then stay open. */
        bool closes = request->kind != VGPU_KERNEL;
        if (!vgpu_shadow_record(access, use) || (closes && !vgpu_host_guard_use(access, use))) {
            out_of_memory();
        }
    }
    return cudaSuccess;
}

cudaError_t vgpu_check_queue(vgpu_stream *stream, const vgpu_request *request) {
    pthread_mutex_lock(&lock);
    cudaError_t status = cudaSuccess;
    vgpu_track *track = track_of(stream);
    apply_legacy_rules(track);
    if (request->kind != VGPU_NOTHING) {
        join(&track->clock, &this_host()->clock);
    }
    if (request->kind != VGPU_NOTHING && request->kind != VGPU_EVENT) {
        uint64_t number = vgpu_clock_get(&track->clock, track->timeline) + 1;
        vgpu_use use = {request->name, vgpu_place, track->device, track->number, track->timeline, number};
        status = check_accesses(track, request, &use);
        if (!vgpu_clock_set(&track->clock, track->timeline, number)) {
            out_of_memory();
        }
        if (request->joint.parts > 1) {
            add_part(track, &request->joint);
        }
    }
    if (request->record != NULL) {
        join(request->record, &track->clock);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* --- memory ----------------------------------------------------------------------------------------------------------- */

cudaError_t vgpu_check_memory_begins(const void *pointer, size_t size) {
    if (vgpu_mode.sched != VGPU_CHECK) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&lock);
    bool done = vgpu_shadow_clear(pointer, size);
    pthread_mutex_unlock(&lock);
    return done ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* The first use of memory that the calling thread has not waited for, as a finding; with the lock held. */
static cudaError_t find_pending(const void *pointer, size_t size, unsigned how, const char *what) {
    vgpu_access whole = {pointer, size, how};
    vgpu_conflict conflict;
    if (!vgpu_shadow_conflict(&whole, ordered_for_host, &this_host()->clock, &conflict)) {
        return cudaSuccess;
    }
    char range[160];
    char use[400];
    describe_range(range, sizeof range, conflict.from, conflict.to);
    describe_use(use, sizeof use, &conflict.before);
    char where[256] = "";
    if (vgpu_place.file != NULL) {
        snprintf(where, sizeof where, " (%s:%d)", vgpu_source_name(vgpu_place.file), vgpu_place.line);
    }
    ls_notice("race: %s %s %s, and %s%s before this thread has waited for it: a synchronisation is missing", use,
              conflict.before_writes ? "writes" : "reads", range, what, where);
    return cudaErrorLaunchFailure;
}

cudaError_t vgpu_check_memory_ends(const void *pointer, size_t size) {
    if (vgpu_mode.sched != VGPU_CHECK) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&lock);
    cudaError_t status = find_pending(pointer, size, VGPU_WRITE, "it is freed");
    if (!vgpu_shadow_clear(pointer, size)) {
        out_of_memory();
    }
    pthread_mutex_unlock(&lock);
    return status;
}

cudaError_t vgpu_check_host_access(const void *pointer, size_t size, unsigned how) {
    if (vgpu_mode.sched != VGPU_CHECK || size == 0) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&lock);
    cudaError_t status =
        find_pending(pointer, size, how, how & VGPU_WRITE ? "the host writes it" : "the host reads it");
    pthread_mutex_unlock(&lock);
    return status;
}
