/* The commands' entry points: each takes the words after its name and returns the exit code. */
#ifndef LS_BENCH_CMD_H
#define LS_BENCH_CMD_H

#include "gpu/base/error.h"

ls_rc ls_command_train(int argc, char **argv);
ls_rc ls_command_eval(int argc, char **argv);
ls_rc ls_command_verify(int argc, char **argv);
ls_rc ls_command_selftest(int argc, char **argv);
ls_rc ls_command_sweep(int argc, char **argv);
ls_rc ls_command_micro(int argc, char **argv);
ls_rc ls_command_micro_rank(int argc, char **argv); /* hidden: a rank of `micro` */
ls_rc ls_command_report(int argc, char **argv);
ls_rc ls_command_info(int argc, char **argv);
ls_rc ls_command_data(int argc, char **argv);
ls_rc ls_command_sampler(int argc, char **argv);
ls_rc ls_command_rank(int argc, char **argv);

#endif
