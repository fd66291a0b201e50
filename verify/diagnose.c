#include "verify/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/values.h"

/* A fault as a blend of local gradients: reduced = sum_r now[r]*g_r(step) + before[r]*g_r(step - 1). */
typedef struct blend {
    double *now, *before; /* [devices] */
} blend;

typedef enum fault {
    FAULT_NONE = 0, /* differs, but as none of these */
    FAULT_NOT_AVERAGED,
    FAULT_AVERAGED_TWICE,
    FAULT_ONE_TOO_FEW, /* divided by W-1 */
    FAULT_NOT_REDUCED, /* one device's own gradient */
    FAULT_LOST,        /* a device is missing, still divided by W */
    FAULT_LOST_RESCALED,
    FAULT_OWN_DIVIDED,
    FAULT_TWICE, /* a device counted twice */
    FAULT_STALE, /* a device's gradient of the step before */
    FAULT_ALL_STALE,
    FAULT_INSTEAD, /* a device counted in place of another */
    FAULT_ZERO,
    FAULT_SHIFTED,  /* the right values, moved by an offset */
    FAULT_PERMUTED, /* the right values in another order */
    FAULT_COUNT
} fault;

typedef struct suspect {
    fault kind;
    size_t who, instead_of;
    long offset; /* FAULT_SHIFTED */
} suspect;

/* How much closer than the faults themselves a blend must come: far above rounding, far below any of them. */
static double closeness(ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? 1e-12 : 1e-5;
}

static void fill(double *values, size_t count, double value) {
    for (size_t i = 0; i < count; i++) {
        values[i] = value;
    }
}

/* The coefficients of a suspect. */
static void make_blend(const ls_case *c, suspect s, blend *b) {
    size_t w = c->devices;
    double world = (double)w;
    double base = c->reduction == LS_REDUCTION_MEAN ? 1 / world : 1;
    fill(b->now, w, base);
    fill(b->before, w, 0);
    switch (s.kind) {
    case FAULT_NOT_AVERAGED:
        fill(b->now, w, base * world);
        break;
    case FAULT_AVERAGED_TWICE:
        fill(b->now, w, base / world);
        break;
    case FAULT_ONE_TOO_FEW:
        fill(b->now, w, base * world / (world - 1));
        break;
    case FAULT_NOT_REDUCED:
    case FAULT_OWN_DIVIDED:
        fill(b->now, w, 0);
        b->now[s.who] = s.kind == FAULT_NOT_REDUCED ? 1 : base;
        break;
    case FAULT_LOST:
        b->now[s.who] = 0;
        break;
    case FAULT_LOST_RESCALED:
        fill(b->now, w, base * world / (world - 1));
        b->now[s.who] = 0;
        break;
    case FAULT_TWICE:
        b->now[s.who] = 2 * base;
        break;
    case FAULT_STALE:
        b->now[s.who] = 0;
        b->before[s.who] = base;
        break;
    case FAULT_ALL_STALE:
        fill(b->now, w, 0);
        fill(b->before, w, base);
        break;
    case FAULT_INSTEAD:
        b->now[s.who] = 2 * base;
        b->now[s.instead_of] = 0;
        break;
    case FAULT_ZERO:
        fill(b->now, w, 0);
        break;
    case FAULT_NONE:
    case FAULT_SHIFTED: /* no blends */
    case FAULT_PERMUTED:
    case FAULT_COUNT:
        break;
    }
}

/* The blend of one element. */
static double blend_value(const ls_case *c, size_t step, const blend *b, size_t i) {
    double value = 0;
    for (size_t device = 0; device < c->devices; device++) {
        if (b->now[device] != 0) {
            value += b->now[device] * ls_value(c->run.dtype, ls_case_local(c, step, device)->grads, i);
        }
        if (b->before[device] != 0) {
            value += b->before[device] * ls_value(c->run.dtype, ls_case_local(c, step - 1, device)->grads, i);
        }
    }
    return value;
}

/* Whether the tensor equals the blend but for rounding. */
static bool explains(const ls_case *c, size_t step, const void *found, const ls_param *param, const blend *b) {
    double error = 0;
    double square = 0;
    double seen = 0;
    for (size_t i = param->offset; i < param->offset + param->count; i++) {
        double expected = blend_value(c, step, b, i);
        double value = ls_value(c->run.dtype, found, i);
        error += (value - expected) * (value - expected);
        square += expected * expected;
        seen += value * value;
    }
    double limit = closeness(c->run.dtype);
    return error <= limit * limit * square || (square == 0 && seen == 0);
}

