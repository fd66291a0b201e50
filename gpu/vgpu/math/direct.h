/* Convolutions and matrix products on activations of 16 samples side by side, compiled once for each instruction set
 * (direct.c).
 *
 * Three loops serve everything. A *gather* computes each output value of a convolution from the inputs that it depends on:
 * the forward convolution, and the gradient with respect to the input (a convolution of dy with mirrored weights). A
 * *correlation* computes the gradient of a convolution's weights. A *product* of matrices is what a linear layer consists of.
 *
 * A *block* is 16 samples: [channel][row][column][16]. */
#ifndef LS_GPU_VGPU_MATH_DIRECT_H
#define LS_GPU_VGPU_MATH_DIRECT_H

#include <stddef.h>
#include <stdint.h>

enum { DIRECT_LANES = 16 };
enum { DIRECT_LINE = 64 }; /* bytes of a cache line */

/* Output position p of an axis reads `count` neighbouring sources from `source` on, with the taps tap, tap + step, ... Only
 * sources inside the image are named, so that the loops need no test for the border. */
typedef struct direct_range {
    size_t source, tap, count;
} direct_range;

/* Samples by themselves, the channels of a pixel side by side: [sample][row][column][rows_together][channel], rows and columns
 * with the padding around them. A pixel holds the channels of its own row and of the rows below it, rows_together in all, so that
 * what a kernel of as many rows covers in a row of pixels is one run of values. */
typedef struct direct_image {
    size_t columns, rows_together, channels;
    size_t elements, stride; /* of a sample, and from one to the next: more, since whole vectors are read and written */
    uint32_t *pixel;         /* [elements]: (channel*height + row)*width + column in a block; UINT32_MAX: padding */
    void *samples;
} direct_image;

/* Behind a max-pooling, one of the side*side outputs under a window has a gradient, and with a relu perhaps none. The gradients of
 * the convolution are sums over those that are not zero, sample by sample; that of the input only where it gains by that
 * (plan_sparse.c). Each of these has an *entry* in a list: its value and an offset, the place of what it is multiplied by. */

/* The gradient of the input: for each window an entry adds a multiple of its channel's kernel to the image. */
typedef struct direct_sparse_input {
    direct_image image;     /* of 16 samples */
    size_t chunk;           /* output channels whose entries are in lists at the same time */
    size_t window_rows;     /* rows of windows likewise */
    size_t capacity;        /* of a list */
    size_t foot_rows;       /* rows of the image that the kernel reaches from anywhere under a window */
    size_t vectors, parts;  /* a row of them is `parts` parts of so many vectors */
    size_t table_row;       /* elements from a row to the next */
    size_t table_rows;      /* of a part: the kernel's, with zeros around them for the other places under a window */
    void *table;            /* [chunk][part][row][channel][column under the window][vectors]: weights */
    void *values, *offsets; /* [window][16][capacity]; offsets are integers as wide as the elements */
    size_t *counts;         /* [window][16] */
} direct_sparse_input;

/* The gradient of the parameters: an entry adds a multiple of what the kernel covers in the image. A list is of a channel and of
 * as many samples as 16 bytes hold elements, a piece. */
typedef struct direct_sparse_params {
    direct_image image;    /* of 16 samples */
    size_t window_rows;    /* rows of windows whose entries are in lists at the same time */
    size_t capacity;       /* of a list */
    size_t kernel_groups;  /* of rows_together kernel rows */
    size_t vectors, parts; /* such a group is `parts` parts of so many vectors */
    void *places; /* [window][sample of a piece]: integers as wide as the elements, where its first pixel lies */
    void *values, *offsets; /* [piece][channel][capacity] */
    size_t *counts;         /* [piece][channel] */
    void *sums;             /* [channel][kernel group][part][vectors] */
    void *bias_sums;        /* [channel], a vector each */
} direct_sparse_params;

/* A max-pooling behind a convolution, of windows that lie side by side, computed in the same pass: outputs go from the
 * convolution's rows in the first-level cache to the pooling's. */
typedef struct direct_pool {
    size_t side; /* of a window */
    int relu;    /* behind the pooling */
    size_t channels, out_height, out_width;
    size_t full_height, full_width; /* of the convolution's outputs, which are the pooling's inputs */
    size_t in_channels, kernel_height, kernel_width, stride; /* of the convolution */
    size_t input_pixels;                                     /* in_channels*in_height*in_width of the convolution */
    size_t strip_columns;                                    /* windows of a row that are computed together */
    void *strip;          /* [2][group][side][strip_columns*side][16]: what these windows cover, of one block or two */
    void *numbers;        /* [strip_columns][16]: integers as wide as the elements */
    uint8_t kept[256][8]; /* the members of each set of 8, whose numbers are a number's bits, side by side */
    direct_sparse_input input; /* empty with spread */
    direct_sparse_params params;
    /* Where lists are slower for the gradient of the input: [1 or 2 blocks][channel][full_height][full_width][16], the gradients of the
     * convolution's outputs, for a gather over all of them. NULL: lists. */
    void *spread;
} direct_pool;

/* Vectors of a part of a row in the sparse gradients, at most. */
enum { SPARSE_VECTORS = 8 };

/* Gradients that a convolution gets. */
typedef struct direct_gradient {
    const void *dy;       /* of its own outputs, or with a pooling of the pooling's (or the relu's) */
    const uint8_t *index; /* of a pooling: which value of the window was taken */
    const void *y;        /* with a relu: its output */
} direct_gradient;

