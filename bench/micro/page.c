#include "bench/micro/page.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t page_magic = 0x6c732d6372657731; /* "ls-crew1" */

static size_t page_size(size_t world) {
    return sizeof(ls_micro_page) + world * sizeof(ls_micro_page_rank);
}

static ls_rc fail(const char *what, const char *path) {
    return ls_fail(LS_DEVICE_FAILED, "%s '%s': %s", what, path != NULL ? path : "the page of the ranks",
                   strerror(errno));
}

static ls_rc map(const char *path, int flags, size_t size, ls_micro_page **out) {
    int fd = path != NULL ? open(path, flags | O_RDWR | O_CLOEXEC, 0600) : -1;
    if (path != NULL && fd < 0) {
        return fail("cannot open", path);
    }
    if (path != NULL && (flags & O_CREAT) != 0 && ftruncate(fd, (off_t)size) != 0) {
        ls_rc rc = fail("cannot size", path);
        close(fd);
        return rc;
    }
    struct stat status;
    if (size == 0) {
        if (fstat(fd, &status) != 0 || (size_t)status.st_size < sizeof(ls_micro_page)) {
            close(fd);
            return ls_fail(LS_DEVICE_FAILED, "'%s' is not the page of a crew", path);
        }
        size = (size_t)status.st_size;
    }
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | (path == NULL ? MAP_ANONYMOUS : 0),
                        path == NULL ? -1 : fd, 0);
    if (fd >= 0) {
        close(fd);
    }
    if (mapped == MAP_FAILED) {
        return fail("cannot map", path);
    }
    *out = mapped;
    return LS_OK;
}

ls_rc ls_micro_page_create(const char *path, size_t world, ls_micro_page **out) {
    *out = NULL;
    LS_TRY(map(path, O_CREAT | O_EXCL, page_size(world), out));
    ls_micro_page *page = *out;
    bool good = sem_init(&page->done, 1, 0) == 0;
    for (size_t r = 0; r < world; r++) {
        good = good && sem_init(&page->rank[r].go, 1, 0) == 0;
    }
    page->world = world;
    page->magic = page_magic;
    if (!good) {
        ls_micro_page_close(page);
        *out = NULL;
        return fail("no semaphores for", path);
    }
    return LS_OK;
}

ls_rc ls_micro_page_open(const char *path, ls_micro_page **out) {
    *out = NULL;
    LS_TRY(map(path, 0, 0, out));
    if ((*out)->magic != page_magic) {
        return ls_fail(LS_DEVICE_FAILED, "'%s' is not the page of a crew", path);
    }
    return LS_OK;
}

void ls_micro_page_close(ls_micro_page *page) {
    if (page != NULL) {
        munmap(page, page_size(page->world));
    }
}

void ls_micro_page_barrier(ls_micro_page *page) {
    /* More spins only take the core from a rank that has not come yet. */
    const int spins = 200;
    uint32_t generation = atomic_load_explicit(&page->generation, memory_order_acquire);
    if (atomic_fetch_add_explicit(&page->arrived, 1, memory_order_acq_rel) + 1 == page->world) {
        atomic_store_explicit(&page->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&page->generation, generation + 1, memory_order_release);
        return;
    }
    for (int i = 0; atomic_load_explicit(&page->generation, memory_order_acquire) == generation; i++) {
        if (i >= spins) {
            sched_yield();
        }
    }
}
