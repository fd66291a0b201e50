/* The messages of the rendezvous. A unique id names a listening socket (SEQPACKET, abstract name, so nothing lies in the
 * file system) in the process that made it. Each rank connects and sends nccl_hello with its arena's memfd; when all have,
 * the root answers each with one NCCL_REPLY_PEER for every rank (with the memfd, unless both are of one process) and one
 * NCCL_REPLY_CONTROL with the control block's memfd; the rank maps them and sends nccl_ready; when all have, the root sends
 * NCCL_REPLY_GO. At any point NCCL_REPLY_REFUSED may come instead, with the reason. */
#ifndef LS_GPU_VGPU_NCCL_BOOTSTRAP_H
#define LS_GPU_VGPU_NCCL_BOOTSTRAP_H

#include <sys/socket.h>
#include <sys/un.h>

#include "gpu/vgpu/nccl_internal.h"

#define NCCL_MAGIC 0x4c5356475055434cULL

/* What ncclUniqueId holds. */
typedef struct nccl_id {
    uint64_t magic;
    unsigned char name[NCCL_NAME_BYTES];
    int32_t pid; /* of the process that made it, for messages */
} nccl_id;

typedef struct nccl_hello {
    uint64_t magic;
    uint64_t process; /* random token: equal for ranks of one process */
    uint64_t arena_bytes;
    int32_t ranks, rank, device, pid;
} nccl_hello;

typedef struct nccl_ready {
    uint64_t magic;
} nccl_ready;

enum { NCCL_REPLY_REFUSED = 1, NCCL_REPLY_PEER, NCCL_REPLY_CONTROL, NCCL_REPLY_GO };

typedef struct nccl_reply {
    int32_t kind;
    int32_t result;       /* REFUSED */
    int32_t rank;         /* PEER */
    int32_t pid;          /* PEER */
    int32_t device;       /* PEER */
    int32_t same;         /* PEER: of the receiver's process */
    uint64_t arena_bytes; /* PEER */
} nccl_reply;

/* A refusal is a reply followed by its text. */
typedef struct nccl_refusal {
    nccl_reply reply;
    char text[NCCL_TEXT_BYTES];
} nccl_refusal;

/* nccl_bootstrap_socket.c. The address of a clique's rendezvous. */
socklen_t nccl_address(const unsigned char *name, struct sockaddr_un *address);
/* Sends one message with fd attached unless it is -1; 0 or -1 with errno. */
int nccl_send(int socket, const void *message, size_t bytes, int fd);
/* Receives one message of at most bytes; *fd is the attached descriptor (close-on-exec) or -1. Returns its size, 0 at the
 * end of the connection, -1 with errno (EAGAIN when the socket does not block). */
ssize_t nccl_receive(int socket, void *message, size_t bytes, int *fd);
/* True when the other end runs as this user. */
bool nccl_same_user(int socket);

#endif
