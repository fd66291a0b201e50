/* The entries of the zoo, one file each; reference/zoo.c lists them. */
#ifndef LS_REFERENCE_ZOO_ZOO_H
#define LS_REFERENCE_ZOO_ZOO_H

#include "reference/model.h"

extern const ls_model_spec ls_zoo_seed_cnn;
extern const ls_model_spec ls_zoo_seed_conv;
extern const ls_model_spec ls_zoo_exact; /* known by name, not in ls_zoo */

#endif
