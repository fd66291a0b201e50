/* Shared by the libFuzzer targets: LLVMFuzzerTestOneInput must neither crash, leak nor take much memory, whatever it is
 * given. Built with clang -fsanitize=fuzzer,address,undefined (cmake -DLOCKSTEP_FUZZ=ON); run by scripts/fuzz.sh. */
#ifndef LS_TESTS_FUZZ_FUZZ_H
#define LS_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "reference/checkpoint/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Reads the bytes as a file of the format. What is accepted is written to nowhere but must be a whole state. */
static inline int fuzz_state(ls_rc (*read)(const ls_file_bytes *, ls_state *), const uint8_t *bytes, size_t size) {
    if (size == 0) {
        return 0; /* ls_file_read refuses empty files */
    }
    ls_state state = {0};
    ls_file_bytes file = {.path = "input", .bytes = (unsigned char *)bytes, .size = size};
    if (read(&file, &state) == LS_OK) {
        uint64_t total = 0;
        for (size_t i = 0; i < state.count; i++) {
            size_t count = 1;
            for (size_t d = 0; d < state.tensors[i].dims; d++) {
                count *= state.tensors[i].shape[d];
            }
            if (count != state.tensors[i].count || ls_state_find(&state, state.tensors[i].name) == NULL) {
                abort();
            }
            total += count * ls_state_element_size(state.tensors[i].element);
        }
        if (total > 8 * (uint64_t)size) {
            abort(); /* memory beyond a small multiple of the file */
        }
    }
    ls_state_free(&state);
    return 0;
}

#endif
