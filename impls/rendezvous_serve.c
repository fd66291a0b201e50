/* Rank 0's side of a rendezvous: listens, collects a hello of every other rank, answers all of them at once. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gpu/base/clock.h"
#include "impls/rendezvous_wire.h"

/* A connection whose hello may not be complete yet. Connections that turn out not to be ranks are closed and forgotten. */
typedef struct guest {
    int fd;
    size_t received; /* bytes of hello */
    uint64_t hello[LS_HELLO_WORDS];
} guest;

typedef struct host {
    const ls_rendezvous *meeting;
    size_t blob_size;
    int listener;
    guest *guests; /* connections whose hello is under way; capacity as in pollfds less the listener */
    size_t guest_count;
    int *ranks; /* [world]: socket of each rank that has come, -1: not yet */
    size_t arrived;
    struct pollfd *entries; /* [1 + MAX_GUESTS] */
} host;

/* More than these at once can only be strangers; more ranks wait in the listen queue until earlier hellos are complete. */
enum { MAX_GUESTS = 64, LISTEN_QUEUE = 1024 };

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    }
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* A listening socket at address; -1 with errno. Not on loopback: at every address of this host, since a host's own name may
 * resolve to another address here (127.0.1.1 in Debian) than at its peers. */
static int listen_at(const struct addrinfo *address) {
    struct sockaddr_storage own;
    memcpy(&own, address->ai_addr, address->ai_addrlen);
    if (!is_loopback(address->ai_addr)) {
        if (address->ai_family == AF_INET) {
            ((struct sockaddr_in *)&own)->sin_addr.s_addr = htonl(INADDR_ANY);
        } else {
            ((struct sockaddr_in6 *)&own)->sin6_addr = in6addr_any;
        }
    }
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address->ai_protocol);
    if (fd < 0) {
        return -1;
    }
    int on = 1;
    /* SO_REUSEADDR: connections of an earlier run in TIME_WAIT do not block the port; a listener still does. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (const struct sockaddr *)&own, address->ai_addrlen) != 0 || listen(fd, LISTEN_QUEUE) != 0) {
        int error = errno;
        (void)close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static ls_rc open_listener(host *h) {
    struct addrinfo *addresses = NULL;
    LS_TRY(ls_wire_resolve(h->meeting, &addresses));
    int error = 0;
    for (const struct addrinfo *address = addresses; address != NULL && h->listener < 0; address = address->ai_next) {
        h->listener = listen_at(address);
        error = h->listener < 0 && error != EADDRINUSE ? errno : error;
    }
    freeaddrinfo(addresses);
    if (h->listener >= 0) {
        return LS_OK;
    }
    if (error == EADDRINUSE) {
        return ls_fail(LS_BAD_INPUT,
                       "port %u on %s is in use, by a second process with RANK 0 or by another program (choose another "
                       "MASTER_PORT then)",
                       (unsigned)h->meeting->port, h->meeting->host);
    }
    return ls_fail(LS_BAD_INPUT, "rank 0 cannot listen on %s port %u: %s", h->meeting->host, (unsigned)h->meeting->port,
                   strerror(error));
}

/* Closes a guest's connection, unless it became a rank's, and forgets it. */
static void drop_guest(host *h, size_t index, bool keep_socket) {
    if (!keep_socket) {
        (void)close(h->guests[index].fd);
    }
    h->guests[index] = h->guests[--h->guest_count];
}

/* A rank's hello against rank 0's own view. */
static ls_rc check_hello(const host *h, const uint64_t *hello) {
    const ls_rendezvous *own = h->meeting;
    unsigned long long rank = hello[LS_HELLO_RANK];
    if (hello[LS_HELLO_WORLD] != own->world) {
        return ls_fail(LS_BAD_INPUT, "rank %llu has WORLD_SIZE %llu, rank 0 has %zu; start all ranks alike", rank,
                       (unsigned long long)hello[LS_HELLO_WORLD], own->world);
    }
    if (rank == 0 || rank >= own->world) {
        return ls_fail(LS_BAD_INPUT, "a second process says that its RANK is %llu, expected 1 to %zu", rank,
                       own->world - 1);
    }
    if (h->ranks[rank] >= 0) {
        return ls_fail(LS_BAD_INPUT, "two processes say that their RANK is %llu; every rank needs its own", rank);
    }
    if (hello[LS_HELLO_PARAMS] != own->param_count) {
        return ls_fail(LS_BAD_INPUT, "rank %llu has a model of %llu parameters, rank 0 one of %llu; give all the same",
                       rank, (unsigned long long)hello[LS_HELLO_PARAMS], (unsigned long long)own->param_count);
    }
    if (hello[LS_HELLO_FINGERPRINT] != own->fingerprint || hello[LS_HELLO_BLOB] != h->blob_size) {
        return ls_fail(LS_BAD_INPUT,
                       "rank %llu and rank 0 differ in model, dtype, buckets, training or communication options (plans "
                       "%016llx and %016llx); "
                       "start all ranks with the same options",
                       rank, (unsigned long long)hello[LS_HELLO_FINGERPRINT], (unsigned long long)own->fingerprint);
    }
    return LS_OK;
}

/* Reads what a guest has sent. A complete hello makes it a rank; what is not a rank is dropped. */
static ls_rc read_guest(host *h, size_t index) {
    guest *g = &h->guests[index];
    ssize_t got = recv(g->fd, (char *)g->hello + g->received, sizeof g->hello - g->received, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return LS_OK;
    }
    if (got <= 0) {
        drop_guest(h, index, false);
        return LS_OK;
    }
    g->received += (size_t)got;
    if (g->received < sizeof g->hello) {
        return LS_OK;
    }
    ls_wire_unpack(g->hello, LS_HELLO_WORDS);
    if (g->hello[LS_HELLO_MAGIC] != LS_WIRE_MAGIC) {
        drop_guest(h, index, false);
        return LS_OK;
    }
    LS_TRY(check_hello(h, g->hello));
    h->ranks[g->hello[LS_HELLO_RANK]] = g->fd;
    h->arrived++;
    drop_guest(h, index, true);
    return LS_OK;
}

