#include "impls/rendezvous_wire.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "gpu/base/clock.h"

int ls_wire_poll_ms(double deadline) {
    double left = deadline - ls_now_seconds();
    if (left <= 0) {
        return 0;
    }
    return left > 1e6 ? 1000000000 : 1 + (int)(left * 1e3);
}

/* 1 when fd has one of events or an error to be read, 0 when the deadline has passed, -1 with errno. */
static int wait_for(int fd, short events, double deadline) {
    for (;;) {
        struct pollfd entry = {.fd = fd, .events = events};
        int ready = poll(&entry, 1, ls_wire_poll_ms(deadline));
        if (ready > 0) {
            return 1;
        }
        if (ready == 0) {
            if (ls_wire_poll_ms(deadline) == 0) {
                return 0;
            }
        } else if (errno != EINTR) {
            return -1;
        }
    }
}

int ls_wire_send(int fd, const void *bytes, size_t size, double deadline) {
    const char *next = bytes;
    while (size > 0) {
        ssize_t sent = send(fd, next, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            next += sent;
            size -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            int ready = wait_for(fd, POLLOUT, deadline);
            if (ready <= 0) {
                return ready;
            }
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 1;
}

int ls_wire_receive(int fd, void *bytes, size_t size, double deadline) {
    char *next = bytes;
    while (size > 0) {
        ssize_t got = recv(fd, next, size, MSG_DONTWAIT);
        if (got > 0) {
            next += got;
            size -= (size_t)got;
        } else if (got == 0) {
            errno = 0;
            return -1;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            int ready = wait_for(fd, POLLIN, deadline);
            if (ready <= 0) {
                return ready;
            }
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 1;
}

void ls_wire_pack(uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        words[i] = htobe64(words[i]);
    }
}

void ls_wire_unpack(uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        words[i] = be64toh(words[i]);
    }
}

ls_rc ls_wire_resolve(const ls_rendezvous *meeting, struct addrinfo **out) {
    char service[8];
    (void)snprintf(service, sizeof service, "%u", (unsigned)meeting->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    int status = getaddrinfo(meeting->host, service, &hints, out);
    if (status != 0) {
        *out = NULL;
        return ls_fail(LS_BAD_INPUT, "MASTER_ADDR '%s' does not resolve: %s; give the host of rank 0", meeting->host,
                       status == EAI_SYSTEM ? strerror(errno) : gai_strerror(status));
    }
    return LS_OK;
}
