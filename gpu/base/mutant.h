/* Faults for the verifier to catch (verify/mutants.c lists them). A site is a few lines in the code where the fault would be
 * made:
 *
 *     if (LS_MUTANT(no_division)) {
 *         divisor = 1;
 *     }
 *
 * In the ordinary build LS_MUTANT is the constant false, so the program contains no fault. The program lockstep-mutants is made
 * beside it with LOCKSTEP_MUTANTS defined: only the sources that hold a site are compiled again (cmake/mutants.cmake; the
 * first site of a file needs a new run of cmake). There the environment variable LOCKSTEP_MUTANT names the one fault that
 * is switched on. What a fault needs besides lives in files *mutant_*.c, which only that program contains. */
#ifndef LS_GPU_BASE_MUTANT_H
#define LS_GPU_BASE_MUTANT_H

#include <stdbool.h>

#ifdef LOCKSTEP_MUTANTS

#ifdef __cplusplus
extern "C" {
#endif

/* Whether LOCKSTEP_MUTANT names this fault. */
bool ls_mutant_is(const char *name);

/* Whether LOCKSTEP_MUTANT is "drop:FILE:LINE" of this call, which then must not be made. With LOCKSTEP_MUTANT_SITES=PATH the
 * sites that are reached are appended to that file as lines "FILE:LINE CALL", once for each process. */
bool ls_mutant_drops(const char *call, const char *file, int line);

#ifdef __cplusplus
}
#endif

#define LS_MUTANT(name) ls_mutant_is(#name)

#else
#define LS_MUTANT(name) false
#endif
#endif
