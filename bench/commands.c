#include "bench/commands.h"

#include <stddef.h>

#include "bench/cmd.h"
#include "impls/launch_mpi_buffers.h"
#include "impls/rank_guard.h"

const ls_command ls_commands[] = {
    {"train", "one training run, with the log lines of PyTorch's MNIST example", ls_command_train},
    {"eval", "accuracy and loss of saved parameters over the test set", ls_command_eval},
    {"verify", "every implementation against a single device and the float64 oracle", ls_command_verify},
    {"selftest", "every planted fault must be caught by the check that is to catch it", ls_command_selftest},
    {"sweep", "throughput over implementations, device counts and scaling modes", ls_command_sweep},
    {"micro", "kernels, layers and collectives: Google Benchmark, nccl-tests tables, ratios to MPI", ls_command_micro},
    {"report", "a result file as an HTML page with plots", ls_command_report},
    {"data", "data sets: import, check, show", ls_command_data},
    {"sampler", "the samples of each rank in an epoch, in PyTorch's order", ls_command_sampler},
    {"info", "the devices, implementations, networks and libraries found here", ls_command_info},
    {"rank", NULL, ls_command_rank},
    {"micro-rank", NULL, ls_command_micro_rank},
    {"rank-guard", NULL, ls_rank_guard_main},
    {"mpi-probe", NULL, ls_mpi_probe_main},
    {NULL, NULL, NULL},
};
