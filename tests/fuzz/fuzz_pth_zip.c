/* .pth as a zip archive: libzip, the pickle, the storages. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    return fuzz_state(ls_pth_zip_read, bytes, size);
}
