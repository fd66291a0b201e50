/* The plans of the gradients of a convolution behind a max-pooling (direct.h: direct_sparse_input, direct_sparse_params). */
#include <stdint.h>
#include <stdlib.h>

#include "gpu/vgpu/math/plan.h"

/* What a pass over all windows that have lists reads of the table, in a first-level cache of 32 KiB beside the lists and samples
 * at hand. */
static const size_t table_bytes = 20 * 1024;
/* A part of a row of the table or of a kernel: a run that the processor foresees, of as many vectors as have sums. */
static const size_t part_bytes = 256;
/* Lists of the windows that are walked together, in a second-level cache of 256 KiB or more beside the samples. */
static const size_t list_bytes = 64 * 1024;
/* What the entries of a list reach in the samples, about a first-level cache. */
static const size_t reach_bytes = 32 * 1024;

/* Measured on Zen 4 with AVX2 and AVX-512: from 8 to 16. */
static const size_t list_entries = 12;

/* Before there is memory for what is this large: offsets of float32 are 32 bits wide, and so are numbers of pixels. */
static ls_rc check_offsets(size_t values) {
    if (values > INT32_MAX) {
        return ls_fail(LS_BAD_INPUT,
                       "a convolution with a max-pooling behind it: expected images and kernels of which %zu samples, "
                       "or the weights of a group of channels, are at most %d values, found %zu; make them smaller, or "
                       "set LOCKSTEP_VGPU_FUSE=0",
                       16 / sizeof(float), INT32_MAX, values);
    }
    return LS_OK;
}

/* Where each element of a sample lies in a block. */
static ls_rc image_make(const ls_conv_shape *s, size_t together, size_t beyond, size_t element, direct_image *image) {
    const size_t padded_height = s->in_height + 2 * s->padding, columns = s->in_width + 2 * s->padding;
    *image = (direct_image){.columns = columns, .rows_together = together, .channels = s->in_channels};
    image->elements = (padded_height - together + 1) * columns * together * s->in_channels;
    const size_t rounded = direct_round_up(image->elements, DIRECT_LANES);
    image->stride = direct_round_up(rounded + beyond, DIRECT_LINE / element);
    LS_TRY(check_offsets(16 / sizeof(float) * image->stride));
    image->pixel = ls_calloc(rounded, sizeof *image->pixel, "the pixels of a convolution's input");
    image->samples = direct_memory(DIRECT_LANES * image->stride, element, "samples of a convolution's input");
    if (image->pixel == NULL || image->samples == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < rounded; i++) {
        const size_t channel = i % s->in_channels, at = i / s->in_channels; /* at: of a row of a pixel */
        const size_t row = at / together / columns + at % together, column = at / together % columns;
        const bool inside = i < image->elements && row >= s->padding && row < s->in_height + s->padding &&
                            column >= s->padding && column < s->in_width + s->padding;
        image->pixel[i] =
            inside ? (uint32_t)((channel * s->in_height + row - s->padding) * s->in_width + column - s->padding)
                   : UINT32_MAX;
    }
    return LS_OK;
}

/* Whether lists are the faster way to the gradient of the input, by the vectors that are loaded for a sample under a window: with lists as
 * many for each entry as a foot takes, whichever of the places under the window was taken, and sums in memory that cost as much
 * as list_entries more entries; without, a product for each place and tap. Lists are slower behind few channels and behind
 * kernels that are small beside the window, of 1 x 1 above all. */
static bool input_has_lists(const direct_isa *isa, const ls_conv_shape *s, const direct_pool *pool, size_t element) {
    const size_t reach = (pool->side - 1) * s->stride, width = isa->vector_bytes / element;
    const size_t foot = (s->kernel_height + reach) * direct_units((s->kernel_width + reach) * s->in_channels, width);
    const size_t products = pool->side * pool->side * s->kernel_height * s->kernel_width * s->in_channels;
    return s->out_channels * products > (s->out_channels + list_entries) * foot * width;
}

/* Two blocks where a vector holds one. */
static ls_rc spread_make(const direct_isa *isa, size_t element, direct_pool *pool) {
    const size_t blocks = isa->vector_bytes / element < DIRECT_LANES ? 1 : 2;
    pool->spread = direct_memory(blocks * pool->channels * pool->full_height * pool->full_width, DIRECT_LANES * element,
                                 "gradients behind a pooling");
    return pool->spread != NULL ? LS_OK : LS_DEVICE_FAILED;
}

