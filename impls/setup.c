#include "impls/setup.h"

#include <stdlib.h>

#include "impls/rank.h"

ls_rc ls_setup_options(const ls_run *run, int device, size_t max_batch, ls_replica_options *out) {
    *out = (ls_replica_options){
        .dtype = run->dtype,
        .device = device,
        .max_batch = max_batch,
        .loss = run->loss,
        .optimizer = run->optimizer,
        .lr = run->lr,
        .capture = run->capture,
        .replays = run->graph,
    };
    ls_model model; /* only its normalisation is wanted */
    return ls_run_model(run, &model, &out->normalize);
}

ls_rc ls_setup_replica(const ls_run *run, const ls_model *model, int device, size_t max_batch, ls_replica **out) {
    *out = NULL;
    ls_replica_options options;
    LS_TRY(ls_setup_options(run, device, max_batch, &options));
    LS_CUDA(cudaSetDevice(device));
    return ls_replica_open(model, &options, out);
}

double ls_setup_share(size_t world) {
    double divisor = (double)world;
    if (LS_MUTANT(no_division)) {
        divisor = 1;
    }
    if (LS_MUTANT(divided_twice)) {
        divisor *= divisor;
    }
    if (LS_MUTANT(divided_by_one_less)) {
        divisor -= 1;
    }
    return 1.0 / divisor;
}

ls_rc ls_setup_initial(ls_replica *replica, uint64_t seed) {
    const ls_model *model = ls_replica_model(replica);
    float *flat = ls_calloc(model->param_count, sizeof *flat, "initial parameters");
    if (flat == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_model_init(model, seed, flat);
    ls_rc rc = ls_replica_init(replica, flat);
    free(flat);
    return rc;
}
