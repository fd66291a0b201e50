/* Errors: one line on stderr, printed once where the cause is known; the code travels up as the return value. */
#ifndef LS_GPU_BASE_ERROR_H
#define LS_GPU_BASE_ERROR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a function that can fail returns. The values are the program's exit codes. */
typedef enum ls_rc {
    LS_OK = 0,
    LS_CHECK_FAILED = 1,  /* a verification failed */
    LS_BAD_INPUT = 2,     /* wrong usage, bad file, impossible request, stdout that takes nothing */
    LS_DEVICE_FAILED = 3, /* a rank or a device failed, or a time limit passed */
} ls_rc;

/* Returns from the calling function when expr is not LS_OK. The cause has been printed already. */
#define LS_TRY(expr)               \
    do {                           \
        ls_rc ls_try_rc_ = (expr); \
        if (ls_try_rc_ != LS_OK) { \
            return ls_try_rc_;     \
        }                          \
    } while (0)

/* Prints "lockstep: [rank R device D: ]<message>" as one write to stderr.
 * The message says what, where, expected, found, what to do; without a newline. */
void ls_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ls_fail(rc, format, ...): prints the line of ls_notice and is rc. A macro, so that whoever reads the caller, an analyser
 * too, sees that it is never LS_OK. */
#define ls_fail(rc, ...) (ls_notice(__VA_ARGS__), (rc))

/* Names the rank and device of the calling thread in its later messages; rank -1 removes the name. */
void ls_error_set_rank(int rank, int device);

/* Notes how much memory the calling thread asks for, and returns it; ls_error_asked_bytes: the last amount, for the line of a
 * failure. */
size_t ls_error_note_bytes(size_t bytes);
size_t ls_error_asked_bytes(void);

/* calloc that prints what could not be allocated and returns NULL. The caller frees with free(). count*size is
 * checked for overflow; a zero count gives a valid pointer. */
void *ls_calloc(size_t count, size_t size, const char *what);

#ifdef __cplusplus
}
#endif
#endif