static ls_rc input_make(const direct_isa *isa, const ls_conv_shape *s, const direct_pool *pool, size_t element,
                        direct_sparse_input *input) {
    const size_t reach = (pool->side - 1) * s->stride, width = isa->vector_bytes / element;
    const size_t row = (s->kernel_width + reach) * s->in_channels;
    *input = (direct_sparse_input){.foot_rows = s->kernel_height + reach, .table_rows = s->kernel_height + 2 * reach};
    const size_t most = part_bytes / isa->vector_bytes;
    input->vectors = direct_equal_part(direct_units(row, width), most < SPARSE_VECTORS ? most : SPARSE_VECTORS);
    input->parts = direct_units(row, input->vectors * width);
    const size_t weights = pool->side * input->vectors * width; /* of a channel, in a row */
    const size_t fit = table_bytes / (pool->side * weights * element);
    input->chunk = direct_equal_part(s->out_channels, fit > 0 ? fit : 1);
    input->table_row = input->chunk * weights;
    input->capacity = direct_round_up(input->chunk, DIRECT_LANES) + width; /* whole vectors are written */
    LS_TRY(check_offsets(input->table_rows * input->table_row));
    LS_TRY(image_make(s, 1, input->parts * input->vectors * width, element, &input->image));
    const size_t lists = pool->out_width * DIRECT_LANES;
    const size_t rows = list_bytes / (lists * input->capacity * 2 * element);
    input->window_rows = rows < 1 ? 1 : rows < pool->out_height ? rows : pool->out_height;
    const size_t entries = input->window_rows * lists * input->capacity;
    input->table =
        direct_memory(direct_units(s->out_channels, input->chunk) * input->parts * input->table_rows * input->table_row,
                      element, "weights of a convolution for sparse gradients");
    input->values = direct_memory(entries, element, "sparse gradients");
    input->offsets = direct_memory(entries, element, "places of sparse gradients");
    input->counts = ls_calloc(input->window_rows * lists, sizeof *input->counts, "numbers of sparse gradients");
    if (input->table == NULL || input->values == NULL || input->offsets == NULL || input->counts == NULL) {
        return LS_DEVICE_FAILED;
    }
    return LS_OK;
}

/* Rows of a kernel side by side, if a row alone leaves most of its vectors empty. */
static size_t choose_together(const ls_conv_shape *s, size_t width) {
    const size_t row = s->kernel_width * s->in_channels;
    const size_t apart = s->kernel_height * direct_units(row, width);
    return 2 * direct_units(s->kernel_height * row, width) <= apart ? s->kernel_height : 1;
}

static ls_rc params_make(const direct_isa *isa, const ls_conv_shape *s, const direct_pool *pool, size_t element,
                         direct_sparse_params *params) {
    const size_t width = isa->vector_bytes / element, samples = 16 / element;
    const size_t together = choose_together(s, width), step = pool->side * s->stride;
    *params = (direct_sparse_params){.kernel_groups = s->kernel_height / together};
    const size_t row = s->kernel_width * together * s->in_channels;
    params->vectors = direct_equal_part(direct_units(row, width), SPARSE_VECTORS);
    params->parts = direct_units(row, params->vectors * width);
    LS_TRY(image_make(s, together, params->parts * params->vectors * width, element, &params->image));
    const size_t pixel_row = (s->in_width + 2 * s->padding) * together * s->in_channels * samples * element;
    const size_t rows = reach_bytes / pixel_row; /* of pixels */
    const size_t first = s->kernel_height + (pool->side - 1) * s->stride;
    params->window_rows = rows > first ? 1 + (rows - first) / step : 1;
    if (params->window_rows > pool->out_height) {
        params->window_rows = pool->out_height;
    }
    const size_t windows = pool->out_height * pool->out_width;
    const size_t lists = DIRECT_LANES / samples * s->out_channels;
    params->capacity = direct_round_up(params->window_rows * pool->out_width * samples, width) + width;
    const size_t entries = lists * params->capacity;
    params->places = direct_memory(windows * samples + width, element, "the pixels of a pooling's windows");
    params->values = direct_memory(entries, element, "sparse gradients");
    params->offsets = direct_memory(entries, element, "places of sparse gradients");
    params->counts = ls_calloc(lists, sizeof *params->counts, "numbers of sparse gradients");
    params->sums = direct_memory(s->out_channels * params->kernel_groups * params->parts * params->vectors,
                                 isa->vector_bytes, "sums of a weight gradient");
    params->bias_sums = direct_memory(s->out_channels, isa->vector_bytes, "sums of a bias gradient");
    if (params->places == NULL || params->values == NULL || params->offsets == NULL || params->counts == NULL ||
        params->sums == NULL || params->bias_sums == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < windows * samples; i++) {
        const size_t window = i / samples;
        const size_t pixel = window / pool->out_width * step * params->image.columns + window % pool->out_width * step;
        const size_t place = pixel * together * s->in_channels + i % samples * params->image.stride;
        if (element == sizeof(int32_t)) {
            ((int32_t *)params->places)[i] = (int32_t)place;
        } else {
            ((int64_t *)params->places)[i] = (int64_t)place;
        }
    }
    return LS_OK;
}

/* For keep_words of direct_shuffle.h. */
static void list_members(uint8_t (*kept)[8]) {
    for (size_t set = 0; set < 256; set++) {
        size_t count = 0;
        for (size_t i = 0; i < 8; i++) {
            if (set >> i & 1) {
                kept[set][count++] = (uint8_t)i;
            }
        }
    }
}

ls_rc direct_sparse_make(const direct_isa *isa, const ls_conv_shape *shape, size_t element, direct_pool *pool) {
    list_members(pool->kept);
    LS_TRY(params_make(isa, shape, pool, element, &pool->params));
    return input_has_lists(isa, shape, pool, element) ? input_make(isa, shape, pool, element, &pool->input)
                                                      : spread_make(isa, element, pool);
}

void direct_sparse_free(direct_pool *pool) {
    void *all[] = {pool->input.table,        pool->input.values,         pool->input.offsets, pool->input.counts,
                   pool->input.image.pixel,  pool->input.image.samples,  pool->params.places, pool->params.values,
                   pool->params.offsets,     pool->params.counts,        pool->params.sums,   pool->params.bias_sums,
                   pool->params.image.pixel, pool->params.image.samples, pool->spread};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}
