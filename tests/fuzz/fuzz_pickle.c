/* One pickle alone, as data.pkl of an archive holds it: found far from what the archive's checksum would let pass. */
#include "reference/checkpoint/pickle.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    ls_pickle pickle;
    ls_pickle_value *root = NULL;
    ls_pickle_open(&pickle, "input", "byte", bytes, size);
    if (ls_pickle_read(&pickle, &root) == LS_OK) {
        for (size_t i = 0; i < pickle.tensor_count; i++) { /* every accepted view lies in its storage */
            const ls_pickle_tensor *view = &pickle.tensors[i];
            uint64_t last = view->offset;
            for (size_t d = 0; d < view->dims && view->count > 0; d++) {
                last += (view->shape[d] - 1) * (uint64_t)view->stride[d];
            }
            if (view->count > 0 && last >= pickle.storages[view->storage].count) {
                abort();
            }
        }
    }
    ls_pickle_free(&pickle);
    return 0;
}
