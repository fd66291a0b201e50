/* A linear layer as three products of matrices (direct.h):
 *
 *   y  = W x:    rows are outputs, terms inputs, columns the samples of a block; W is read where it lies.
 *   dx = W' dy:  rows are inputs, terms outputs, columns the samples of a block; W is packed, a panel at a time, where
 *                its rows lie so that they would not stay in a cache.
 *   dW = dy x':  rows are outputs, terms samples, columns inputs; for these x is turned, so that they lie side by side, as
 *                many at a time as are computed together, while they are in a first-level cache; dy too, so that rows do. */
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/math/plan.h"

/* Of lines in a first-level cache, of 8 ways or more. */
enum { SETS = 64 };
/* Terms of a panel where A's lie side by side: a row of weights is then read in one go, which the processor foresees, and B's
 * part comes in time from a second-level cache. */
static const size_t near_terms = 1024;
/* B's part of a panel of terms for the vectors that are computed together, where A's rows lie side by side, and the lines of A
 * that a group of rows reads, one a term. */
static const size_t first_level = 30 * 1024;
/* A's part of a panel of terms and rows, in a second-level cache of 256 KiB or more. */
static const size_t second_level = 128 * 1024;

static size_t at_least(size_t least, size_t value) {
    return value < least ? least : value;
}

/* Panels of terms are equal ones, as few as may be. */
static void choose_panels(const direct_isa *isa, direct_product *p, size_t terms, size_t element) {
    size_t most = p->a_term == 1 ? near_terms : first_level / (isa->vectors * isa->vector_bytes + DIRECT_LINE);
    p->term_panel = direct_equal_part(terms, most);
    p->row_panel = at_least(1, second_level / (p->term_panel * element) / p->group) * p->group;
}

/* Whether that many lines, `step` bytes apart, are more than half the ways of the sets that they fall into. */
static bool compete(size_t lines, size_t step) {
    size_t sets = SETS;
    for (size_t apart = DIRECT_LINE; sets > 1 && step % (2 * apart) == 0; apart *= 2) {
        sets /= 2;
    }
    return lines > 4 * sets;
}

/* Elements from a term to the next where `rows` rows lie side by side: an odd number of lines, which do not compete. */
static size_t term_step(size_t rows, size_t element) {
    return (direct_round_up(rows * element, DIRECT_LINE) / DIRECT_LINE | 1) * DIRECT_LINE / element;
}

/* Memory that a layer's gradients go through. */
static ls_rc allocate(const direct_isa *isa, direct_linear *plans, size_t blocks, size_t element) {
    size_t columns = plans->rest.columns, samples = blocks * DIRECT_LANES;
    direct_product *dx = &plans->backward_input;
    const bool packs = compete(dx->term_panel, dx->a_term * element);
    plans->turned = direct_memory(samples * isa->vectors, isa->vector_bytes, "the turned input of a linear layer");
    plans->turned_dy = direct_memory(samples * plans->rest.a_term, element, "the turned gradient of a linear layer");
    plans->corner = direct_memory(plans->out * columns, element, "the last columns of a linear layer's gradient");
    if (packs) {
        dx->packed_term = term_step(dx->rows < dx->row_panel ? dx->rows : dx->row_panel, element);
        dx->packed = direct_memory(dx->term_panel * dx->packed_term, element, "packed weights of a linear layer");
    }
    return plans->turned != NULL && plans->turned_dy != NULL && plans->corner != NULL && packs == (dx->packed != NULL)
               ? LS_OK
               : LS_DEVICE_FAILED;
}

