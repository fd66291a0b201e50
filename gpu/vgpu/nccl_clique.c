/* Cliques: the control block and the peers' memory as one process maps them, shared by its communicators. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/nccl_internal.h"

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static nccl_clique *table;

size_t nccl_control_size(int ranks) {
    return sizeof(nccl_control) + (size_t)ranks * sizeof(nccl_slot);
}

static void clique_free(nccl_clique *clique) {
    if (clique == NULL) {
        return;
    }
    for (int rank = 0; clique->peers != NULL && rank < clique->ranks; rank++) {
        nccl_peer *peer = &clique->peers[rank];
        if (!peer->local && peer->base != NULL) {
            munmap(peer->base, peer->size);
        }
        if (peer->pid_fd >= 0) {
            close(peer->pid_fd);
        }
        if (peer->memory_fd >= 0) {
            close(peer->memory_fd);
        }
    }
    if (clique->control != NULL) {
        munmap(clique->control, clique->control_bytes);
    }
    pthread_mutex_destroy(&clique->lock);
    free(clique->peers);
    free(clique->records);
    free(clique);
}

/* peers is copied; its descriptors then belong to the clique. */
static nccl_clique *clique_new(int ranks, const nccl_peer *peers) {
    nccl_clique *clique = calloc(1, sizeof *clique);
    if (clique == NULL) {
        return NULL;
    }
    pthread_mutex_init(&clique->lock, NULL);
    clique->ranks = ranks;
    clique->records = calloc((size_t)ranks, sizeof *clique->records);
    clique->peers = calloc((size_t)ranks, sizeof *clique->peers);
    if (clique->records == NULL || clique->peers == NULL) {
        clique->ranks = 0;
        clique_free(clique);
        return NULL;
    }
    memcpy(clique->peers, peers, (size_t)ranks * sizeof *peers);
    return clique;
}

static ncclResult_t map_control(nccl_clique *clique, int fd) {
    clique->control_bytes = nccl_control_size(clique->ranks);
    int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
    void *block = mmap(NULL, clique->control_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (block == MAP_FAILED) {
        return nccl_fail(ncclSystemError, "cannot map a control block of %zu bytes: %s", clique->control_bytes,
                         strerror(errno));
    }
    clique->control = block;
    return ncclSuccess;
}

static ncclResult_t map_local(nccl_peer *peer) {
    vgpu_arena arena;
    cudaError_t status = vgpu_device_arena(peer->device, &arena);
    if (status != cudaSuccess) {
        return nccl_fail(ncclUnhandledCudaError, "memory of device %d: %s", peer->device, cudaGetErrorString(status));
    }
    peer->base = arena.base;
    peer->size = arena.size;
    return ncclSuccess;
}

static ncclResult_t map_remote(nccl_peer *peer, int rank) {
    peer->pid_fd = (int)syscall(SYS_pidfd_open, peer->pid, 0);
    if (peer->pid_fd < 0) {
        return nccl_fail(errno == ESRCH ? ncclRemoteError : ncclSystemError, "cannot watch rank %d (pid %d): %s", rank,
                         (int)peer->pid, strerror(errno));
    }
    void *base = mmap(NULL, peer->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, peer->memory_fd, 0);
    if (base == MAP_FAILED) {
        return nccl_fail(ncclSystemError, "cannot map the %zu bytes of rank %d's device: %s", peer->size, rank,
                         strerror(errno));
    }
    peer->base = base;
    close(peer->memory_fd);
    peer->memory_fd = -1;
    return ncclSuccess;
}

static ncclResult_t map_peers(nccl_clique *clique) {
    for (int rank = 0; rank < clique->ranks; rank++) {
        nccl_peer *peer = &clique->peers[rank];
        ncclResult_t result = peer->local ? map_local(peer) : map_remote(peer, rank);
        if (result != ncclSuccess) {
            return result;
        }
    }
    return ncclSuccess;
}

ncclResult_t nccl_clique_create_local(int ranks, const int *devices, nccl_clique **out) {
    nccl_peer *peers = calloc((size_t)ranks, sizeof *peers);
    if (peers == NULL) {
        return nccl_fail(ncclSystemError, "out of memory for %d ranks", ranks);
    }
    for (int rank = 0; rank < ranks; rank++) {
        peers[rank] =
            (nccl_peer){.pid = getpid(), .device = devices[rank], .local = true, .pid_fd = -1, .memory_fd = -1};
    }
    nccl_clique *clique = clique_new(ranks, peers);
    free(peers);
    if (clique == NULL) {
        return nccl_fail(ncclSystemError, "out of memory for %d ranks", ranks);
    }
    ncclResult_t result = map_control(clique, -1);
    result = result == ncclSuccess ? map_peers(clique) : result;
    if (result != ncclSuccess) {
        clique_free(clique);
        return result;
    }
    clique->references = (unsigned)ranks;
    *out = clique;
    return ncclSuccess;
}

static nccl_clique *table_find(const unsigned char *name) {
    nccl_clique *clique = table;
    while (clique != NULL && memcmp(clique->name, name, NCCL_NAME_BYTES) != 0) {
        clique = clique->next;
    }
    return clique;
}

ncclResult_t nccl_clique_join(const unsigned char *name, int ranks, int control_fd, nccl_peer *peers,
                              nccl_clique **out) {
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&table_lock);
    nccl_clique *clique = table_find(name), *made = NULL;
    if (clique == NULL) {
        made = clique_new(ranks, peers);
        if (made == NULL) {
            result = nccl_fail(ncclSystemError, "out of memory for %d ranks", ranks);
        } else {
            for (int rank = 0; rank < ranks; rank++) {
                peers[rank].memory_fd = -1; /* the clique has it */
            }
            memcpy(made->name, name, NCCL_NAME_BYTES);
            result = map_control(made, control_fd);
            result = result == ncclSuccess ? map_peers(made) : result;
        }
        if (result == ncclSuccess) {
            made->next = table;
            table = made;
            clique = made;
        } else {
            clique_free(made);
        }
    }
    if (clique != NULL) {
        clique->references++;
        *out = clique;
    }
    pthread_mutex_unlock(&table_lock);
    for (int rank = 0; rank < ranks; rank++) {
        if (peers[rank].memory_fd >= 0) {
            close(peers[rank].memory_fd);
            peers[rank].memory_fd = -1;
        }
    }
    close(control_fd);
    return result;
}

