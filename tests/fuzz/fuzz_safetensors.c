/* safetensors: the length, the JSON header, the offsets. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    return fuzz_state(ls_safetensors_read, bytes, size);
}
