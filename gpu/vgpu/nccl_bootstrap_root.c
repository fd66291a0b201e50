/* The rendezvous of a unique id: a thread of the process that made the id gathers the ranks, checks that they agree, and
 * gives each the memory of the others. It ends when all ranks are up or refused. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/time.h>
#include <unistd.h>

#include "gpu/vgpu/nccl_bootstrap.h"

enum {
    CONNECTIONS_MAX = NCCL_RANKS_MAX,
    LATECOMERS_MS = 300 /* after a refusal: ranks that connect within it still hear the reason */
};

typedef struct connection {
    int socket, memory_fd;
    bool greeted, ready;
    nccl_hello hello;
} connection;

typedef struct rendezvous {
    int listener, control_fd;
    unsigned long long timeout_ns, deadline_ns; /* deadline 0: nobody has come yet */
    size_t count;
    connection connections[CONNECTIONS_MAX];
    bool refused;
    nccl_refusal refusal;
} rendezvous;

static void refuse(rendezvous *r, ncclResult_t result, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The first reason counts; it is sent when the gathering ends. */
static void refuse(rendezvous *r, ncclResult_t result, const char *format, ...) {
    if (r->refused) {
        return;
    }
    r->refused = true;
    r->refusal = (nccl_refusal){.reply = {.kind = NCCL_REPLY_REFUSED, .result = (int32_t)result}};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->refusal.text, sizeof r->refusal.text, format, arguments);
    va_end(arguments);
}

static void check_agreement(rendezvous *r, const connection *newcomer) {
    const nccl_hello *b = &newcomer->hello;
    for (size_t i = 0; i < r->count; i++) {
        const nccl_hello *a = &r->connections[i].hello;
        if (&r->connections[i] == newcomer || !r->connections[i].greeted) {
            continue;
        }
        if (a->ranks != b->ranks) {
            refuse(r, ncclInvalidUsage, "world sizes differ: rank %d (pid %d) says %d, rank %d (pid %d) says %d",
                   a->rank, a->pid, a->ranks, b->rank, b->pid, b->ranks);
        } else if (a->rank == b->rank) {
            refuse(r, ncclInvalidUsage, "two processes or threads claim rank %d of %d: pid %d and pid %d", a->rank,
                   a->ranks, a->pid, b->pid);
        } else if (a->process == b->process && a->device == b->device) {
            refuse(r, ncclInvalidUsage, "Duplicate GPU detected: rank %d and rank %d are both on device %d of pid %d",
                   a->rank, b->rank, a->device, a->pid);
        }
    }
}

/* A message from a rank, or its end. */
static void hear(rendezvous *r, connection *c) {
    union {
        nccl_hello hello;
        nccl_ready ready;
    } message;
    int fd;
    ssize_t got = nccl_receive(c->socket, &message, sizeof message, &fd);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return;
    }
    if (!c->greeted && got == (ssize_t)sizeof message.hello && message.hello.magic == NCCL_MAGIC && fd >= 0) {
        c->hello = message.hello;
        c->memory_fd = fd;
        c->greeted = true;
        check_agreement(r, c);
        return;
    }
    if (fd >= 0) {
        close(fd);
    }
    if (c->greeted && got == (ssize_t)sizeof message.ready && message.ready.magic == NCCL_MAGIC) {
        c->ready = true;
        return;
    }
    if (c->greeted) {
        refuse(r, ncclRemoteError, "rank %d (pid %d) went away during initialisation", c->hello.rank, c->hello.pid);
    }
    close(c->socket);
    if (c->memory_fd >= 0) {
        close(c->memory_fd);
    }
    *c = r->connections[--r->count];
}

static void greet(rendezvous *r) {
    int socket = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0) {
        return;
    }
    /* A rank that does not read must not hold up the others for ever. */
    struct timeval patience = {.tv_sec = 5};
    if (!nccl_same_user(socket) || r->count == CONNECTIONS_MAX ||
        setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0) {
        close(socket);
        return;
    }
    r->connections[r->count++] = (connection){.socket = socket, .memory_fd = -1};
    if (r->deadline_ns == 0) {
        r->deadline_ns = vgpu_now_ns() + r->timeout_ns;
    }
}