void nccl_clique_release(nccl_clique *clique) {
    pthread_mutex_lock(&table_lock);
    bool last = --clique->references == 0;
    if (last) {
        nccl_clique **link = &table;
        while (*link != NULL && *link != clique) {
            link = &(*link)->next;
        }
        if (*link == clique) {
            *link = clique->next;
        }
    }
    pthread_mutex_unlock(&table_lock);
    if (last) {
        clique_free(clique);
    }
}

void nccl_clique_fail(nccl_clique *clique, ncclResult_t result, const char *format, ...) {
    nccl_control *control = clique->control;
    unsigned expected = NCCL_WELL;
    if (!atomic_compare_exchange_strong(&control->failure, &expected, NCCL_FAILURE_CLAIMED)) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(control->failure_text, sizeof control->failure_text, format, arguments);
    va_end(arguments);
    control->failure_result = (int32_t)result;
    ls_notice("%s", control->failure_text);
    atomic_store(&control->failure, NCCL_FAILURE_PUBLISHED);
    vgpu_wake_all(&control->failure);
}

ncclResult_t nccl_clique_status(nccl_clique *clique, char *text) {
    nccl_control *control = clique->control;
    if (atomic_load(&control->failure) == NCCL_WELL) {
        return ncclSuccess;
    }
    /* Whoever claimed the record may have died before it was written: a second is ample for one line. */
    vgpu_wait_while(&control->failure, NCCL_FAILURE_CLAIMED, vgpu_now_ns() + 1000000000ULL);
    if (atomic_load(&control->failure) != NCCL_FAILURE_PUBLISHED) {
        snprintf(text, NCCL_TEXT_BYTES, "a peer failed and died before it could say why");
        return ncclRemoteError;
    }
    memcpy(text, control->failure_text, NCCL_TEXT_BYTES);
    return (ncclResult_t)control->failure_result;
}

bool nccl_peer_ended(const nccl_peer *peer) {
    struct pollfd watch = {.fd = peer->pid_fd, .events = POLLIN};
    return peer->pid_fd >= 0 && poll(&watch, 1, 0) == 1 && (watch.revents & POLLIN) != 0;
}
