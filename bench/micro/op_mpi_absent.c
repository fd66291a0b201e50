/* In place of op_mpi.c where the build found no MPI. */
#include "bench/micro/ops.h"

static ls_rc mpi_open(ls_micro_place *place, const ls_micro_job *job, void **self) {
    (void)place;
    (void)job;
    *self = NULL;
    return ls_fail(LS_BAD_INPUT, "collectives of MPI: built without MPI");
}

/* What did not open is neither measured nor closed. */
const ls_micro_op ls_micro_op_mpi = {.name = "mpi", .open = mpi_open};
