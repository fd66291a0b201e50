/* What a rank agrees upon with its peers: its bucket plan, and the collectives that it has begun, in order. Recorded for
 * verification only; without it every call does nothing. */
#ifndef LS_IMPLS_PROTOCOL_H
#define LS_IMPLS_PROTOCOL_H

#include "gpu/base/error.h"
#include "impls/buckets.h"

typedef enum ls_collective_kind { LS_COLLECTIVE_ALLREDUCE = 0, LS_COLLECTIVE_BROADCAST } ls_collective_kind;

/* One collective as it was asked for. Plain data without padding, compared and written as bytes. */
typedef struct ls_collective {
    uint32_t kind;
    uint32_t element; /* bytes of an element */
    uint32_t floats;  /* 1: floating point, 0: integers */
    uint32_t root;    /* of a broadcast, else 0 */
    uint64_t count;   /* elements */
} ls_collective;

_Static_assert(sizeof(ls_collective) == 24, "no padding: the bytes are compared");

typedef struct ls_protocol {
    bool record;
    const ls_bucket_plan *plan;
    size_t count, capacity;
    ls_collective *collectives; /* [count] since the last ls_protocol_forget, owned */
} ls_protocol;

/* Adds a collective that has just been begun. LS_DEVICE_FAILED when memory is short. */
ls_rc ls_protocol_note(ls_protocol *protocol, ls_collective collective);
ls_rc ls_protocol_allreduce(ls_protocol *protocol, ls_dtype dtype, size_t count);
ls_rc ls_protocol_broadcast(ls_protocol *protocol, ls_dtype dtype, size_t count, size_t root);

/* Starts the list anew. */
void ls_protocol_forget(ls_protocol *protocol);
void ls_protocol_close(ls_protocol *protocol);

/* "allreduce of 1320 float32", "broadcast of 1 int64 from rank 0" */
void ls_collective_describe(const ls_collective *collective, char *text, size_t size);

#endif
