/* The implementations by name, for table.c and their own files only; others use ls_impls and ls_impl_find. */
#ifndef LS_IMPLS_TABLE_H
#define LS_IMPLS_TABLE_H

#include "impls/impl.h"

extern const ls_impl ls_impl_single, ls_impl_dp, ls_impl_ddp, ls_impl_mpi;

#endif
