/* .pth as the older pickle stream; the same reader of pickles as in the archive, without a checksum before it. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    return fuzz_state(ls_pth_legacy_read, bytes, size);
}
