/* The kinds of work of bench/micro/ops.c, one file each. */
#ifndef LS_BENCH_MICRO_OPS_H
#define LS_BENCH_MICRO_OPS_H

#include "bench/micro/job.h"

/* A collective of NCCL on device memory; of MPI on host memory. */
extern const ls_micro_op ls_micro_op_nccl, ls_micro_op_mpi;
/* Plain loops: memory read and written in place, fused multiply-adds in registers. They use no device. */
extern const ls_micro_op ls_micro_op_memory, ls_micro_op_fma;
/* A cache line from one rank to another and back. */
extern const ls_micro_op ls_micro_op_line;
/* A step of training: DistributedDataParallel, and replicas that only meet at a barrier. */
extern const ls_micro_op ls_micro_op_ddp, ls_micro_op_apart;

#endif
