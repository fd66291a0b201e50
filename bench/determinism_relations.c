#include "bench/determinism_relations.h"

#include <stdint.h>

const ls_relation ls_relations[] = {
    {LS_VARIED_NOTHING, NULL, NULL, NULL, SIZE_MAX, "every sum has a fixed order, and masks follow from seed and step"},
    {LS_VARIED_RANK, NULL, NULL, NULL, SIZE_MAX, "an allreduce gives every rank the same result"},
    {LS_VARIED_LOADER, NULL, NULL, NULL, SIZE_MAX, "who makes a batch does not change it"},
    {LS_VARIED_KIND, "ddp", NULL, NULL, SIZE_MAX, "NCCL sums in the same order within a process and across processes"},
    {LS_VARIED_BUCKETS, "ddp", NULL, "vgpu", SIZE_MAX, "vgpu's NCCL sums in the order of ranks, whatever the size"},
    {LS_VARIED_BUCKETS, "ddp", NULL, "cuda", 2,
     "beyond 2 devices NCCL's order of summation depends on a bucket's size"},
    {LS_VARIED_BUCKETS, "mpi", NULL, NULL, 2,
     "beyond 2 devices MPI_Allreduce's order of summation depends on the size"},
    {LS_VARIED_ORDER, "ddp", NULL, NULL, SIZE_MAX, "a bucket's sum does not depend on the others"},
    {LS_VARIED_ORDER, "mpi", NULL, NULL, SIZE_MAX, "a bucket's sum does not depend on the others"},
    {LS_VARIED_GRAPH, NULL, NULL, NULL, SIZE_MAX,
     "a graph launches the same kernels in an order that the same events allow"},
    {LS_VARIED_IMPL, "dp", "single", NULL, 1, "one device has nothing to reduce"},
    {LS_VARIED_IMPL, "ddp", "single", NULL, 1, "one device has nothing to reduce, and a mean over one rank is exact"},
    {LS_VARIED_IMPL, "mpi", "ddp", NULL, 2,
     "a sum of two terms commutes; beyond, MPI and NCCL have orders of their own"},
    {LS_VARIED_IMPL, "dp", "ddp", NULL, 1, "dp's devices take consecutive samples, ddp's every W-th: other sums"},
    {LS_VARIED_WORLD, NULL, NULL, NULL, 1, "samples are summed shard by shard: another order of summation"},
    {LS_VARIED_NOTHING, NULL, NULL, NULL, 0, NULL},
};

const char *ls_varied_name(ls_varied varied) {
    static const char *const names[] = {
        [LS_VARIED_NOTHING] = "run",    [LS_VARIED_RANK] = "rank",           [LS_VARIED_LOADER] = "loader",
        [LS_VARIED_KIND] = "rank kind", [LS_VARIED_BUCKETS] = "bucket size", [LS_VARIED_ORDER] = "bucket order",
        [LS_VARIED_GRAPH] = "graph",    [LS_VARIED_IMPL] = "implementation", [LS_VARIED_WORLD] = "world size",
    };
    return names[varied];
}

const char *ls_sameness_name(ls_sameness sameness) {
    static const char *const names[] = {[LS_SAME] = "equal",
                                        [LS_DIFFERS_AS_DOCUMENTED] = "differs as documented",
                                        [LS_DIFFERS_UNEXPECTEDLY] = "differs unexpectedly"};
    return names[sameness];
}

ls_sameness ls_relation_judge(const ls_relation *relation, size_t devices, bool equal) {
    if (equal) {
        return LS_SAME;
    }
    return devices <= relation->equal_up_to ? LS_DIFFERS_UNEXPECTEDLY : LS_DIFFERS_AS_DOCUMENTED;
}
