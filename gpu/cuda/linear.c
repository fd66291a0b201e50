/* Linear layers by cuBLASLt, the bias and its gradient in the GEMM's epilogue. cuBLASLt is column-major, so a row-major
 * [rows][columns] matrix is its columns x rows matrix: x is in x batch, y and dy out x batch, weight in x out.
 *
 * What an epilogue reads or writes must be aligned (cuBLASLt plans by the alignment of the pointer); a bias in the flat buffer of
 * parameters lies as its neighbours' sizes have it. Where it is not aligned, or cuBLASLt has no algorithm with the epilogue, a
 * kernel of our own does it after the GEMM. */
#include "gpu/cuda/math.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/kernels.h"

enum { BIAS_ALIGNMENT = 16, ACTIVATION_ALIGNMENT = 16, CANDIDATES = 8 };

typedef enum product { FORWARD, FORWARD_BIAS, BACKWARD_INPUT, BACKWARD_PARAMS, BACKWARD_PARAMS_BIAS, PRODUCTS } product;

/* d = op(a) * op(b); the sizes are of the stored matrices. */
typedef enum matrix { WEIGHT, X, Y } matrix;
static const struct {
    const char *name;
    cublasOperation_t op_a, op_b;
    matrix a, b, d;
    cublasLtEpilogue_t epilogue;
} products[PRODUCTS] = {
    [FORWARD] = {"linear forward", CUBLAS_OP_T, CUBLAS_OP_N, WEIGHT, X, Y, CUBLASLT_EPILOGUE_DEFAULT},
    [FORWARD_BIAS] = {"linear forward + bias", CUBLAS_OP_T, CUBLAS_OP_N, WEIGHT, X, Y, CUBLASLT_EPILOGUE_BIAS},
    [BACKWARD_INPUT] = {"linear backward input", CUBLAS_OP_N, CUBLAS_OP_N, WEIGHT, Y, X, CUBLASLT_EPILOGUE_DEFAULT},
    [BACKWARD_PARAMS] = {"linear backward weight", CUBLAS_OP_N, CUBLAS_OP_T, X, Y, WEIGHT, CUBLASLT_EPILOGUE_DEFAULT},
    [BACKWARD_PARAMS_BIAS] = {"linear backward weight + bias", CUBLAS_OP_N, CUBLAS_OP_T, X, Y, WEIGHT,
                              CUBLASLT_EPILOGUE_BGRADB},
};

typedef struct plan {
    bool usable;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
} plan;

/* Plans of one batch size. */
typedef struct plan_set {
    size_t batch;
    plan plans[PRODUCTS];
} plan_set;

typedef struct linear {
    ls_math *math;
    size_t in, out;
    ls_dtype dtype;
    plan_set full, other; /* of the largest batch, and of the last one that was smaller */
} linear;

static cublasComputeType_t compute_type(ls_dtype dtype) {
    bool fast = ls_math_get_mode() == LS_MATH_FAST;
    if (dtype == LS_FLOAT64) {
        return fast ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_64F_PEDANTIC;
    }
    return fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F_PEDANTIC;
}

static ls_rc init_layout(const linear *l, size_t batch, matrix which, cublasLtMatrixLayout_t layout) {
    size_t rows = which == Y ? l->out : l->in;
    size_t columns = which == WEIGHT ? l->out : batch;
    cudaDataType_t type = l->dtype == LS_FLOAT64 ? CUDA_R_64F : CUDA_R_32F;
    LS_CUBLAS(cublasLtMatrixLayoutInit(layout, type, rows, columns, (int64_t)rows));
    return LS_OK;
}

static ls_rc set_bias(plan *p, const void *bias) {
    LS_CUBLAS(cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(void *)));
    return LS_OK;
}

static ls_rc init_plan(const linear *l, size_t batch, product which, plan *p) {
    cudaDataType_t type = l->dtype == LS_FLOAT64 ? CUDA_R_64F : CUDA_R_32F;
    uint32_t epilogue = (uint32_t)products[which].epilogue;
    LS_CUBLAS(cublasLtMatmulDescInit(&p->operation, compute_type(l->dtype), type));
    LS_CUBLAS(cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &products[which].op_a,
                                             sizeof products[which].op_a));
    LS_CUBLAS(cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &products[which].op_b,
                                             sizeof products[which].op_b));
    LS_CUBLAS(cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) { /* stands for every pointer of its alignment */
        LS_TRY(set_bias(p, (const char *)l->math->workspace + BIAS_ALIGNMENT));
    }
    LS_TRY(init_layout(l, batch, products[which].a, &p->a));
    LS_TRY(init_layout(l, batch, products[which].b, &p->b));
    return init_layout(l, batch, products[which].d, &p->d);
}

/* What an algorithm may do: sums that are split are added in a fixed order, apart from the result (in place is how atomic sums
 * would be); weights lie in the flat buffer, at any multiple of their element. */
