#include "bench/micro/collective.h"

#include <limits.h>
#include <string.h>

/* NCCL's functions with one signature. In place as NCCL defines it. */

static ncclResult_t nccl_allreduce(const ls_micro_call *c) {
    return ncclAllReduce(c->send, c->recv, c->count, c->type->nccl, c->redop->nccl, c->comm, c->stream);
}

static ncclResult_t nccl_broadcast(const ls_micro_call *c) {
    return ncclBroadcast(c->send, c->recv, c->count, c->type->nccl, c->root, c->comm, c->stream);
}

static ncclResult_t nccl_reduce(const ls_micro_call *c) {
    return ncclReduce(c->send, c->recv, c->count, c->type->nccl, c->redop->nccl, c->root, c->comm, c->stream);
}

static ncclResult_t nccl_reduce_scatter(const ls_micro_call *c) {
    return ncclReduceScatter(c->send, c->recv, c->count, c->type->nccl, c->redop->nccl, c->comm, c->stream);
}

static ncclResult_t nccl_all_gather(const ls_micro_call *c) {
    return ncclAllGather(c->send, c->recv, c->count, c->type->nccl, c->comm, c->stream);
}

const ls_micro_collective ls_micro_collectives[] = {
    {"allreduce", false, true, true, true, 2, nccl_allreduce},
    {"broadcast", true, false, true, true, 0, nccl_broadcast},
    {"reduce", true, true, true, true, 0, nccl_reduce},
    {"reduce-scatter", false, true, true, false, 1, nccl_reduce_scatter},
    {"all-gather", false, false, false, true, 1, nccl_all_gather},
    {NULL, false, false, false, false, 0, NULL},
};

const ls_micro_type ls_micro_types[] = {
    {"float", 4, ncclFloat32, true, true}, {"double", 8, ncclFloat64, true, true},
    {"half", 2, ncclFloat16, false, true}, {"bfloat16", 2, ncclBfloat16, false, true},
    {"int8", 1, ncclInt8, true, false},    {"uint8", 1, ncclUint8, true, false},
    {"int32", 4, ncclInt32, true, false},  {"uint32", 4, ncclUint32, true, false},
    {"int64", 8, ncclInt64, true, false},  {"uint64", 8, ncclUint64, true, false},
    {NULL, 0, ncclInt8, false, false},
};

const ls_micro_redop ls_micro_redops[] = {
    {"sum", ncclSum, true}, {"prod", ncclProd, true}, {"max", ncclMax, true},
    {"min", ncclMin, true}, {"avg", ncclAvg, false},  {NULL, ncclSum, false},
};

