/* Where ranks as processes meet: TCP on MASTER_ADDR:MASTER_PORT, as torchrun sets them. Rank 0 listens, the others connect;
 * all check that they were started alike, and rank 0 hands them a blob (the id of the NCCL communicator). */
#ifndef LS_IMPLS_RENDEZVOUS_H
#define LS_IMPLS_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/base/error.h"

typedef struct ls_rendezvous {
    const char *host;    /* of rank 0: a name or an address, IPv4 or IPv6 */
    unsigned short port; /* of rank 0, not 0 */
    size_t rank, world;
    double timeout;       /* seconds to wait for peers */
    uint64_t param_count; /* of the model, to be named when ranks disagree */
    uint64_t fingerprint; /* a hash of everything in which ranks must agree */
    bool by_hand;         /* no launcher gathers the ranks' error lines: this rank says it too when rank 0 refuses */
} ls_rendezvous;

/* Collective: returns on every rank when all have come, with rank 0's `size` bytes in blob. Contradictions between ranks
 * (world size, rank taken twice, model, fingerprint) and a port in use: LS_BAD_INPUT. Ranks that do not come within the time
 * limit, or rank 0 out of reach: LS_DEVICE_FAILED. The cause is printed where it is known, mostly by rank 0; the
 * others then only return its code, or started by hand point to rank 0's line. */
ls_rc ls_rendezvous_share(const ls_rendezvous *meeting, void *blob, size_t size);

#endif
