/* The right values in the wrong places: moved by an offset, or in another order. */
#include <math.h>
#include <stdlib.h>

#include "verify/diagnose.h"
#include "verify/values.h"

/* Offsets tried: an unpacking that is off by some elements, a row or a small plane. */
enum { FARTHEST = 1024 };

/* found[i] against reference[i + offset] where the reference has that element. */
static bool matches(ls_dtype dtype, const void *found, const double *reference, size_t first, size_t count, size_t size,
                    double limit, long offset) {
    double error = 0, square = 0;
    size_t common = 0;
    for (size_t i = first; i < first + count; i++) {
        if (offset < 0 ? i < (size_t)-offset : i + (size_t)offset >= size) {
            continue;
        }
        double due = reference[offset < 0 ? i - (size_t)-offset : i + (size_t)offset];
        double difference = ls_value(dtype, found, i) - due;
        error += difference * difference;
        square += due * due;
        common++;
        if (common == 8 && !(error <= limit * square)) {
            return false; /* the first elements tell */
        }
    }
    return common > 1 && 2 * common >= count && square > 0 && error <= limit * limit * square;
}

/* Elements of a neighbour may have gone lost at the edge of a bucket; a tensor's inner elements decide. */
static bool inner_matches(ls_dtype dtype, const void *found, const double *reference, size_t first, size_t count,
                          size_t size, double limit, long offset) {
    size_t far = (size_t)labs(offset);
    size_t begin = offset < 0 ? first + far : first;
    return count > 2 * far + 1 && matches(dtype, found, reference, begin, count - far, size, limit, offset);
}

bool ls_order_shifted(ls_dtype dtype, const void *found, const double *reference, size_t first, size_t count,
                      size_t size, double limit, long *offset) {
    for (long far = 1; far <= FARTHEST; far++) {
        for (long sign = 1; sign >= -1; sign -= 2) {
            if (matches(dtype, found, reference, first, count, size, limit, sign * far) ||
                inner_matches(dtype, found, reference, first, count, size, limit, sign * far)) {
                *offset = sign * far;
                return true;
            }
        }
    }
    return false;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

bool ls_order_permuted(ls_dtype dtype, const void *found, const double *reference, size_t first, size_t count,
                       double limit) {
    double *sorted = calloc(2 * count, sizeof *sorted);
    if (sorted == NULL) {
        return false;
    }
    double error = 0, square = 0;
    for (size_t i = 0; i < count; i++) {
        sorted[i] = ls_value(dtype, found, first + i);
        sorted[count + i] = reference[first + i];
    }
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    qsort(sorted + count, count, sizeof *sorted, compare_doubles);
    for (size_t i = 0; i < count; i++) {
        double difference = sorted[i] - sorted[count + i];
        error += difference * difference;
        square += sorted[count + i] * sorted[count + i];
    }
    free(sorted);
    return count > 2 && square > 0 && error <= limit * limit * square;
}
