/* The two sides of a rendezvous share these: messages, deadlines, and bytes over a non-blocking socket. */
#ifndef LS_IMPLS_RENDEZVOUS_WIRE_H
#define LS_IMPLS_RENDEZVOUS_WIRE_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "impls/rendezvous.h"

/* "LSRANKS" and the protocol's version. */
#define LS_WIRE_MAGIC UINT64_C(0x4c5352414e4b5301)

/* Messages are these words in network byte order. */
enum {
    LS_HELLO_MAGIC,
    LS_HELLO_WORLD,
    LS_HELLO_RANK,
    LS_HELLO_PARAMS,
    LS_HELLO_FINGERPRINT,
    LS_HELLO_BLOB,
    LS_HELLO_WORDS
};
enum { LS_REPLY_MAGIC, LS_REPLY_CODE, LS_REPLY_WORDS }; /* the code is an ls_rc; the blob follows LS_OK */

/* Seconds that rank 0 has to answer once its time limit has passed. */
#define LS_WIRE_ANSWER_SECONDS 1.0

/* Milliseconds until deadline for poll: 0 when it has passed, else at least 1. */
int ls_wire_poll_ms(double deadline);

/* Sends or receives all bytes before deadline: 1 done, 0 the deadline passed, -1 the peer is gone (errno, 0: it closed). */
int ls_wire_send(int fd, const void *bytes, size_t size, double deadline);
int ls_wire_receive(int fd, void *bytes, size_t size, double deadline);

/* Words to and from network byte order, in place. */
void ls_wire_pack(uint64_t *words, size_t count);
void ls_wire_unpack(uint64_t *words, size_t count);

/* Addresses of the meeting's host (freeaddrinfo by the caller). A name that does not resolve: one line, LS_BAD_INPUT. */
ls_rc ls_wire_resolve(const ls_rendezvous *meeting, struct addrinfo **out);

/* Rank 0's side. */
ls_rc ls_rendezvous_serve(const ls_rendezvous *meeting, const void *blob, size_t size);

#endif
