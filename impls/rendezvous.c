/* The connecting side of a rendezvous; rank 0's is in rendezvous_serve.c. */
#include "impls/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gpu/base/clock.h"
#include "impls/rendezvous_wire.h"

/* One attempt at one address: a connected socket, or -1 with errno (ETIMEDOUT when the deadline passed). */
static int connect_once(const struct addrinfo *address, double deadline) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address->ai_protocol);
    if (fd < 0) {
        return -1;
    }
    int error = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    while (error == EINPROGRESS || error == EINTR) {
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        int ready = poll(&entry, 1, ls_wire_poll_ms(deadline));
        if (ready > 0) {
            socklen_t length = sizeof error;
            error = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
        } else if (ready == 0) {
            error = ls_wire_poll_ms(deadline) == 0 ? ETIMEDOUT : error;
        } else if (errno != EINTR) {
            error = errno;
        }
    }
    if (error != 0) {
        (void)close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Tries every address until one answers: rank 0 may not listen yet. Waits longer from try to try, up to 100 ms. */
static ls_rc connect_until(const ls_rendezvous *meeting, double deadline, int *out) {
    struct addrinfo *addresses = NULL;
    LS_TRY(ls_wire_resolve(meeting, &addresses));
    int pause_ms = 1;
    int error = ETIMEDOUT;
    *out = -1;
    while (*out < 0 && ls_wire_poll_ms(deadline) > 0) {
        for (const struct addrinfo *address = addresses; address != NULL && *out < 0; address = address->ai_next) {
            *out = connect_once(address, deadline);
            error = *out < 0 ? errno : 0;
        }
        if (*out < 0) {
            int left = ls_wire_poll_ms(deadline);
            (void)poll(NULL, 0, pause_ms < left ? pause_ms : left);
            pause_ms = pause_ms < 50 ? 2 * pause_ms : 100;
        }
    }
    freeaddrinfo(addresses);
    if (*out < 0) {
        return ls_fail(LS_DEVICE_FAILED, "rank 0 does not answer on %s port %u within %g s: %s", meeting->host,
                       (unsigned)meeting->port, meeting->timeout, strerror(error));
    }
    return LS_OK;
}

/* Says hello and takes rank 0's answer. */
static ls_rc exchange(const ls_rendezvous *meeting, int fd, void *blob, size_t size) {
    /* Rank 0's own time limit began before this rank could connect; with the time that it has to answer (as in
     * ls_rendezvous_serve) its verdict comes before this deadline. */
    double deadline = ls_now_seconds() + meeting->timeout + LS_WIRE_ANSWER_SECONDS;
    uint64_t hello[LS_HELLO_WORDS] = {
        [LS_HELLO_MAGIC] = LS_WIRE_MAGIC,
        [LS_HELLO_WORLD] = meeting->world,
        [LS_HELLO_RANK] = meeting->rank,
        [LS_HELLO_PARAMS] = meeting->param_count,
        [LS_HELLO_FINGERPRINT] = meeting->fingerprint,
        [LS_HELLO_BLOB] = size,
    };
    uint64_t reply[LS_REPLY_WORDS];
    ls_wire_pack(hello, LS_HELLO_WORDS);
    int status = ls_wire_send(fd, hello, sizeof hello, deadline);
    if (status > 0) {
        status = ls_wire_receive(fd, reply, sizeof reply, deadline);
    }
    if (status > 0) {
        ls_wire_unpack(reply, LS_REPLY_WORDS);
        if (reply[LS_REPLY_MAGIC] != LS_WIRE_MAGIC || reply[LS_REPLY_CODE] > LS_DEVICE_FAILED) {
            return ls_fail(LS_BAD_INPUT, "%s port %u is not rank 0 of this program; check MASTER_ADDR and MASTER_PORT",
                           meeting->host, (unsigned)meeting->port);
        }
        if (reply[LS_REPLY_CODE] != LS_OK && meeting->by_hand) {
            return ls_fail((ls_rc)reply[LS_REPLY_CODE],
                           "rank 0 on %s port %u has ended the rendezvous; its line says why", meeting->host,
                           (unsigned)meeting->port);
        }
        if (reply[LS_REPLY_CODE] != LS_OK) {
            return (ls_rc)reply[LS_REPLY_CODE]; /* rank 0 has printed why */
        }
        status = ls_wire_receive(fd, blob, size, deadline);
    }
    if (status <= 0) {
        const char *reason = status == 0 ? "no answer" : errno == 0 ? "it closed the connection" : strerror(errno);
        return ls_fail(LS_DEVICE_FAILED, "rank 0 on %s port %u failed during the rendezvous: %s", meeting->host,
                       (unsigned)meeting->port, reason);
    }
    return LS_OK;
}

ls_rc ls_rendezvous_share(const ls_rendezvous *meeting, void *blob, size_t size) {
    if (meeting->rank >= meeting->world) {
        return ls_fail(LS_BAD_INPUT, "RANK is %zu, expected 0 to %zu for WORLD_SIZE %zu", meeting->rank,
                       meeting->world == 0 ? 0 : meeting->world - 1, meeting->world);
    }
    if (meeting->world == 1) {
        return LS_OK;
    }
    if (meeting->rank == 0) {
        return ls_rendezvous_serve(meeting, blob, size);
    }
    int fd = -1;
    LS_TRY(connect_until(meeting, ls_now_seconds() + meeting->timeout, &fd));
    ls_rc rc = exchange(meeting, fd, blob, size);
    (void)close(fd);
    return rc;
}
