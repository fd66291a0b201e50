/* What an operation reads and writes, told by whoever launches it. The launchers of kernels and the layer math declare it just
 * before they queue an operation. Without a mode that asks for it (docs/races.md) a declaration costs the test of one byte. */
#ifndef LS_GPU_VGPU_ACCESS_H
#define LS_GPU_VGPU_ACCESS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { VGPU_READ = 1, VGPU_WRITE = 2, VGPU_MAX_ACCESSES = 16 };

/* A range of device memory or of pinned host memory. */
typedef struct vgpu_access {
    const void *pointer; /* NULL: nothing, for optional arguments */
    size_t bytes;
    unsigned how; /* VGPU_READ, VGPU_WRITE or both */
} vgpu_access;

/* Not 0: declarations are wanted. Set when the settings are read. */
extern unsigned char vgpu_wants_access;

/* Declares what the next operation that this thread queues uses; replaces an earlier declaration. count is at most
 * VGPU_MAX_ACCESSES. */
void vgpu_declare_access(const vgpu_access *list, size_t count);

#ifdef __cplusplus
}
#endif

/* LS_ACCESS(LS_READS(x, bytes), LS_WRITES(y, bytes), LS_UPDATES(z, bytes)): the declaration. Nothing on cuda. */
#define LS_ACCESS(...)                                                                             \
    do {                                                                                           \
        if (vgpu_wants_access) {                                                                   \
            const vgpu_access ls_access_list[] = {__VA_ARGS__};                                    \
            vgpu_declare_access(ls_access_list, sizeof ls_access_list / sizeof ls_access_list[0]); \
        }                                                                                          \
    } while (0)
#define LS_READS(pointer, bytes)   LS_ACCESS_ENTRY(pointer, bytes, VGPU_READ)
#define LS_WRITES(pointer, bytes)  LS_ACCESS_ENTRY(pointer, bytes, VGPU_WRITE)
#define LS_UPDATES(pointer, bytes) LS_ACCESS_ENTRY(pointer, bytes, VGPU_READ | VGPU_WRITE)
/* clang-format off */
#define LS_ACCESS_ENTRY(pointer, bytes, how) {(pointer), (bytes), (how)}
/* clang-format on */

#endif
