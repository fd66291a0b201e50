/* What the files of vgpu's NCCL share. A clique is what the communicators of one unique id have in common inside one process:
 * the mapped control block and the peers' memory. The control block is shared by all processes of the clique. */
#ifndef LS_GPU_VGPU_NCCL_INTERNAL_H
#define LS_GPU_VGPU_NCCL_INTERNAL_H

#include <nccl.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpu/vgpu/internal.h"

enum {
    NCCL_RANKS_MAX = 128,  /* a clique's table must fit into the socket buffers of a thread that joins several ranks */
    NCCL_TEXT_BYTES = 448, /* of an error's line */
    NCCL_INLINE_BYTES = 272,  /* allreduces up to this size travel with their announcement and need one barrier only */
    NCCL_CHUNK_BYTES = 8192,  /* unit of reduction: with its sources it stays in the first-level cache */
    NCCL_NAME_BYTES = 16,     /* random name of a clique */
    NCCL_SLICE_NS = 20000000, /* how often a sleeping rank looks for dead peers and aborts */
    /* In descriptors all operations of ncclRedOpCreatePreMulSum are this one: their numbers differ between ranks. */
    NCCL_PREMUL_SUM = ncclNumOps,
    NCCL_OPS
};

typedef enum nccl_kind {
    NCCL_ALLREDUCE = 1,
    NCCL_BROADCAST,
    NCCL_REDUCE,
    NCCL_ALLGATHER,
    NCCL_REDUCESCATTER
} nccl_kind;

/* What a rank does; send and receive are offsets into the rank's arena. No larger than this, or less data lies beside it. */
typedef struct nccl_descriptor {
    uint8_t kind, registered; /* registered: 1 when the rank's buffers lie in registered memory */
    uint8_t dtype, op;
    uint16_t root;
    uint16_t scalar_is_pointer; /* until the operation is announced: scalar is the address of the scalar */
    uint64_t count, send, receive;
    uint64_t scalar; /* of NCCL_PREMUL_SUM: its first bytes are what this rank's elements are multiplied by */
} nccl_descriptor;

/* A rank's announcement of an operation. Two of them alternate: number s is written when the rank has finished s - 1, for
 * which every rank had arrived at s - 1 and so had finished reading number s - 2. */
typedef struct nccl_entry {
    alignas(64) _Atomic unsigned sequence;
    nccl_descriptor what;
    alignas(16) unsigned char data[NCCL_INLINE_BYTES]; /* 16 of them lie beside the descriptor */
} nccl_entry;

typedef struct nccl_slot {
    nccl_entry entry[2];
    alignas(64) _Atomic unsigned done; /* last sequence in which this rank's part has been moved (not of inline ones) */
    _Atomic uint64_t
        claim; /* who moves it, of small parts: sequence << 32 | rank; nobody before the first, which is 1 */
    alignas(64) _Atomic unsigned sleepers; /* ranks that sleep, or are about to, on this slot's words */
    _Atomic unsigned left;                 /* 1: the communicator was destroyed */
    alignas(64) _Atomic unsigned core; /* where the rank last announced an operation, counted from 1; 0: not known */
    _Atomic unsigned moving;           /* 1: the rank reads and writes buffers of all ranks now */
} nccl_slot;

typedef enum nccl_failure { NCCL_WELL = 0, NCCL_FAILURE_CLAIMED, NCCL_FAILURE_PUBLISHED } nccl_failure;

/* The first failure of the clique is everybody's: whoever claims the record writes and prints the line. */
typedef struct nccl_control {
    alignas(64) _Atomic unsigned failure;
    int32_t failure_result;
    char failure_text[NCCL_TEXT_BYTES];
    nccl_slot slots[];
} nccl_control;

/* A rank as this process sees it. */
typedef struct nccl_peer {
    pid_t pid;
    int device;
    bool local;    /* a rank of this process: base belongs to the runtime */
    char *base;    /* its device's arena, mapped here */
    size_t size;   /* bytes mapped */
    int pid_fd;    /* readable when the process has ended; -1 for local ranks */
    int memory_fd; /* while joining only: the arena's memfd, owned; -1 otherwise */
} nccl_peer;

/* The last launch of a local rank, to find what would deadlock on GPUs. */
typedef struct nccl_launch_record {
    unsigned sequence;
    uint64_t thread, launch;
} nccl_launch_record;