/* Milliseconds to the deadline, at least 0; -1: none. */
static int remaining_ms(const rendezvous *r) {
    unsigned long long now = vgpu_now_ns();
    if (r->deadline_ns == 0) {
        return -1;
    }
    if (r->deadline_ns <= now) {
        return 0;
    }
    unsigned long long ms = (r->deadline_ns - now) / 1000000ULL + 1;
    return ms > 1000000 ? 1000000 : (int)ms;
}

/* Waits for one event and handles it. False when nothing came within ms. */
static bool serve(rendezvous *r, int ms) {
    struct pollfd watched[CONNECTIONS_MAX + 1];
    size_t count = r->count;
    watched[0] = (struct pollfd){.fd = r->listener, .events = POLLIN};
    for (size_t i = 0; i < count; i++) {
        watched[i + 1] = (struct pollfd){.fd = r->connections[i].socket, .events = POLLIN};
    }
    int ready = poll(watched, count + 1, ms);
    if (ready <= 0) {
        return ready < 0 && errno == EINTR;
    }
    for (size_t i = count; i-- > 0;) { /* backwards: hear() may move the last one here */
        if (watched[i + 1].revents != 0) {
            hear(r, &r->connections[i]);
        }
    }
    if (watched[0].revents != 0) {
        greet(r);
    }
    return true;
}

static size_t count_where(const rendezvous *r, bool ready) {
    size_t count = 0;
    for (size_t i = 0; i < r->count; i++) {
        count += ready ? r->connections[i].ready : r->connections[i].greeted;
    }
    return count;
}

static void refuse_missing(rendezvous *r) {
    char missing[128] = "";
    size_t length = 0;
    int ranks = 0, came = 0;
    for (size_t i = 0; i < r->count; i++) {
        ranks = r->connections[i].greeted ? r->connections[i].hello.ranks : ranks;
    }
    for (int rank = 0; rank < ranks; rank++) {
        bool found = false;
        for (size_t i = 0; i < r->count; i++) {
            found = found || (r->connections[i].greeted && r->connections[i].hello.rank == rank);
        }
        came += found;
        if (!found && length + 16 < sizeof missing) {
            length += (size_t)snprintf(missing + length, sizeof missing - length, "%s%d", length > 0 ? ", " : "", rank);
        }
    }
    refuse(r, ncclRemoteError, "rank %s of %d did not join within %g s (%d came)", missing, ranks,
           (double)r->timeout_ns / 1e9, came);
}

/* Until all ranks have greeted (or, in the second round, are ready). */
static void gather(rendezvous *r, bool ready) {
    while (!r->refused) {
        size_t have = count_where(r, ready);
        for (size_t i = 0; i < r->count; i++) {
            if (r->connections[i].greeted && have == (size_t)r->connections[i].hello.ranks) {
                return;
            }
        }
        if (remaining_ms(r) == 0) {
            refuse_missing(r);
        } else {
            serve(r, remaining_ms(r));
        }
    }
}

/* Connections that have not said who they are when all ranks are known. */
static void drop_strangers(rendezvous *r) {
    for (size_t i = r->count; i-- > 0;) {
        if (!r->connections[i].greeted) {
            close(r->connections[i].socket);
            r->connections[i] = r->connections[--r->count];
        }
    }
}

static bool make_control(rendezvous *r) {
    drop_strangers(r);
    r->control_fd = memfd_create("lockstep-nccl", MFD_CLOEXEC);
    if (r->control_fd < 0 || ftruncate(r->control_fd, (off_t)nccl_control_size((int)r->count)) != 0) {
        refuse(r, ncclSystemError, "cannot make the control block of %zu ranks: %s", r->count, strerror(errno));
        return false;
    }
    return true;
}