static ls_rc accept_guest(host *h) {
    int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED) {
            return LS_OK;
        }
        return ls_fail(LS_DEVICE_FAILED, "rank 0 cannot accept a rank on port %u: %s", (unsigned)h->meeting->port,
                       strerror(errno));
    }
    h->guests[h->guest_count++] = (guest){.fd = fd};
    return LS_OK;
}

static ls_rc fail_missing(const host *h) {
    char missing[256] = "";
    size_t used = 0;
    for (size_t rank = 1; rank < h->meeting->world && used < sizeof missing - 24; rank++) {
        if (h->ranks[rank] < 0) {
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%zu", used == 0 ? "" : ", ", rank);
        }
    }
    return ls_fail(LS_DEVICE_FAILED, "rank %s of %zu did not come to %s port %u within %g s", missing,
                   h->meeting->world, h->meeting->host, (unsigned)h->meeting->port, h->meeting->timeout);
}

/* Until every rank has come. */
static ls_rc collect(host *h, double deadline) {
    while (h->arrived + 1 < h->meeting->world) {
        bool room = h->guest_count < MAX_GUESTS;
        h->entries[0] = (struct pollfd){.fd = room ? h->listener : -1, .events = POLLIN};
        for (size_t i = 0; i < h->guest_count; i++) {
            h->entries[1 + i] = (struct pollfd){.fd = h->guests[i].fd, .events = POLLIN};
        }
        int wait_ms = ls_wire_poll_ms(deadline);
        int ready = wait_ms == 0 ? 0 : poll(h->entries, 1 + h->guest_count, wait_ms);
        if (ready < 0 && errno != EINTR) {
            return ls_fail(LS_DEVICE_FAILED, "rank 0 cannot wait for the other ranks: %s", strerror(errno));
        }
        if (ready == 0 && ls_wire_poll_ms(deadline) == 0) {
            return fail_missing(h);
        }
        for (size_t i = h->guest_count; ready > 0 && i-- > 0;) { /* downwards: dropping moves the last one here */
            if (h->entries[1 + i].revents != 0) {
                LS_TRY(read_guest(h, i));
            }
        }
        if (ready > 0 && h->entries[0].revents != 0) {
            LS_TRY(accept_guest(h));
        }
    }
    return LS_OK;
}

/* Tells one connection the outcome. */
static int answer(int fd, ls_rc code, const void *blob, size_t size, double deadline) {
    uint64_t reply[LS_REPLY_WORDS] = {[LS_REPLY_MAGIC] = LS_WIRE_MAGIC, [LS_REPLY_CODE] = (uint64_t)code};
    ls_wire_pack(reply, LS_REPLY_WORDS);
    int status = ls_wire_send(fd, reply, sizeof reply, deadline);
    return status > 0 && code == LS_OK ? ls_wire_send(fd, blob, size, deadline) : status;
}

/* Tells every rank, and after a failure every guest as well: one of them is the one that contradicts. */
static ls_rc answer_all(host *h, ls_rc code, const void *blob, size_t size, double deadline) {
    for (size_t rank = 1; rank < h->meeting->world; rank++) {
        if (h->ranks[rank] < 0) {
            continue;
        }
        int status = answer(h->ranks[rank], code, blob, size, deadline);
        if (status <= 0 && code == LS_OK) {
            code = ls_fail(LS_DEVICE_FAILED, "rank %zu left during the rendezvous", rank);
        }
    }
    for (size_t i = 0; i < h->guest_count && code != LS_OK; i++) {
        (void)answer(h->guests[i].fd, code, NULL, 0, ls_now_seconds());
    }
    return code;
}

static void close_all(host *h) {
    for (size_t i = 0; i < h->guest_count; i++) {
        (void)close(h->guests[i].fd);
    }
    for (size_t rank = 0; h->ranks != NULL && rank < h->meeting->world; rank++) {
        if (h->ranks[rank] >= 0) {
            (void)close(h->ranks[rank]);
        }
    }
    if (h->listener >= 0) {
        (void)close(h->listener);
    }
    free(h->ranks);
    free(h->guests);
    free(h->entries);
}

ls_rc ls_rendezvous_serve(const ls_rendezvous *meeting, const void *blob, size_t size) {
    double deadline = ls_now_seconds() + meeting->timeout;
    host h = {.meeting = meeting, .blob_size = size, .listener = -1};
    h.ranks = ls_calloc(meeting->world, sizeof *h.ranks, "the ranks of a rendezvous");
    for (size_t rank = 0; h.ranks != NULL && rank < meeting->world; rank++) {
        h.ranks[rank] = -1;
    }
    h.guests = ls_calloc(MAX_GUESTS, sizeof *h.guests, "the connections of a rendezvous");
    h.entries = ls_calloc(1 + MAX_GUESTS, sizeof *h.entries, "the connections of a rendezvous");
    ls_rc rc = h.ranks == NULL || h.guests == NULL || h.entries == NULL ? LS_DEVICE_FAILED : open_listener(&h);
    if (rc == LS_OK) {
        rc = collect(&h, deadline);
        /* Peers wait for this answer: even with the time used up they get it. */
        double last = ls_now_seconds() + LS_WIRE_ANSWER_SECONDS;
        rc = answer_all(&h, rc, blob, size, deadline > last ? deadline : last);
    }
    close_all(&h);
    return rc;
}