ls_rc direct_linear_make(const direct_isa *isa, size_t in, size_t out, ls_dtype dtype, size_t max_batch,
                         direct_linear *plans) {
    const size_t element = ls_dtype_size(dtype), columns = 2 * isa->vector_bytes / element;
    const size_t blocks = at_least(1, (max_batch + DIRECT_LANES - 1) / DIRECT_LANES);
    *plans = (direct_linear){.dtype = dtype, .max_batch = max_batch, .in = in, .out = out};
    plans->forward = (direct_product){.rows = out,
                                      .columns = DIRECT_LANES,
                                      .group = direct_group(out),
                                      .a_row = in,
                                      .a_term = 1,
                                      .b_panel = in * DIRECT_LANES,
                                      .b_term = DIRECT_LANES,
                                      .c_panel = out * DIRECT_LANES,
                                      .c_row = DIRECT_LANES};
    plans->backward_input = (direct_product){.rows = in,
                                             .columns = DIRECT_LANES,
                                             .group = direct_group(in),
                                             .a_row = 1,
                                             .a_term = in,
                                             .b_panel = out * DIRECT_LANES,
                                             .b_term = DIRECT_LANES,
                                             .c_panel = in * DIRECT_LANES,
                                             .c_row = DIRECT_LANES};
    plans->backward_params = (direct_product){.rows = out,
                                              .columns = columns,
                                              .group = direct_group(out),
                                              .a_row = 1,
                                              .a_term = term_step(out, element),
                                              .b_panel = blocks * DIRECT_LANES * columns,
                                              .b_term = columns,
                                              .c_panel = columns,
                                              .c_row = in};
    choose_panels(isa, &plans->forward, in, element);
    choose_panels(isa, &plans->backward_input, out, element);
    choose_panels(isa, &plans->backward_params, blocks * DIRECT_LANES, element);
    plans->rest = plans->backward_params;
    plans->rest.c_row = columns;
    ls_rc rc = allocate(isa, plans, blocks, element);
    if (rc != LS_OK) {
        direct_linear_free(plans);
    }
    return rc;
}

void direct_linear_free(direct_linear *plans) {
    free(plans->turned);
    free(plans->turned_dy);
    free(plans->corner);
    free(plans->backward_input.packed);
    *plans = (direct_linear){0};
}

void direct_linear_forward(const direct_isa *isa, const direct_linear *plans, size_t blocks, const void *x,
                           const void *weight, const void *bias, void *y) {
    isa->product[plans->dtype](&plans->forward, blocks, plans->in, weight, x, bias, y);
}

void direct_linear_backward_input(const direct_isa *isa, const direct_linear *plans, size_t blocks, const void *dy,
                                  const void *weight, void *dx) {
    isa->product[plans->dtype](&plans->backward_input, blocks, plans->out, weight, dy, NULL, dx);
}

/* The gradient of the `left` features behind `panels` turned panels; to: at the first panel's first feature. */
static void last_columns(const direct_isa *isa, const direct_linear *plans, size_t samples, size_t panels, size_t left,
                         char *to) {
    const size_t element = ls_dtype_size(plans->dtype), columns = plans->rest.columns;
    const char *last = (const char *)plans->turned + panels * plans->rest.b_panel * element;
    isa->product[plans->dtype](&plans->rest, 1, samples, plans->turned_dy, last, NULL, plans->corner);
    for (size_t row = 0; row < plans->out; row++) {
        memcpy(to + (row * plans->in + panels * columns) * element,
               (const char *)plans->corner + row * columns * element, left * element);
    }
}

void direct_linear_backward_params(const direct_isa *isa, const direct_linear *plans, size_t blocks, const void *x,
                                   const void *dy, void *dweight, void *dbias) {
    const size_t element = ls_dtype_size(plans->dtype), columns = plans->rest.columns, in = plans->in;
    const size_t samples = blocks * DIRECT_LANES, max_blocks = plans->rest.b_panel / columns / DIRECT_LANES;
    const size_t together = isa->vectors * isa->vector_bytes / element;
    if (dbias != NULL) {
        isa->row_sums[plans->dtype](blocks, plans->out, dy, dbias);
    }
    if (blocks == 0) {
        memset(dweight, 0, plans->out * in * element);
        return;
    }
    isa->turn[plans->dtype](blocks, max_blocks, plans->out, plans->out, plans->rest.a_term, dy, plans->turned_dy);
    for (size_t first = 0; first < in; first += together) {
        const size_t count = in - first < together ? in - first : together, panels = count / columns;
        const char *from = (const char *)x + first * DIRECT_LANES * element;
        char *to = (char *)dweight + first * element;
        isa->turn[plans->dtype](blocks, max_blocks, in, count, columns, from, plans->turned);
        isa->product[plans->dtype](&plans->backward_params, panels, samples, plans->turned_dy, plans->turned, NULL, to);
        if (count % columns > 0) {
            last_columns(isa, plans, samples, panels, count % columns, to);
        }
    }
}