static bool needs_who(fault kind) {
    return kind == FAULT_NOT_REDUCED || kind == FAULT_OWN_DIVIDED || kind == FAULT_LOST ||
           kind == FAULT_LOST_RESCALED || kind == FAULT_TWICE || kind == FAULT_STALE || kind == FAULT_INSTEAD;
}

static bool possible(const ls_case *c, size_t step, fault kind) {
    if (kind >= FAULT_SHIFTED) {
        return false; /* no blend: find_order */
    }
    bool stale = kind == FAULT_STALE || kind == FAULT_ALL_STALE;
    bool several = kind != FAULT_ALL_STALE && kind != FAULT_ZERO && kind != FAULT_STALE;
    return (!stale || step > 0) && (!several || c->devices > 1);
}

enum { MOST_PAIRS = 16 }; /* devices up to which every pair is tried */

/* The first known fault that explains the tensor, in the order of the enumeration: simple before contrived. */
static suspect find_suspect(const ls_case *c, size_t step, const void *found, const ls_param *param, blend *b) {
    for (fault kind = FAULT_NOT_AVERAGED; kind < FAULT_COUNT; kind++) {
        if (!possible(c, step, kind)) {
            continue;
        }
        size_t others = kind == FAULT_INSTEAD ? (c->devices <= MOST_PAIRS ? c->devices : 0) : 1;
        for (size_t who = 0; who < (needs_who(kind) ? c->devices : 1); who++) {
            for (size_t other = 0; other < others; other++) {
                suspect s = {kind, who, other, 0};
                if (kind == FAULT_INSTEAD && who == other) {
                    continue;
                }
                make_blend(c, s, b);
                if (explains(c, step, found, param, b)) {
                    return s;
                }
            }
        }
    }
    return (suspect){.kind = FAULT_NONE};
}

/* The right values in the wrong places. */
static suspect find_order(const ls_case *c, const void *found, const double *reference, const ls_param *param) {
    double limit = closeness(c->run.dtype);
    suspect s = {.kind = FAULT_NONE};
    if (ls_order_shifted(c->run.dtype, found, reference, param->offset, param->count, c->model.param_count, limit,
                         &s.offset)) {
        s.kind = FAULT_SHIFTED;
    } else if (ls_order_permuted(c->run.dtype, found, reference, param->offset, param->count, limit)) {
        s.kind = FAULT_PERMUTED;
    }
    return s;
}

static void describe(const ls_case *c, suspect s, char *text, size_t size) {
    bool mean = c->reduction == LS_REDUCTION_MEAN;
    size_t w = c->devices;
    switch (s.kind) {
    case FAULT_NOT_AVERAGED:
        snprintf(text, size, "%s: %zu times the %s", mean ? "not averaged" : "scaled", w, mean ? "mean" : "sum");
        break;
    case FAULT_AVERAGED_TWICE:
        snprintf(text, size, "%s: 1/%zu of the %s", mean ? "averaged twice" : "averaged where a sum is due", w,
                 mean ? "mean" : "sum");
        break;
    case FAULT_ONE_TOO_FEW:
        snprintf(text, size, "divided by %zu, one too few", w - 1);
        break;
    case FAULT_NOT_REDUCED:
        snprintf(text, size, "not reduced: the local gradient of device %zu", s.who);
        break;
    case FAULT_LOST:
        snprintf(text, size, "a rank was lost: without device %zu", s.who);
        break;
    case FAULT_LOST_RESCALED:
        snprintf(text, size, "a rank was lost: without device %zu, divided by the %zu others", s.who, w - 1);
        break;
    case FAULT_OWN_DIVIDED:
        snprintf(text, size, "not reduced: the local gradient of device %zu, divided by %zu", s.who, w);
        break;
    case FAULT_TWICE:
        snprintf(text, size, "device %zu was counted twice", s.who);
        break;
    case FAULT_STALE:
        snprintf(text, size, "stale: device %zu took part with its gradient of the step before", s.who);
        break;
    case FAULT_ALL_STALE:
        snprintf(text, size, "stale: the gradients of the step before");
        break;
    case FAULT_INSTEAD:
        snprintf(text, size, "device %zu was counted in place of device %zu", s.who, s.instead_of);
        break;
    case FAULT_ZERO:
        snprintf(text, size, "all zero: the buffer was cleared or never written");
        break;
    case FAULT_SHIFTED:
        snprintf(text, size, "shifted: each element holds the value that is due %ld places %s", labs(s.offset),
                 s.offset > 0 ? "later" : "earlier");
        break;
    case FAULT_PERMUTED:
        snprintf(text, size, "permuted: the right values in another order (another layout, a transposition)");
        break;
    case FAULT_NONE:
    case FAULT_COUNT:
        snprintf(text, size, "no known fault explains it");
        break;
    }
}

