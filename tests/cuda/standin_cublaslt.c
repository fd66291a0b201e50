/* The stand-in for cuBLASLt, see standin.h: column-major products in loops, with epilogues. The opaque structures of
 * cublasLt.h hold ours. */
#include <cublasLt.h>
#include <stdint.h>
#include <string.h>

#include "tests/cuda/standin.h"

enum { LIMIT = 32 * 1024 * 1024, ALIGNMENT = 16, FIRST_ID = 20, FAILING = 1, FASTEST = 2, KNOWN = 4 };

typedef struct operation {
    cublasComputeType_t compute;
    cudaDataType_t type;
    cublasOperation_t op[2];
    uint32_t epilogue;
    void *bias;
} operation;

typedef struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
} layout;

typedef struct preference {
    size_t workspace;
    uint32_t reductions, alignment[4];
} preference;

_Static_assert(sizeof(operation) <= sizeof(cublasLtMatmulDescOpaque_t), "an operation fits");
_Static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "a layout fits");
_Static_assert(sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "a preference fits");

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = malloc(1);
    return *handle == NULL ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t type) {
    REQUIRE(size == sizeof *desc);
    const operation o = {.compute = compute, .type = type, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    memcpy(desc, &o, sizeof o);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    operation *o = (operation *)desc;
    void *target = attribute == CUBLASLT_MATMUL_DESC_TRANSA         ? (void *)&o->op[0]
                   : attribute == CUBLASLT_MATMUL_DESC_TRANSB       ? (void *)&o->op[1]
                   : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE     ? (void *)&o->epilogue
                   : attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? (void *)&o->bias
                                                                    : NULL;
    REQUIRE(target != NULL && bytes == (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof(void *) : 4));
    memcpy(target, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t desc, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld) {
    REQUIRE(size == sizeof *desc && rows > 0 && columns > 0 && ld >= (int64_t)rows);
    const layout l = {type, rows, columns, ld};
    memcpy(desc, &l, sizeof l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t desc, size_t size) {
    REQUIRE(size == sizeof *desc);
    const preference p = {0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    memcpy(desc, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t desc,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
    preference *p = (preference *)desc;
    void *target = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES     ? (void *)&p->workspace
                   : attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? (void *)&p->reductions
                   : attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES ? (void *)&p->alignment[0]
                   : attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES ? (void *)&p->alignment[1]
                   : attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES ? (void *)&p->alignment[2]
                   : attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES ? (void *)&p->alignment[3]
                                                                             : NULL;
    REQUIRE(target != NULL && bytes == (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? sizeof(size_t) : 4));
    memcpy(target, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* Types and shapes fit together; without the fast mode nothing computes in TF32. */
static void require_product(const operation *o, const layout *a, const layout *b, const layout *c, const layout *d) {
    bool wide = o->type == CUDA_R_64F;
    REQUIRE(wide || o->type == CUDA_R_32F);
    REQUIRE(standin.fast || o->compute == (wide ? CUBLAS_COMPUTE_64F_PEDANTIC : CUBLAS_COMPUTE_32F_PEDANTIC));
    REQUIRE(a->type == o->type && b->type == o->type && d->type == o->type);
    REQUIRE(c->type == d->type && c->rows == d->rows && c->columns == d->columns && c->ld == d->ld);
    uint64_t m = o->op[0] == CUBLAS_OP_N ? a->rows : a->columns, k = o->op[0] == CUBLAS_OP_N ? a->columns : a->rows;
    uint64_t n = o->op[1] == CUBLAS_OP_N ? b->columns : b->rows;
    REQUIRE(k == (o->op[1] == CUBLAS_OP_N ? b->rows : b->columns) && d->rows == m && d->columns == n);
}

/* Knows KNOWN algorithms, but no bias gradient in float64. Matrices that must be aligned to more than 16 bytes are no business of
 * ours: a weight may lie at any multiple of its element. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wanted, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
    (void)handle;
    const operation *o = (const operation *)desc;
    const preference *p = (const preference *)wanted;
    require_product(o, (const layout *)a, (const layout *)b, (const layout *)c, (const layout *)d);
    REQUIRE(p->workspace <= LIMIT);
    REQUIRE(standin.fast || (p->reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE) == 0);
    for (size_t i = 0; i < 4; i++) {
        REQUIRE(p->alignment[i] <= ALIGNMENT);
    }
    REQUIRE(o->epilogue == CUBLASLT_EPILOGUE_DEFAULT || (o->bias != NULL && (uintptr_t)o->bias % ALIGNMENT == 0));
    standin.heuristics++;
    *found = 0;
    if (o->epilogue == CUBLASLT_EPILOGUE_BGRADB && o->type == CUDA_R_64F) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (; *found < requested && *found < KNOWN; (*found)++) {
        memset(&results[*found], 0, sizeof results[0]);
        results[*found].algo.data[0] = (uint64_t)*found;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                    size_t bytes, size_t *written) {
    REQUIRE(bytes == 4);
    int32_t answer = attribute == CUBLASLT_ALGO_CONFIG_ID ? (int32_t)(FIRST_ID + algo->data[0]) : 1;
    memcpy(value, &answer, sizeof answer);
    *written = sizeof answer;
    return CUBLAS_STATUS_SUCCESS;
}

static double get(cudaDataType_t type, const void *values, uint64_t index) {
    return type == CUDA_R_64F ? ((const double *)values)[index] : (double)((const float *)values)[index];
}

static void put(cudaDataType_t type, void *values, uint64_t index, double value) {
    if (type == CUDA_R_64F) {
        ((double *)values)[index] = value;
    } else {
        ((float *)values)[index] = (float)value;
    }
}

static double element(cublasOperation_t op, const layout *l, const void *values, uint64_t row, uint64_t column) {
    uint64_t ld = (uint64_t)l->ld;
    return get(l->type, values, op == CUBLAS_OP_N ? column * ld + row : row * ld + column);
}

static void multiply(const operation *o, const layout *la, const void *a, const layout *lb, const void *b,
                     const layout *ld, void *d) {
    uint64_t inner = o->op[0] == CUBLAS_OP_N ? la->columns : la->rows;
    for (uint64_t row = 0; row < ld->rows; row++) {
        for (uint64_t column = 0; column < ld->columns; column++) {
            double sum = o->epilogue == CUBLASLT_EPILOGUE_BIAS ? get(o->type, o->bias, row) : 0;
            for (uint64_t i = 0; i < inner; i++) {
                sum += element(o->op[0], la, a, row, i) * element(o->op[1], lb, b, i, column);
            }
            put(o->type, d, column * (uint64_t)ld->ld + row, sum);
        }
    }
    for (uint64_t column = 0; o->epilogue == CUBLASLT_EPILOGUE_BGRADB && column < ld->columns; column++) {
        double sum = 0;
        for (uint64_t i = 0; i < inner; i++) {
            sum += element(o->op[1], lb, b, i, column);
        }
        put(o->type, o->bias, column, sum);
    }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_desc, const void *b, cublasLtMatrixLayout_t b_desc,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_desc, void *d,
                              cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t bytes, cudaStream_t stream) {
    (void)handle;
    (void)stream;
    const operation *o = (const operation *)desc;
    require_product(o, (const layout *)a_desc, (const layout *)b_desc, (const layout *)c_desc, (const layout *)d_desc);
    REQUIRE(get(o->type, alpha, 0) == 1 && get(o->type, beta, 0) == 0 && c == d && workspace != NULL && bytes == LIMIT);
    REQUIRE(algo != NULL && algo->data[0] < KNOWN);
    if (standin.fast && algo->data[0] == FAILING) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (o->epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
        REQUIRE((uintptr_t)o->bias % ALIGNMENT == 0);
        standin.bias_epilogues++;
    }
    memset(workspace, 0xff, 4096);
    multiply(o, (const layout *)a_desc, a, (const layout *)b_desc, b, (const layout *)d_desc, d);
    standin.milliseconds = algo->data[0] == FASTEST ? 1.0f : 2.0f + (float)algo->data[0];
    return CUBLAS_STATUS_SUCCESS;
}