size_t ls_micro_collective_find(const char *name) {
    for (size_t i = 0; ls_micro_collectives[i].name != NULL; i++) {
        if (strcmp(ls_micro_collectives[i].name, name) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

size_t ls_micro_type_find(const char *name) {
    for (size_t i = 0; ls_micro_types[i].name != NULL; i++) {
        if (strcmp(ls_micro_types[i].name, name) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

size_t ls_micro_redop_find(const char *name) {
    for (size_t i = 0; ls_micro_redops[i].name != NULL; i++) {
        if (strcmp(ls_micro_redops[i].name, name) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

size_t ls_micro_elements(const ls_micro_collective *collective, size_t bytes, size_t type_size, size_t world) {
    size_t count = bytes / type_size;
    bool parts = !collective->sends_all || !collective->receives_all;
    return parts ? count / world * world : count;
}

ls_micro_plan ls_micro_plan_make(const ls_micro_job *job, size_t world, size_t rank) {
    ls_micro_plan plan = {.collective = &ls_micro_collectives[job->collective],
                          .type = &ls_micro_types[job->type],
                          .redop = &ls_micro_redops[job->redop]};
    plan.whole = ls_micro_elements(plan.collective, job->bytes, plan.type->size, world);
    plan.sends = plan.collective->sends_all ? plan.whole : plan.whole / world;
    plan.receives = plan.collective->receives_all ? plan.whole : plan.whole / world;
    plan.part = rank * (plan.whole / world) * plan.type->size;
    return plan;
}

ls_micro_call ls_micro_plan_call(const ls_micro_plan *plan, const ls_micro_job *job) {
    return (ls_micro_call){.count = plan->sends < plan->receives ? plan->sends : plan->receives,
                           .type = plan->type,
                           .redop = plan->redop,
                           .root = (int)job->root,
                           .in_place = job->in_place};
}

double ls_micro_bus_factor(const ls_micro_collective *collective, size_t world) {
    return collective->factor == 0 ? 1 : collective->factor * (double)(world - 1) / (double)world;
}

enum { EXACT_WORLD = 31 }; /* the sum of so many values up to 4 fits int8 and is exact in bfloat16 */

const char *ls_micro_refuse(const ls_micro_collective *collective, const ls_micro_type *type,
                            const ls_micro_redop *redop, size_t world, bool mpi) {
    if (world > EXACT_WORLD) {
        return "more than 31 ranks: the expected values would not be exact in every type";
    }
    if (mpi && !type->in_mpi) {
        return "MPI has no such type";
    }
    if (collective->reduces && mpi && !redop->in_mpi) {
        return "MPI has no such reduction";
    }
    if (collective->reduces && redop->nccl == ncclAvg && (!type->is_float || (world & (world - 1)) != 0)) {
        return "an average is exact only for floating types over a power of two of ranks";
    }
    return "";
}

/* A small number out of rank and place, from 1 to 4. */
static double mixed(size_t rank, size_t i) {
    uint32_t h = (uint32_t)i * 2654435761U + (uint32_t)rank * 40503U;
    return (double)(1 + (h >> 13 & 3U));
}

/* What rank sends at place i. Products: one rank has a 2 and another a 3, so that none grows beyond 6. */
static double sent(const ls_micro_redop *redop, size_t world, size_t rank, size_t i) {
    if (redop->nccl != ncclProd) {
        return mixed(rank, i);
    }
    return i % world == rank ? 2 : (i + 1) % world == rank ? 3 : 1;
}

static double reduced(const ls_micro_redop *redop, size_t world, size_t i) {
    double value = sent(redop, world, 0, i);
    for (size_t r = 1; r < world; r++) {
        double other = sent(redop, world, r, i);
        switch (redop->nccl) {
        case ncclProd:
            value *= other;
            break;
        case ncclMax:
            value = other > value ? other : value;
            break;
        case ncclMin:
            value = other < value ? other : value;
            break;
        default:
            value += other;
            break;
        }
    }
    return redop->nccl == ncclAvg ? value / (double)world : value;
}

/* IEEE binary16 of a value from 2^-14 to 65504 that it holds exactly. */
static uint16_t half_of(double value) {
    float narrow = (float)value;
    uint32_t bits = 0;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)((((bits >> 23 & 0xFFU) - 112U) << 10) | (bits >> 13 & 0x3FFU));
}

/* The upper half of a float; exact for values of 8 significant bits. */
static uint16_t bfloat16_of(double value) {
    float narrow = (float)value;
    uint32_t bits = 0;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void encode(const ls_micro_type *type, double value, void *to) {
    float narrow = (float)value;
    int64_t whole = (int64_t)value; /* little-endian: its first bytes are the smaller types */
    uint16_t small = type->nccl == ncclFloat16 ? half_of(value) : bfloat16_of(value);
    if (type->nccl == ncclFloat64) {
        memcpy(to, &value, sizeof value);
    } else if (type->nccl == ncclFloat32) {
        memcpy(to, &narrow, sizeof narrow);
    } else if (type->is_float) {
        memcpy(to, &small, sizeof small);
    } else {
        memcpy(to, &whole, type->size);
    }
}

void ls_micro_fill(const ls_micro_collective *collective, const ls_micro_type *type, const ls_micro_redop *redop,
                   size_t world, size_t rank, size_t count, void *values) {
    for (size_t i = 0; i < count; i++) {
        double value = collective->reduces ? sent(redop, world, rank, i) : mixed(rank, i);
        encode(type, value, (char *)values + i * type->size);
    }
}

/* What rank must find at place i of what it received. */
static double expected(const ls_micro_collective *collective, const ls_micro_redop *redop, size_t world, size_t rank,
                       size_t root, size_t whole, size_t i) {
    if (collective->reduces) {
        return reduced(redop, world, collective->receives_all ? i : rank * (whole / world) + i);
    }
    if (collective->rooted) {
        return mixed(root, i);
    }
    return mixed(i / (whole / world), i % (whole / world));
}

uint64_t ls_micro_count_wrong(const ls_micro_collective *collective, const ls_micro_type *type,
                              const ls_micro_redop *redop, size_t world, size_t rank, size_t root, size_t whole,
                              size_t count, const void *values) {
    if (collective->rooted && collective->reduces && rank != root) {
        return 0; /* what the others hold afterwards is not said */
    }
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned char must[8];
        encode(type, expected(collective, redop, world, rank, root, whole, i), must);
        wrong += memcmp(must, (const char *)values + i * type->size, type->size) != 0;
    }
    return wrong;
}