typedef struct nccl_clique {
    struct nccl_clique *next;
    unsigned char name[NCCL_NAME_BYTES];
    unsigned references; /* guarded by the table's lock */
    int ranks;
    nccl_control *control;
    size_t control_bytes;
    nccl_peer *peers;
    pthread_mutex_t lock; /* guards records */
    nccl_launch_record *records;
} nccl_clique;

/* An operation that its owner has made. */
typedef struct nccl_user_op {
    struct nccl_user_op *next;
    ncclRedOp_t number;
    ncclDataType_t dtype;
    bool scalar_is_pointer;
    uint64_t scalar; /* its first bytes, or its address */
} nccl_user_op;

/* Communicators are reused, never freed: a device that failed drops its queued operations without a word, and one that was
 * about to start then must still find out that its communicator has gone. */
struct ncclComm {
    struct ncclComm *next; /* of the free ones */
    _Atomic uint64_t magic;
    nccl_clique *clique;
    int rank, ranks, device;
    unsigned long long timeout_ns;
    pthread_mutex_t
        launching; /* a sequence number and its place in the stream are taken together; may be held long, while
                                   a full stream blocks */
    _Atomic unsigned launched;   /* queued so far; written under launching */
    pthread_mutex_t lock;        /* guards the next four; never held over a wait */
    _Atomic unsigned generation; /* operations of an earlier one are void */
    unsigned running;            /* operations on a stream's thread now */
    char error_text[NCCL_TEXT_BYTES];
    nccl_user_op *user_ops;
    _Atomic unsigned completed; /* operations that have ended, well or not */
    _Atomic unsigned sleepers;  /* on completed */
    _Atomic int async_error;    /* ncclResult_t, the first one; ncclInProgress while the communicator is being made */
    bool abandoned, joined; /* while it is being made: aborted by its owner; its thread has ended. Guarded by lock */
    _Atomic bool aborted;
    unsigned long long move_after_ns; /* of nccl_spread.c; used by the operation that runs */
};

/* A collective on its way through the stream; the payload of vgpu_submit. */
typedef struct nccl_operation {
    ncclComm_t comm;
    cudaStream_t stream;
    nccl_descriptor what;
    unsigned sequence, generation;
    size_t turn; /* which of its communicator's operations in the group, and then its place in the group */
    size_t place;
} nccl_operation;

/* A rank that joins a clique, in three phases, so that one thread can join several ranks: every phase is run for all of them
 * before the next. */
typedef struct nccl_join {
    ncclComm_t *out;
    ncclUniqueId id;
    int ranks, rank, device;
    unsigned long long timeout_ns, deadline_ns;
    int socket; /* -1: none */
    nccl_clique *clique;
} nccl_join;

/* nccl_error.c: keeps the line as the calling thread's last error and returns result. */
ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *nccl_last_error(void);

/* nccl_clique.c: a clique of local ranks only; the caller holds one reference for each rank. Takes nothing over. */
ncclResult_t nccl_clique_create_local(int ranks, const int *devices, nccl_clique **out);
/* The clique of that name, made from the control block and peers if this process has not joined it yet. Takes over
 * control_fd and the peers' descriptors in every case. */
ncclResult_t nccl_clique_join(const unsigned char *name, int ranks, int control_fd, nccl_peer *peers,
                              nccl_clique **out);