static ls_rc init_preference(const linear *l, product which, cublasLtMatmulPreference_t preference) {
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    if (ls_math_get_mode() == LS_MATH_FAST) {
        reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    }
    size_t most = LS_CUBLAS_BYTES;
    LS_CUBLAS(cublasLtMatmulPreferenceInit(preference));
    LS_CUBLAS(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    LS_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                                   sizeof reductions));
    const matrix operands[4] = {products[which].a, products[which].b, products[which].d, products[which].d};
    static const cublasLtMatmulPreferenceAttributes_t attributes[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (size_t i = 0; i < 4; i++) {
        uint32_t bytes = operands[i] == WEIGHT ? (uint32_t)ls_dtype_size(l->dtype) : ACTIVATION_ALIGNMENT;
        LS_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, attributes[i], &bytes, sizeof bytes));
    }
    return LS_OK;
}

static cublasStatus_t multiply(const linear *l, plan *p, const cublasLtMatmulAlgo_t *algorithm, const void *a,
                               const void *b, void *d) {
    ls_math *math = l->math;
    return cublasLtMatmul(math->lt, &p->operation, ls_scalar_of(&ls_one, l->dtype), a, &p->a, b, &p->b,
                          ls_scalar_of(&ls_zero, l->dtype), d, &p->d, d, &p->d, algorithm, math->workspace,
                          LS_CUBLAS_BYTES, math->stream);
}

/* The candidates of a plan, and memory of their sizes to run them on. */
typedef struct trial {
    const linear *linear;
    plan *plan;
    cublasLtMatmulHeuristicResult_t candidates[CANDIDATES];
    char *memory;
    size_t b_at, d_at;
} trial;

static int run_candidate(void *context, size_t candidate) {
    trial *t = context;
    return multiply(t->linear, t->plan, &t->candidates[candidate].algo, t->memory, t->memory + t->b_at,
                    t->memory + t->d_at) == CUBLAS_STATUS_SUCCESS
               ? 0
               : 1;
}

static ls_rc measure(trial *t, size_t batch, size_t count, size_t *best) {
    const linear *l = t->linear;
    size_t largest = l->in * l->out; /* of the three matrices */
    largest = largest > l->in * batch ? largest : l->in * batch;
    largest = largest > l->out * batch ? largest : l->out * batch;
    size_t bytes = (largest * ls_dtype_size(l->dtype) + 255) / 256 * 256;
    void *memory = NULL;
    bool found = false;
    LS_CUDA(cudaMalloc(&memory, 3 * bytes));
    t->memory = memory;
    t->b_at = bytes;
    t->d_at = 2 * bytes;
    ls_rc rc =
        ls_cuda_check(cudaMemsetAsync(memory, 0, 3 * bytes, l->math->stream), "cudaMemsetAsync", __FILE__, __LINE__);
    if (rc == LS_OK) {
        rc = ls_math_fastest(l->math, count, run_candidate, t, best, &found);
    }
    LS_CUDA(cudaFree(memory));
    return rc == LS_OK && !found
               ? ls_fail(LS_DEVICE_FAILED, "%zu to %zu features: cuBLASLt runs none of its algorithms", l->in, l->out)
               : rc;
}

static void note(product which, const cublasLtMatmulAlgo_t *algorithm) {
    int id = -1;
    uint32_t split = 0;
    size_t written = 0;
    (void)cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written);
    (void)cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split,
                                               &written);
    ls_math_note("%s %d/%u", products[which].name, id, split);
}

