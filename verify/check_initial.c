/* Layer 0: every rank starts from PyTorch's initial values for the seed, bit for bit. */
#include <stdlib.h>

#include "verify/check.h"
#include "verify/values.h"

ls_rc ls_check_initial(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    float *initial = ls_calloc(c->model.param_count, sizeof *initial, "initial values");
    if (initial == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_model_init(&c->model, c->run.seed, initial);
    for (size_t rank = 0; rank < c->ranks; rank++) {
        const void *found = ls_case_reduced(c, 0, rank)->params_before;
        size_t wrong = 0;
        size_t first = 0;
        for (size_t i = 0; i < c->model.param_count; i++) {
            if (ls_value(c->run.dtype, found, i) != (double)initial[i]) { /* widening is exact; zeros do not occur */
                first = wrong == 0 ? i : first;
                wrong++;
            }
        }
        if (!ls_finding_measure(finding, (double)wrong, 0)) {
            char element[128];
            ls_element_name(&c->model, first, element, sizeof element);
            ls_finding_fail(finding, "rank %zu starts with %s = %a, the seed gives %a; %zu of %zu elements differ",
                            rank, element, ls_value(c->run.dtype, found, first), (double)initial[first], wrong,
                            c->model.param_count);
            snprintf(finding->cause, sizeof finding->cause,
                     "initial values: another seed on this rank, or no broadcast from rank 0");
        }
    }
    free(initial);
    return LS_OK;
}
