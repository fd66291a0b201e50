/* A linear layer as three products of matrices (direct.h), none of which repacks the weights:
 *
 *   y  = W x:    rows are outputs, terms inputs, columns the samples of a block.
 *   dx = W' dy:  rows are inputs, terms outputs, columns the samples of a block.
 *   dW = dy x':  rows are outputs, terms samples, columns inputs; for these x is turned, so that they lie side by side. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/math/plan.h"

/* B's part of a panel of terms for one pair of vectors, in a first-level cache of 32 KiB beside a group's rows of A. */
static const size_t first_level = 24 * 1024;
/* A's part of a panel of terms and rows, in a second-level cache of 256 KiB or more. */
static const size_t second_level = 128 * 1024;
/* Pages that a walk over a panel's terms may touch: a processor finds about 64 without looking them up. Few terms also bear
 * it that rows of a power of two share a set of a cache. */
enum { PAGES = 48, PAGE_BYTES = 4096 };

static size_t clamp(size_t value, size_t least, size_t most) {
    return value < least ? least : value > most ? most : value;
}

/* Panels of a product whose terms are the inner index alone: equal ones, as few as may be. */
static void choose_panels(direct_product *p, size_t terms, size_t pair_bytes, size_t element) {
    size_t most = clamp(first_level / pair_bytes, 1, terms);
    if (p->a_term[1] > 1) { /* terms lie a row of the weights apart */
        most = clamp(PAGES * PAGE_BYTES / (p->a_term[1] * element), clamp(PAGES, 1, most), most);
    }
    size_t panels = (terms + most - 1) / most;
    p->group = direct_group(p->rows);
    p->term_panel[0] = 1;
    p->term_panel[1] = (terms + panels - 1) / panels;
    p->row_panel = clamp(second_level / (p->term_panel[1] * element) / p->group, 1, SIZE_MAX / p->group) * p->group;
}

ls_rc direct_linear_make(const direct_isa *isa, size_t in, size_t out, ls_dtype dtype, size_t max_batch,
                         direct_linear *plans) {
    const size_t element = ls_dtype_size(dtype), pair = 2 * isa->vector_bytes, columns = pair / element;
    const size_t blocks = (max_batch + DIRECT_LANES - 1) / DIRECT_LANES, panels = (in + columns - 1) / columns;
    *plans = (direct_linear){.dtype = dtype, .max_batch = max_batch, .in = in, .out = out};
    plans->forward = (direct_product){.rows = out,
                                      .columns = DIRECT_LANES,
                                      .a_row = in,
                                      .a_term = {0, 1},
                                      .b_panel = in * DIRECT_LANES,
                                      .b_term = {0, DIRECT_LANES},
                                      .c_panel = out * DIRECT_LANES,
                                      .c_row = DIRECT_LANES};
    plans->backward_input = (direct_product){.rows = in,
                                             .columns = DIRECT_LANES,
                                             .a_row = 1,
                                             .a_term = {0, in},
                                             .b_panel = out * DIRECT_LANES,
                                             .b_term = {0, DIRECT_LANES},
                                             .c_panel = in * DIRECT_LANES,
                                             .c_row = DIRECT_LANES};
    plans->backward_params =
        (direct_product){.rows = out,
                         .columns = columns,
                         .group = direct_group(out),
                         .a_row = DIRECT_LANES,
                         .a_term = {out * DIRECT_LANES, 1},
                         .b_panel = blocks * DIRECT_LANES * columns,
                         .b_term = {DIRECT_LANES * columns, columns},
                         .c_panel = columns,
                         .c_row = in,
                         .row_panel = out,
                         .term_panel = {clamp(first_level / (pair * DIRECT_LANES), 1, SIZE_MAX), DIRECT_LANES}};
    choose_panels(&plans->forward, in, pair, element);
    choose_panels(&plans->backward_input, out, pair, element);
    plans->rest = plans->backward_params;
    plans->rest.c_row = columns;
    plans->turned = ls_calloc(panels * blocks * DIRECT_LANES * columns, element, "the turned input of a linear layer");
    plans->corner = ls_calloc(out * columns, element, "the last columns of a linear layer's gradient");
    if (plans->turned == NULL || plans->corner == NULL) {
        direct_linear_free(plans);
        return LS_DEVICE_FAILED;
    }
    return LS_OK;
}

void direct_linear_free(direct_linear *plans) {
    free(plans->turned);
    free(plans->corner);
    *plans = (direct_linear){0};
}

void direct_linear_forward(const direct_isa *isa, const direct_linear *plans, size_t blocks, const void *x,
                           const void *weight, const void *bias, void *y) {
    const size_t terms[2] = {1, plans->in};
    isa->product[plans->dtype](&plans->forward, blocks, terms, weight, x, bias, y);
}

void direct_linear_backward_input(const direct_isa *isa, const direct_linear *plans, size_t blocks, const void *dy,
                                  const void *weight, void *dx) {
    const size_t terms[2] = {1, plans->out};
    isa->product[plans->dtype](&plans->backward_input, blocks, terms, weight, dy, NULL, dx);
}

void direct_linear_backward_params(const direct_isa *isa, const direct_linear *plans, size_t blocks, const void *x,
                                   const void *dy, void *dweight, void *dbias) {
    const size_t element = ls_dtype_size(plans->dtype), columns = plans->rest.columns;
    const size_t panels = plans->in / columns, left = plans->in % columns;
    const size_t terms[2] = {blocks, DIRECT_LANES};
    if (dbias != NULL) {
        isa->row_sums[plans->dtype](blocks, plans->out, dy, dbias);
    }
    if (blocks == 0) {
        memset(dweight, 0, plans->out * plans->in * element);
        return;
    }
    isa->turn[plans->dtype](blocks, plans->rest.b_panel / columns / DIRECT_LANES, plans->in, columns, x, plans->turned);
    isa->product[plans->dtype](&plans->backward_params, panels, terms, dy, plans->turned, NULL, dweight);
    if (left > 0) {
        const char *last = (const char *)plans->turned + panels * plans->rest.b_panel * element;
        isa->product[plans->dtype](&plans->rest, 1, terms, dy, last, NULL, plans->corner);
        for (size_t row = 0; row < plans->out; row++) {
            memcpy((char *)dweight + (row * plans->in + panels * columns) * element,
                   (const char *)plans->corner + row * columns * element, left * element);
        }
    }
}
