/* A collective of MPI on host memory. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/collective.h"
#include "bench/micro/ops.h"
#include "impls/mpi_check.h"

/* MPI's functions with one signature, in place as MPI defines it. What MPI does not have is refused before (ls_micro_refuse). */

static MPI_Datatype type_of(const ls_micro_call *c) {
    switch (c->type->nccl) {
    case ncclFloat64:
        return MPI_DOUBLE;
    case ncclInt8:
        return MPI_INT8_T;
    case ncclUint8:
        return MPI_UINT8_T;
    case ncclInt32:
        return MPI_INT32_T;
    case ncclUint32:
        return MPI_UINT32_T;
    case ncclInt64:
        return MPI_INT64_T;
    case ncclUint64:
        return MPI_UINT64_T;
    default:
        return MPI_FLOAT;
    }
}

static MPI_Op op_of(const ls_micro_call *c) {
    switch (c->redop->nccl) {
    case ncclProd:
        return MPI_PROD;
    case ncclMax:
        return MPI_MAX;
    case ncclMin:
        return MPI_MIN;
    default:
        return MPI_SUM;
    }
}

static int mpi_allreduce(const ls_micro_call *c) {
    return MPI_Allreduce(c->in_place ? MPI_IN_PLACE : c->send, c->recv, (int)c->count, type_of(c), op_of(c),
                         MPI_COMM_WORLD);
}

/* MPI broadcasts in place only. */
static int mpi_broadcast(const ls_micro_call *c) {
    return MPI_Bcast(c->recv, (int)c->count, type_of(c), c->root, MPI_COMM_WORLD);
}

static int mpi_reduce(const ls_micro_call *c) {
    int rank = 0;
    int status = MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (status != MPI_SUCCESS) {
        return status;
    }
    const void *send = c->in_place && rank == c->root ? MPI_IN_PLACE : c->send;
    return MPI_Reduce(send, c->recv, (int)c->count, type_of(c), op_of(c), c->root, MPI_COMM_WORLD);
}

static int mpi_reduce_scatter(const ls_micro_call *c) {
    return MPI_Reduce_scatter_block(c->in_place ? MPI_IN_PLACE : c->send, c->recv, (int)c->count, type_of(c), op_of(c),
                                    MPI_COMM_WORLD);
}

static int mpi_all_gather(const ls_micro_call *c) {
    return MPI_Allgather(c->in_place ? MPI_IN_PLACE : c->send, (int)c->count, type_of(c), c->recv, (int)c->count,
                         type_of(c), MPI_COMM_WORLD);
}

/* By the names of ls_micro_collectives. */
static const struct {
    const char *name;
    int (*call)(const ls_micro_call *call);
} functions[] = {
    {"allreduce", mpi_allreduce},           {"broadcast", mpi_broadcast},   {"reduce", mpi_reduce},
    {"reduce-scatter", mpi_reduce_scatter}, {"all-gather", mpi_all_gather},
};

typedef struct mpi_job {
    ls_micro_place *place;
    ls_micro_job job;
    ls_micro_plan plan;
    void *send, *recv; /* in place recv alone, except where part is */
    void *fresh;       /* what an iteration reads, and how much of it */
    size_t fresh_bytes;
    ls_micro_call call;
    int (*function)(const ls_micro_call *call);
} mpi_job;

static void mpi_close(void *self) {
    mpi_job *j = self;
    if (j != NULL) {
        free(j->send);
        free(j->recv);
        free(j);
    }
}

static ls_rc open_all(mpi_job *j) {
    const ls_micro_plan *plan = &j->plan;
    if (plan->whole > INT_MAX) {
        return ls_fail(LS_BAD_INPUT, "MPI counts are int: %zu elements are too many", plan->whole);
    }
    j->send = ls_calloc(plan->sends, plan->type->size, "the buffers of a collective");
    j->recv = ls_calloc(plan->whole, plan->type->size, "the buffers of a collective");
    if (j->send == NULL || j->recv == NULL) {
        return LS_DEVICE_FAILED;
    }
    /* MPI's broadcast is in place always; in place all-gather reads the rank's part of what it writes. */
    bool inside = j->job.in_place || (plan->collective->rooted && !plan->collective->reduces);
    j->fresh = inside ? (char *)j->recv + (plan->collective->sends_all ? 0 : plan->part) : j->send;
    j->fresh_bytes = plan->sends * plan->type->size;
    j->call = ls_micro_plan_call(plan, &j->job);
    j->call.send = j->fresh;
    j->call.recv = j->recv;
    return LS_OK;
}

static ls_rc mpi_open(ls_micro_place *place, const ls_micro_job *job, void **self) {
    mpi_job *j = ls_calloc(1, sizeof *j, "a collective");
    *self = j;
    if (j == NULL) {
        return LS_DEVICE_FAILED;
    }
    j->place = place;
    j->job = *job;
    j->plan = ls_micro_plan_make(job, place->world, place->rank);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(functions[i].name, j->plan.collective->name) == 0) {
            j->function = functions[i].call;
        }
    }
    return j->function != NULL ? open_all(j)
                               : ls_fail(LS_BAD_INPUT, "MPI has no function for '%s' here", j->plan.collective->name);
}

static ls_rc rewrite(void *self) {
    mpi_job *j = self;
    memset(j->fresh, 0x3f, j->fresh_bytes);
    return LS_OK;
}

static ls_rc run(void *self) {
    mpi_job *j = self;
    LS_MPI(j->function(&j->call));
    return LS_OK;
}

static ls_rc mpi_measure(void *self, size_t iterations, double *seconds) {
    mpi_job *j = self;
    return ls_micro_time(j->place, j, rewrite, run, iterations, seconds);
}

static ls_rc mpi_check(void *self, uint64_t *wrong) {
    mpi_job *j = self;
    const ls_micro_plan *plan = &j->plan;
    size_t world = j->place->world, rank = j->place->rank;
    memset(j->recv, 0xa5, plan->whole * plan->type->size);
    ls_micro_fill(plan->collective, plan->type, plan->redop, world, rank, plan->sends, j->fresh);
    LS_TRY(run(j));
    *wrong = ls_micro_count_wrong(plan->collective, plan->type, plan->redop, world, rank, j->job.root, plan->whole,
                                  plan->receives, j->recv);
    return LS_OK;
}

const ls_micro_op ls_micro_op_mpi = {
    .name = "mpi", .open = mpi_open, .measure = mpi_measure, .check = mpi_check, .close = mpi_close};
