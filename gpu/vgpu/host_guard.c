#include "gpu/vgpu/host_guard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/fault.h"

typedef struct guarded {
    struct guarded *next;
    char *base, *alias;
    size_t size, mapped;
} guarded;

/* A copy under way, and the pages that are closed for it: those of the range that hold no other byte of the allocation. */
typedef struct flight {
    struct flight *next;
    vgpu_use use;
    uintptr_t from, to; /* of the copy */
    char *first;        /* of the pages */
    size_t bytes;
    bool writes;
} flight;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static guarded *memories;
static flight *flights;

static size_t page_size(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t pages_of(size_t size) {
    return (size + page_size() - 1) / page_size() * page_size();
}

void *vgpu_host_guard_allocate(size_t size) {
    size_t mapped = pages_of(size);
    guarded *made = calloc(1, sizeof *made);
    int fd = memfd_create("lockstep-pinned", MFD_CLOEXEC);
    char *base = MAP_FAILED;
    char *alias = MAP_FAILED;
    if (made != NULL && fd >= 0 && ftruncate(fd, (off_t)mapped) == 0) {
        base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        alias = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (base == MAP_FAILED || alias == MAP_FAILED) {
        if (base != MAP_FAILED) {
            munmap(base, mapped);
        }
        free(made);
        return NULL;
    }
    vgpu_fault_catch();
    pthread_mutex_lock(&lock);
    *made = (guarded){memories, base, alias, size, mapped};
    memories = made;
    pthread_mutex_unlock(&lock);
    return base;
}

/* The memory that holds pointer; with the lock held. */
static guarded *find(const void *pointer) {
    guarded *m = memories;
    while (m != NULL && (uintptr_t)pointer - (uintptr_t)m->base >= m->mapped) {
        m = m->next;
    }
    return m;
}

/* Takes the flights off the list that end says are over, opens their pages, and closes again what others still need. */
static void end_flights(bool (*over)(const flight *f, const void *context), const void *context) {
    bool opened = false;
    for (flight **link = &flights; *link != NULL;) {
        flight *f = *link;
        if (!over(f, context)) {
            link = &f->next;
            continue;
        }
        if (f->bytes > 0) {
            mprotect(f->first, f->bytes, PROT_READ | PROT_WRITE);
            opened = true;
        }
        *link = f->next;
        free(f);
    }
    for (int writes = 0; writes < 2 && opened; writes++) { /* last those that close for reads as well */
        for (flight *f = flights; f != NULL; f = f->next) {
            if (f->writes == (writes != 0) && f->bytes > 0) {
                mprotect(f->first, f->bytes, f->writes ? PROT_NONE : PROT_READ);
            }
        }
    }
}

static bool lies_in(const flight *f, const void *context) {
    const guarded *m = context;
    return f->from - (uintptr_t)m->base < m->mapped;
}

bool vgpu_host_guard_free(void *memory) {
    pthread_mutex_lock(&lock);
    guarded *m = find(memory);
    if (m != NULL) {
        end_flights(lies_in, m);
        guarded **link = &memories;
        while (*link != m) {
            link = &(*link)->next;
        }
        *link = m->next;
        munmap(m->base, m->mapped);
        munmap(m->alias, m->mapped);
        free(m);
    }
    pthread_mutex_unlock(&lock);
    return m != NULL;
}

void *vgpu_host_guard_alias(const void *pointer) {
    pthread_mutex_lock(&lock);
    const guarded *m = find(pointer);
    char *alias = m != NULL ? m->alias + ((const char *)pointer - m->base) : (char *)(uintptr_t)pointer;
    pthread_mutex_unlock(&lock);
    return alias;
}

bool vgpu_host_guard_use(const vgpu_access *access, const vgpu_use *use) {
    pthread_mutex_lock(&lock);
    bool done = true;
    const guarded *m = find(access->pointer);
    flight *f = m != NULL ? calloc(1, sizeof *f) : NULL;
    if (m != NULL && f == NULL) {
        done = false;
    } else if (m != NULL) {
        uintptr_t base = (uintptr_t)m->base;
        uintptr_t from = (uintptr_t)access->pointer;
        uintptr_t to = from + access->bytes;
        uintptr_t first = base + pages_of(from - base);
        uintptr_t last = to == base + m->size ? base + m->mapped : base + (to - base) / page_size() * page_size();
        *f = (flight){
            flights, *use, from, to, (char *)first, first < last ? last - first : 0, (access->how & VGPU_WRITE) != 0};
        flights = f;
        if (f->bytes > 0) {
            mprotect(f->first, f->bytes, f->writes ? PROT_NONE : PROT_READ);
        }
    }
    pthread_mutex_unlock(&lock);
    return done;
}

static bool waited_for(const flight *f, const void *clock) {
    return vgpu_clock_get(clock, f->use.timeline) >= f->use.number;
}

void vgpu_host_guard_release(const vgpu_clock *clock) {
    pthread_mutex_lock(&lock);
    if (flights != NULL) {
        end_flights(waited_for, clock);
    }
    pthread_mutex_unlock(&lock);
}

bool vgpu_host_guard_explain(const void *address) {
    const flight *found = NULL;
    for (const flight *f = flights; f != NULL; f = f->next) {
        if ((uintptr_t)address - (uintptr_t)f->first < f->bytes && (found == NULL || f->writes)) {
            found = f;
        }
    }
    if (found == NULL) {
        return false;
    }
    char use[400];
    vgpu_describe_operation(use, sizeof use, found->use.name, found->use.device, found->use.stream, found->use.place);
    ls_notice("race: %s %s %zu bytes of pinned host memory, and the host uses byte %zu of them before it has waited "
              "for that: a "
              "synchronisation is missing",
              use, found->writes ? "writes" : "reads", (size_t)(found->to - found->from),
              (size_t)((uintptr_t)address - found->from));
    return true;
}