/* A gather computes 4 or 5 output channels together, a product as many rows. */
enum { DIRECT_GROUP_SMALL = 4, DIRECT_GROUP_LARGE = 5 };

typedef struct direct_gather {
    size_t in_channels, in_height, in_width;
    size_t out_channels, out_height, out_width;
    size_t tap_rows, tap_columns, tap_step;
    size_t group;          /* output channels computed together, 4 or 5 */
    size_t chunk;          /* input channels whose part of all sums is computed before the next ones are read */
    direct_pool *pool;     /* NULL: none */
    direct_range *rows;    /* [out_height] */
    direct_range *columns; /* [out_width] */
    void *packed;          /* [ceil(out_channels/group)][in_channels][tap_rows][tap_columns][group] */
    /* Where the weight of an output, an input and a tap lies, whose number is row*tap_columns + column: origin + out*out_step +
     * in*in_step + tap*weight_tap_step. */
    ptrdiff_t origin, out_step, in_step, weight_tap_step;
} direct_gather;

/* Weight gradients are computed for some output channels x DIRECT_TAPS taps together, where a tap is one (input channel,
 * kernel row, kernel column). */
enum { DIRECT_TAPS = 5 };
/* Columns of dy that have bias sums of their own, at most. */
enum { DIRECT_BIAS_COLUMNS = 8 };

typedef struct direct_correlation {
    size_t in_channels, in_height, in_width;
    size_t out_channels, out_height, out_width;
    size_t stride, padding;
    direct_pool *pool;  /* NULL: none; else dy is the pooling's, and all below is not used */
    size_t taps;        /* in_channels * kernel height * kernel width */
    size_t *tap_offset; /* [taps rounded up to DIRECT_TAPS]: elements from a pixel's window corner in a padded block */
    size_t tile_blocks; /* blocks and output rows that are walked with the sums in registers */
    size_t tile_rows;
    int outs_inner;       /* which of the two loops over sums is the inner one */
    size_t chunk_taps;    /* taps, a multiple of DIRECT_TAPS, whose sums for all outputs are kept from tile to tile */
    size_t padded_blocks; /* 0: no padding, x is read as it is */
    void *padded;         /* [padded_blocks][in_channels][in_height+2p][in_width+2p][16], zero border */
    void *sums;      /* [group of outputs][chunk_taps/DIRECT_TAPS][output of the group][DIRECT_TAPS], a vector each */
    void *bias_sums; /* [out_channels][DIRECT_BIAS_COLUMNS][16] */
} direct_correlation;

/* C[panel][row][column] = sum over terms of A(row, term) * B[panel][term][column], in the order of the terms. Columns of a
 * panel lie side by side in B and C: the 16 lanes of a block, or features. Steps are in elements. */
typedef struct direct_product {
    size_t rows, columns; /* columns of a panel: 16, or two vectors */
    size_t group;         /* rows computed together, 4 or 5 */
    /* A: from a row to the next and from a term. Terms lie side by side (a_term 1), or rows do (a_row 1). */
    size_t a_row, a_term;
    size_t b_panel, b_term;
    size_t c_panel, c_row;
    size_t row_panel, term_panel; /* what is walked while it lies in a cache */
    /* [term_panel][packed_term]: A's part of both, whose rows lie side by side, so that it takes few lines that lie close
     * together; NULL: A is read where it lies. */
    void *packed;
    size_t packed_term;
} direct_product;

/* The functions of one instruction set, [LS_FLOAT32] and [LS_FLOAT64]. Every sum has a fixed order. */
typedef struct direct_isa {
    const char *name;        /* baseline, AVX2 or AVX-512 */
    const char *description; /* "direct, <name>" */
    size_t vector_bytes;
    int many_registers; /* for vectors, 32 and not 16: they hold sums of two pixels, and of more than two outputs */
    /* Packs the weights, then y = gather(x) + bias, or the pooling of it; bias may be NULL. index: the pooling's. */
    void (*forward[2])(const direct_gather *plan, size_t blocks, const void *x, const void *weight, const void *bias,
                       void *y, uint8_t *index);
    /* dx = gather(dy), likewise. */
    void (*backward[2])(const direct_gather *plan, size_t blocks, const direct_gradient *dy, const void *weight,
                        void *dx);
    /* dweight = sum over samples and pixels of dy * x, dbias = that of dy, which may be NULL; no block gives zeros. */
    void (*correlate[2])(const direct_correlation *plan, size_t blocks, const void *x, const direct_gradient *dy,
                         void *dweight, void *dbias);
    /* sums[r] = sum over samples of dy[block][r][16]. */
    void (*row_sums[2])(size_t blocks, size_t rows, const void *dy, void *sums);
    /* c = product(a, b) + bias of the row, over at least one term; bias may be NULL. */
    void (*product[2])(const direct_product *plan, size_t panels, size_t terms, const void *a, const void *b,
                       const void *bias, void *c);
    /* The first `count` features of x[block][features][16] -> turned[feature/columns][max_blocks*16 samples][columns]; columns
     * beyond the last are left alone. */
    void (*turn[2])(size_t blocks, size_t max_blocks, size_t features, size_t count, size_t columns, const void *x,
                    void *turned);
    size_t outs;    /* output channels whose weight gradients are computed together, at most */
    size_t vectors; /* vectors of columns for which a product is computed together, at most */
} direct_isa;

/* The best instruction set of this processor, or the one that LOCKSTEP_VGPU_ISA names (baseline, AVX2, AVX-512); NULL
 * after one line when that is unknown or missing here. */
const direct_isa *direct_isa_select(void);

#endif