/* Asks cuBLASLt; a plan without an algorithm is not usable. measured: the fastest of several is taken. */
static ls_rc choose(const linear *l, size_t batch, product which, bool measured, plan *p) {
    trial t = {.linear = l, .plan = p};
    cublasLtMatmulPreferenceOpaque_t preference;
    int found = 0;
    LS_TRY(init_plan(l, batch, which, p));
    LS_TRY(init_preference(l, which, &preference));
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(l->math->lt, &p->operation, &p->a, &p->b, &p->d, &p->d, &preference,
                                       measured ? CANDIDATES : 1, t.candidates, &found);
    p->usable = status == CUBLAS_STATUS_SUCCESS && found > 0;
    if (!p->usable) {
        return status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_NOT_SUPPORTED
                   ? LS_OK
                   : ls_cublas_check(status, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
    }
    size_t best = 0;
    if (measured && found > 1) {
        LS_TRY(measure(&t, batch, (size_t)found, &best));
    }
    p->algorithm = t.candidates[best].algo;
    note(which, &p->algorithm);
    return LS_OK;
}

static ls_rc make_plans(const linear *l, size_t batch, bool measured, plan_set *set) {
    set->batch = 0;
    for (int which = 0; which < PRODUCTS; which++) {
        LS_TRY(choose(l, batch, (product)which, measured, &set->plans[which]));
    }
    set->batch = batch;
    return LS_OK;
}

static bool complete(const plan_set *set) {
    return set->plans[FORWARD].usable && set->plans[BACKWARD_INPUT].usable && set->plans[BACKWARD_PARAMS].usable;
}

/* The plans of a batch. Those of a smaller one are made when it comes: on the host alone, nothing is allocated. */
static ls_rc plans_of(linear *l, size_t batch, plan_set **out) {
    *out = batch == l->full.batch ? &l->full : &l->other;
    if ((*out)->batch == batch) {
        return LS_OK;
    }
    LS_TRY(make_plans(l, batch, false, *out));
    return complete(*out)
               ? LS_OK
               : ls_fail(LS_DEVICE_FAILED, "%zu to %zu features: cuBLASLt has no algorithm for a batch of %zu", l->in,
                         l->out, batch);
}

static ls_rc run(linear *l, plan_set *set, product which, const void *a, const void *b, void *d) {
    plan *p = &set->plans[which];
    LS_CUBLAS(multiply(l, p, &p->algorithm, a, b, d));
    return LS_OK;
}

/* Whether the epilogue can do the bias, which is then told to it. */
static ls_rc try_epilogue(plan_set *set, product which, const void *bias, bool *fused) {
    plan *p = &set->plans[which];
    *fused = bias != NULL && p->usable && (uintptr_t)bias % BIAS_ALIGNMENT == 0;
    return *fused ? set_bias(p, bias) : LS_OK;
}

static void linear_close(void *state) {
    free(state);
}

static ls_rc linear_open(ls_math *math, const ls_conv_shape *s, ls_dtype dtype, size_t max_batch, void **state) {
    LS_TRY(ls_math_fits_int(max_batch * s->in_channels, "the input of a linear layer"));
    LS_TRY(ls_math_fits_int(max_batch * s->out_channels, "the output of a linear layer"));
    LS_TRY(ls_math_fits_int(s->in_channels * s->out_channels, "the weight of a linear layer"));
    linear *l = ls_calloc(1, sizeof *l, "linear layer");
    if (l == NULL) {
        return LS_DEVICE_FAILED;
    }
    l->math = math;
    l->in = s->in_channels;
    l->out = s->out_channels;
    l->dtype = dtype;
    ls_rc rc = make_plans(l, max_batch, ls_math_get_mode() == LS_MATH_FAST, &l->full);
    if (rc != LS_OK || !complete(&l->full)) {
        if (rc == LS_OK) {
            ls_math_note("linear by im2col, %zu to %zu not in cuBLASLt", l->in, l->out);
        }
        linear_close(l);
        return rc; /* without a state the im2col engine takes it */
    }
    *state = l;
    return LS_OK;
}

/* y (out x batch) = weight^T (out x in) * x (in x batch) + bias */
static ls_rc linear_forward(void *state, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    linear *l = state;
    plan_set *set = NULL;
    bool fused = false;
    LS_TRY(plans_of(l, batch, &set));
    LS_TRY(try_epilogue(set, FORWARD_BIAS, bias, &fused));
    LS_TRY(run(l, set, fused ? FORWARD_BIAS : FORWARD, weight, x, y));
    if (bias != NULL && !fused) {
        ls_channels shape = {.blocks = batch, .channels = l->out, .plane = 1};
        LS_CUDA(ls_kernel_bias(l->math->stream, l->dtype, &shape, bias, y));
    }
    return LS_OK;
}

/* dx (in x batch) = weight (in x out) * dy (out x batch) */
static ls_rc linear_backward_input(void *state, size_t batch, const void *dy, const void *weight, void *dx) {
    linear *l = state;
    plan_set *set = NULL;
    LS_TRY(plans_of(l, batch, &set));
    return run(l, set, BACKWARD_INPUT, weight, dy, dx);
}

/* dweight (in x out) = x (in x batch) * dy^T (batch x out); dbias = the sums over the batch of dy */
static ls_rc linear_backward_params(void *state, size_t batch, const void *x, const void *dy, void *dweight,
                                    void *dbias) {
    linear *l = state;
    plan_set *set = NULL;
    bool fused = false;
    LS_TRY(plans_of(l, batch, &set));
    LS_TRY(try_epilogue(set, BACKWARD_PARAMS_BIAS, dbias, &fused));
    LS_TRY(run(l, set, fused ? BACKWARD_PARAMS_BIAS : BACKWARD_PARAMS, x, dy, dweight));
    if (dbias != NULL && !fused) {
        ls_channels shape = {.blocks = batch, .channels = l->out, .plane = 1};
        LS_CUDA(ls_kernel_channel_sums(l->math->stream, l->dtype, &shape, dy, dbias));
    }
    return LS_OK;
}

static const ls_layer_engine lt_engine = {.open = linear_open,
                                          .forward = linear_forward,
                                          .backward_input = linear_backward_input,
                                          .backward_params = linear_backward_params,
                                          .close = linear_close};

const ls_layer_engine *ls_platform_linear_engine(void) {
    return &lt_engine;
}