/* Tensors that differ as a whole, each with its suspect. */
typedef struct survey {
    size_t deviating;
    size_t tensors[LS_MODEL_MAX_PARAMS];
    suspect suspects[LS_MODEL_MAX_PARAMS];
    double scales[LS_MODEL_MAX_PARAMS];
} survey;

static void survey_tensors(const ls_case *c, size_t step, const void *found, double *reference, blend *b, survey *out) {
    out->deviating = 0;
    make_blend(c, (suspect){.kind = FAULT_NONE}, b);
    for (size_t i = 0; i < c->model.param_count; i++) {
        reference[i] = blend_value(c, step, b, i);
    }
    for (size_t t = 0; t < c->model.param_tensors; t++) {
        const ls_param *param = &c->model.params[t];
        ls_distance d = ls_distance_measure(c->run.dtype, found, reference, param->offset, param->count);
        if (d.l2 <= closeness(c->run.dtype) * d.reference_l2) {
            continue;
        }
        out->tensors[out->deviating] = t;
        out->scales[out->deviating] = ls_scale_fit(c->run.dtype, found, reference, param->offset, param->count);
        suspect s = find_suspect(c, step, found, param, b);
        out->suspects[out->deviating++] = s.kind != FAULT_NONE ? s : find_order(c, found, reference, param);
    }
}

static bool same_suspect(suspect a, suspect b) {
    return a.kind == b.kind && a.who == b.who && a.instead_of == b.instead_of && a.offset == b.offset;
}

static void report(const ls_case *c, const survey *s, char *cause, size_t size) {
    if (s->deviating == 0) {
        snprintf(cause, size, "scale 1: single elements differ, no whole tensor");
        return;
    }
    char names[128] = "";
    size_t used = 0;
    size_t alike = 0;
    for (size_t i = 0; i < s->deviating; i++) {
        if (!same_suspect(s->suspects[i], s->suspects[0])) {
            continue;
        }
        int more = snprintf(names + used, sizeof names - used, "%s%s", alike > 0 ? ", " : "",
                            c->model.params[s->tensors[i]].name);
        used = more > 0 && used + (size_t)more < sizeof names ? used + (size_t)more : used;
        alike++;
    }
    if (alike == c->model.param_tensors) {
        snprintf(names, sizeof names, "every tensor");
    }
    char text[128];
    describe(c, s->suspects[0], text, sizeof text);
    int written = snprintf(cause, size, "%s: %s (scale %.6g)", names, text, s->scales[0]);
    if (alike < s->deviating && written > 0 && (size_t)written < size) {
        snprintf(cause + written, size - (size_t)written, "; %zu more tensors differ otherwise", s->deviating - alike);
    }
}

/* Each tensor that differs: scale and verdict. */
static void list_tensors(const ls_case *c, const survey *s, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < s->deviating; i++) {
        char verdict[128];
        describe(c, s->suspects[i], verdict, sizeof verdict);
        int more = snprintf(text + used, size - used, "%s%s: scale %.6g, %s", i > 0 ? "; " : "",
                            c->model.params[s->tensors[i]].name, s->scales[i], verdict);
        if (more < 0 || used + (size_t)more + 32 >= size) {
            snprintf(text + used, size - used, "; and %zu more", s->deviating - i);
            return;
        }
        used += (size_t)more;
    }
}

void ls_place_name(const ls_case *c, size_t element, char *text, size_t size) {
    const ls_capture_reduced *record = ls_case_reduced(c, 0, 0);
    ls_element_name(&c->model, element, text, size);
    for (size_t b = 0; b < record->plan_count; b++) {
        const ls_bucket *bucket = &record->plan[b];
        size_t used = strlen(text);
        if (element >= bucket->offset && element < bucket->offset + bucket->count) {
            snprintf(text + used, size - used, " (bucket %zu)", b);
            return;
        }
    }
}

void ls_diagnose_reduction(const ls_case *c, size_t step, size_t rank, ls_finding *finding) {
    finding->cause[0] = '\0';
    blend b = {calloc(c->devices, sizeof(double)), calloc(c->devices, sizeof(double))};
    double *reference = calloc(c->model.param_count, sizeof(double));
    if (b.now != NULL && b.before != NULL &&
        reference != NULL) { /* without memory there is no diagnosis, only a verdict */
        survey s;
        survey_tensors(c, step, ls_case_reduced(c, step, rank)->grads, reference, &b, &s);
        report(c, &s, finding->cause, sizeof finding->cause);
        list_tensors(c, &s, finding->tensors, sizeof finding->tensors);
    }
    free(b.now);
    free(b.before);
    free(reference);
}