static void introduce(rendezvous *r, const connection *to) {
    for (size_t i = 0; i < r->count; i++) {
        const connection *c = &r->connections[i];
        bool same = c->hello.process == to->hello.process;
        nccl_reply reply = {.kind = NCCL_REPLY_PEER,
                            .rank = c->hello.rank,
                            .pid = c->hello.pid,
                            .device = c->hello.device,
                            .same = same,
                            .arena_bytes = c->hello.arena_bytes};
        if (nccl_send(to->socket, &reply, sizeof reply, same ? -1 : c->memory_fd) != 0) {
            refuse(r, ncclRemoteError, "rank %d (pid %d) went away during initialisation", to->hello.rank,
                   to->hello.pid);
            return;
        }
    }
    nccl_reply last = {.kind = NCCL_REPLY_CONTROL};
    if (nccl_send(to->socket, &last, sizeof last, r->control_fd) != 0) {
        refuse(r, ncclRemoteError, "rank %d (pid %d) went away during initialisation", to->hello.rank, to->hello.pid);
    }
}

/* Tells everybody who is here, and whoever comes shortly after. */
static void send_refusals(rendezvous *r) {
    unsigned long long end = vgpu_now_ns() + LATECOMERS_MS * 1000000ULL;
    size_t told = 0;
    do {
        for (; told < r->count; told++) {
            /* One that has gone needs no answer. */
            (void)nccl_send(r->connections[told].socket, &r->refusal, sizeof r->refusal, -1);
        }
        struct pollfd watch = {.fd = r->listener, .events = POLLIN};
        if (poll(&watch, 1, 10) == 1) {
            greet(r);
        }
    } while (vgpu_now_ns() < end || told < r->count);
}

static void *rendezvous_thread(void *argument) {
    rendezvous *r = argument;
    gather(r, false);
    if (!r->refused && make_control(r)) {
        for (size_t i = 0; i < r->count && !r->refused; i++) {
            introduce(r, &r->connections[i]);
        }
        gather(r, true);
    }
    if (r->refused) {
        send_refusals(r);
    }
    nccl_reply go = {.kind = NCCL_REPLY_GO};
    close(r->listener); /* before GO: when ranks are up, the id is used up */
    for (size_t i = 0; i < r->count; i++) {
        if (!r->refused) {
            /* A rank that died since is found by its peers' first collective. */
            (void)nccl_send(r->connections[i].socket, &go, sizeof go, -1);
        }
        close(r->connections[i].socket);
        if (r->connections[i].memory_fd >= 0) {
            close(r->connections[i].memory_fd);
        }
    }
    if (r->control_fd >= 0) {
        close(r->control_fd);
    }
    free(r);
    return NULL;
}

static ncclResult_t open_listener(const unsigned char *name, int *listener) {
    struct sockaddr_un address;
    socklen_t size = nccl_address(name, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, CONNECTIONS_MAX) != 0) {
        ncclResult_t result = nccl_fail(ncclSystemError, "cannot open a rendezvous socket: %s", strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return result;
    }
    *listener = fd;
    return ncclSuccess;
}

/* Signals are the program's own threads' business. */
static int start_detached(void *(*run)(void *), void *argument) {
    pthread_attr_t attributes;
    int status = pthread_attr_init(&attributes);
    if (status != 0) {
        return status;
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    status = pthread_create(&thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return status;
}

ncclResult_t nccl_rendezvous_open(ncclUniqueId *id) {
    nccl_id made = {.magic = NCCL_MAGIC, .pid = (int32_t)getpid()};
    unsigned long long timeout_ns;
    ncclResult_t result = nccl_timeout(&timeout_ns);
    if (result != ncclSuccess) {
        return result;
    }
    if (getrandom(made.name, sizeof made.name, 0) != (ssize_t)sizeof made.name) {
        return nccl_fail(ncclSystemError, "no random numbers: %s", strerror(errno));
    }
    rendezvous *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return nccl_fail(ncclSystemError, "out of memory for a rendezvous");
    }
    r->timeout_ns = timeout_ns;
    r->control_fd = -1;
    result = open_listener(made.name, &r->listener);
    if (result != ncclSuccess) {
        free(r);
        return result;
    }
    int listener = r->listener, status = start_detached(rendezvous_thread, r);
    if (status != 0) {
        close(listener);
        free(r);
        return nccl_fail(ncclSystemError, "cannot start the rendezvous thread: %s", strerror(status));
    }
    memset(id, 0, sizeof *id);
    memcpy(id, &made, sizeof made);
    return ncclSuccess;
}