void nccl_clique_release(nccl_clique *clique);
size_t nccl_control_size(int ranks);
/* Records the clique's first failure and prints its line; later ones leave it. */
void nccl_clique_fail(nccl_clique *clique, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* ncclSuccess, or the clique's failure with its line in text (NCCL_TEXT_BYTES). */
ncclResult_t nccl_clique_status(nccl_clique *clique, char *text);
bool nccl_peer_ended(const nccl_peer *peer);

/* nccl_bootstrap_root.c and nccl_bootstrap_rank.c */
ncclResult_t nccl_rendezvous_open(ncclUniqueId *id);
ncclResult_t nccl_join_connect(nccl_join *join);
ncclResult_t nccl_join_receive(nccl_join *join);
ncclResult_t nccl_join_finish(nccl_join *join);
void nccl_join_cancel(nccl_join *join);

/* nccl_communicator.c */
ncclResult_t nccl_timeout(unsigned long long *nanoseconds);
bool nccl_comm_valid(const struct ncclComm *comm);
/* Waits up to one slice while comm->completed == seen. */
void nccl_comm_wait(ncclComm_t comm, unsigned seen);
ncclResult_t nccl_join_all(nccl_join *joins, size_t count);
/* The same without communicators: each join has its clique afterwards, or is to be cancelled. */
ncclResult_t nccl_join_cliques(nccl_join *joins, size_t count);
/* A communicator that nobody has yet, NULL when memory is short; and back. fill makes it a live one and takes over one reference
 * of clique; the caller holds comm->lock. */
ncclComm_t nccl_comm_take(void);
void nccl_comm_put(ncclComm_t comm);
void nccl_comm_fill(ncclComm_t comm, nccl_clique *clique, int rank, unsigned long long timeout_ns);

/* nccl_nonblocking.c: communicators that are made while their owner goes on (blocking = 0). join_behind returns ncclInProgress
 * and leaves the communicator in *join->out. */
ncclResult_t nccl_join_behind(const nccl_join *join);
bool nccl_comm_joining(const struct ncclComm *comm);
/* Gives up a communicator that is not live yet, or never came to be; false when it is none of these. */
bool nccl_join_abandon(ncclComm_t comm);

/* nccl_register.c: whether bytes from pointer on lie in a buffer that comm has registered. */
bool nccl_registered(const struct ncclComm *comm, const void *pointer, size_t bytes);
/* Forgets what comm has registered and returns how many buffers these were. */
size_t nccl_register_drop(const struct ncclComm *comm);

/* nccl_user_op.c: comm's operation of that number; false when it has none. */
bool nccl_user_op_find(ncclComm_t comm, ncclRedOp_t op, nccl_user_op *out);
/* Forgets all of comm; its lock is held. */
void nccl_user_op_drop(ncclComm_t comm);

/* nccl_group.c */
bool nccl_group_open(void);
/* Both keep an error for ncclGroupEnd when a group is open. */
ncclResult_t nccl_group_join(const nccl_join *join);
ncclResult_t nccl_group_operation(nccl_operation operation);
ncclResult_t nccl_group_note(ncclResult_t result);

/* nccl_launch.c: queues operations that were started together. */
ncclResult_t nccl_launch(nccl_operation *operations, size_t count);

/* nccl_protocol.c: runs a collective on its stream's thread. */
cudaError_t nccl_run(void *payload);
/* After the clique's failure has been recorded: waits until no other rank uses the buffers of comm's rank any more, so that they may
 * be freed. A rank that takes longer than a part can take (it is stopped, say) makes this fail with a line that names it. */
ncclResult_t nccl_await_movers(ncclComm_t comm);
void nccl_describe(char *text, size_t size, const nccl_descriptor *what);
const char *nccl_kind_name(unsigned kind);

/* nccl_spread.c: the core of the calling thread, counted from 1, 0 when it is not known; whether it is the one that peer was
 * last seen on; moves the thread, now and then, to a core that no peer was last seen on, if there is one. */
unsigned nccl_core(void);
bool nccl_shares_core(const nccl_operation *o, int peer);
void nccl_spread(const nccl_operation *o);

/* nccl_reduce.c: out[i] = op over the sources in their order, for count elements; count * element size is at most
 * NCCL_CHUNK_BYTES and out does not overlap the sources. Average: floating-point elements are multiplied by 1/sources before
 * they are added, integers are divided after, as NCCL does. NCCL_PREMUL_SUM: elements of source k are multiplied by scalars[k]
 * (as in a descriptor), the product is rounded to their type, and then added; other operations do not look at scalars.
 * 16-bit floats are added in float32 and the sum is rounded once. */
void nccl_reduce_chunk(unsigned dtype, unsigned op, size_t sources, const void *const *source, const uint64_t *scalars,
                       size_t count, void *out);
/* nccl_reduce_two.c: elements first..first+count of two sources to both targets, which may be the sources, with the bits of
 * nccl_reduce_chunk. rank: the calling one, 0 or 1; its own source is taken to lie near its core. False when the type or operation
 * is not among those that it does. */
bool nccl_reduce_two(const nccl_descriptor *what, int rank, const char *const *sources, const uint64_t *scalars,
                     char *const *targets, size_t first, size_t count);
/* Bytes of an element; 0 for a type that is not served. */
size_t nccl_dtype_size(unsigned dtype);
const char *nccl_dtype_name(unsigned dtype);
const char *nccl_op_name(unsigned op);

#endif
