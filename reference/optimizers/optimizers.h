/* The optimizers, one file each; reference/optimizer.c lists them. */
#ifndef LS_REFERENCE_OPTIMIZERS_OPTIMIZERS_H
#define LS_REFERENCE_OPTIMIZERS_OPTIMIZERS_H

#include "reference/optimizer.h"

extern const ls_optimizer ls_optimizer_sgd;
extern const ls_optimizer ls_optimizer_adam, ls_optimizer_adamw;
extern const ls_optimizer ls_optimizer_rmsprop;

#endif
