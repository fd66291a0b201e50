/* A rank's side of the rendezvous. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "gpu/vgpu/nccl_bootstrap.h"

/* Beyond the rendezvous' own time limit, which gives the better message. */
#define GRACE_NS 5000000000ULL

static pthread_once_t token_once = PTHREAD_ONCE_INIT;
static uint64_t token;

static void make_token(void) {
    if (getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token) {
        token = ((uint64_t)getpid() << 32) ^ vgpu_now_ns();
    }
}

static nccl_id id_of(const nccl_join *join) {
    nccl_id id;
    memcpy(&id, &join->id, sizeof id);
    return id;
}

void nccl_join_cancel(nccl_join *join) {
    if (join->socket >= 0) {
        close(join->socket);
        join->socket = -1;
    }
    if (join->clique != NULL) {
        nccl_clique_release(join->clique);
        join->clique = NULL;
    }
}

ncclResult_t nccl_join_connect(nccl_join *join) {
    nccl_id id = id_of(join);
    pthread_once(&token_once, make_token);
    vgpu_arena arena;
    cudaError_t status = vgpu_device_arena(join->device, &arena);
    if (status != cudaSuccess) {
        return nccl_fail(ncclUnhandledCudaError, "memory of device %d: %s", join->device, cudaGetErrorString(status));
    }
    join->deadline_ns = vgpu_now_ns() + join->timeout_ns + GRACE_NS;
    join->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (join->socket < 0) {
        return nccl_fail(ncclSystemError, "rank %d: no socket: %s", join->rank, strerror(errno));
    }
    struct sockaddr_un address;
    socklen_t size = nccl_address(id.name, &address);
    if (connect(join->socket, (struct sockaddr *)&address, size) != 0) {
        return nccl_fail(
            ncclRemoteError,
            "rank %d: no rendezvous for this unique id (%s): pid %d, which made it, has ended, or the id has "
            "been used already",
            join->rank, strerror(errno), (int)id.pid);
    }
    nccl_hello hello = {.magic = NCCL_MAGIC,
                        .process = token,
                        .arena_bytes = arena.size,
                        .ranks = join->ranks,
                        .rank = join->rank,
                        .device = join->device,
                        .pid = (int32_t)getpid()};
    if (!nccl_same_user(join->socket) || nccl_send(join->socket, &hello, sizeof hello, arena.fd) != 0) {
        return nccl_fail(ncclRemoteError, "rank %d: the rendezvous of pid %d does not answer", join->rank, (int)id.pid);
    }
    return ncclSuccess;
}

/* The next reply within the time limit. */
static ncclResult_t next_reply(nccl_join *join, nccl_reply *reply, int *fd) {
    *fd = -1;
    struct pollfd watch = {.fd = join->socket, .events = POLLIN};
    for (;;) {
        unsigned long long now = vgpu_now_ns();
        if (now >= join->deadline_ns) {
            return nccl_fail(ncclRemoteError, "rank %d: no answer from the rendezvous of pid %d within %g s",
                             join->rank, (int)id_of(join).pid, (double)(join->timeout_ns + GRACE_NS) / 1e9);
        }
        unsigned long long ms = (join->deadline_ns - now) / 1000000ULL + 1;
        int ready = poll(&watch, 1, ms > 1000 ? 1000 : (int)ms);
        if (ready < 0 && errno != EINTR) {
            return nccl_fail(ncclSystemError, "rank %d: poll: %s", join->rank, strerror(errno));
        }
        if (ready > 0) {
            break;
        }
    }
    nccl_refusal message;
    ssize_t got = nccl_receive(join->socket, &message, sizeof message, fd);
    if (got == (ssize_t)sizeof message && message.reply.kind == NCCL_REPLY_REFUSED) {
        message.text[sizeof message.text - 1] = '\0';
        return nccl_fail((ncclResult_t)message.reply.result, "%s", message.text);
    }
    if (got != (ssize_t)sizeof *reply) {
        if (*fd >= 0) {
            close(*fd);
        }
        return nccl_fail(ncclRemoteError, "rank %d: pid %d, which made the unique id, went away during initialisation",
                         join->rank, (int)id_of(join).pid);
    }
    *reply = message.reply;
    return ncclSuccess;
}

/* Peers' entries up to the control block, whose descriptor is returned. */
static ncclResult_t receive_table(nccl_join *join, nccl_peer *peers, int *control_fd) {
    for (;;) {
        nccl_reply reply;
        int fd;
        ncclResult_t result = next_reply(join, &reply, &fd);
        if (result != ncclSuccess) {
            return result;
        }
        if (reply.kind == NCCL_REPLY_CONTROL && fd >= 0) {
            *control_fd = fd;
            return ncclSuccess;
        }
        if (reply.kind != NCCL_REPLY_PEER || reply.rank < 0 || reply.rank >= join->ranks ||
            (reply.same == 0) != (fd >= 0)) {
            if (fd >= 0) {
                close(fd);
            }
            return nccl_fail(ncclInternalError, "rank %d: unexpected message from the rendezvous", join->rank);
        }
        peers[reply.rank] = (nccl_peer){.pid = reply.pid,
                                        .device = reply.device,
                                        .local = reply.same != 0,
                                        .size = (size_t)reply.arena_bytes,
                                        .pid_fd = -1,
                                        .memory_fd = fd};
    }
}

ncclResult_t nccl_join_receive(nccl_join *join) {
    nccl_peer *peers = calloc((size_t)join->ranks, sizeof *peers);
    if (peers == NULL) {
        return nccl_fail(ncclSystemError, "out of memory for %d ranks", join->ranks);
    }
    for (int rank = 0; rank < join->ranks; rank++) {
        peers[rank] = (nccl_peer){.pid_fd = -1, .memory_fd = -1};
    }
    int control_fd = -1;
    ncclResult_t result = receive_table(join, peers, &control_fd);
    if (result == ncclSuccess) {
        nccl_id id = id_of(join);
        result = nccl_clique_join(id.name, join->ranks, control_fd, peers, &join->clique);
    } else {
        for (int rank = 0; rank < join->ranks; rank++) {
            if (peers[rank].memory_fd >= 0) {
                close(peers[rank].memory_fd);
            }
        }
    }
    free(peers);
    nccl_ready ready = {.magic = NCCL_MAGIC};
    if (result == ncclSuccess && nccl_send(join->socket, &ready, sizeof ready, -1) != 0) {
        result =
            nccl_fail(ncclRemoteError, "rank %d: the rendezvous of pid %d went away", join->rank, (int)id_of(join).pid);
    }
    return result;
}

ncclResult_t nccl_join_finish(nccl_join *join) {
    nccl_reply reply = {0};
    int fd = -1;
    ncclResult_t result = next_reply(join, &reply, &fd);
    if (fd >= 0) {
        close(fd);
    }
    if (result == ncclSuccess && reply.kind != NCCL_REPLY_GO) {
        result = nccl_fail(ncclInternalError, "rank %d: unexpected message from the rendezvous", join->rank);
    }
    close(join->socket);
    join->socket = -1;
    return result;
}
