/* What rounding may make of a step's gradient and losses, from draws of random roundings.
 *
 * Student's t and Fisher's F: a draw's squared norm q is that of an error made of many roundings, all but normal, so q/E q is
 * about chi-square over its number of degrees of freedom f: 1 for a single element or errors that all go one way, more where
 * they are independent. f = 2*(E q)^2/Var q, from K draws; a quarter of that is taken, since K draws do not know their
 * variance well. A device's own squared error over the draws' mean is F(f, K*f) then, and
 *   bound = s*max(3, sqrt(F quantile for 1e-7)),  s the root mean square of the draws' norms.
 * For f = 1 that is 7.9*s. It was tried on errors of 1, 2, 3, 4, 6 and 10 degrees of freedom, f estimated each time: beyond
 * the bound lie 3e-8, and less than 1e-11 from 2 on. No norm of a normal error has a heavier tail in its own scale than a
 * single number (Latala and Oleszkiewicz, Annals of Probability 27(4), 1999). 3: where the draws leave the spread of an error
 * certain, they do not make the model certain, which takes roundings as independent and sums as added in random order.
 *
 * What is usual is 2*s, s of 4 draws: hardly an error of a correct device is larger. That is beyond the bound when s of few
 * draws is more than 1.5 times that of many where f is large, or 4 times where it is 1: with probabilities of less than 1e-9,
 * P(chi-square of 4*24 degrees > 2.25*4*24), and 1e-12. Who is content with it would be content with the bound. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/hash.h"
#include "verify/oracle_cache_parts.h"
#include "verify/values.h"

/* The mean of q, a squared error over the draws, and of its square. */
typedef struct moments {
    double first, second;
} moments;

/* Draws for a bound, and for a first look. */
enum { ALL_DRAWS = 24, FEW_DRAWS = 4 };

static void moments_add(moments *m, double error, size_t draws) {
    double q = error * error;
    m->first += q / (double)draws;
    m->second += q * q / (double)draws;
}

static const double least_factor = 3, usual_factor = 2;
static const double normal_quantile = 5.2; /* of 1 - 1e-7 */
static const double freedom_share = 0.25;

/* The square root of the quantile of F(f, K*f), after Paulson, "An approximate normalization of the analysis of variance
 * distribution", Annals of Mathematical Statistics 13(2), 1942: with c = 2/(9*degrees), the cube root x of F makes
 * ((1 - c2)*x - (1 - c1))/sqrt(c2*x^2 + c1) standard normal. */
static double factor_of(double freedom) {
    double z2 = normal_quantile * normal_quantile;
    double c1 = 2 / (9 * freedom);
    double c2 = c1 / ALL_DRAWS;
    double a = 1 - c2;
    double b = 1 - c1;
    double square = a * a - z2 * c2;
    double x = (a * b + sqrt(a * a * b * b - square * (b * b - z2 * c1))) / square;
    return fmax(least_factor, pow(x, 1.5));
}

static double bound_of(const moments *m) {
    const double draws = ALL_DRAWS;
    double variance = fmax(0, m->second - m->first * m->first) * draws / (draws - 1);
    double freedom = freedom_share * 2 * m->first * m->first / variance;
    if (!(freedom > 1)) { /* or not a number */
        freedom = 1;
    }
    return sqrt(m->first) * (isfinite(freedom) ? factor_of(freedom) : least_factor);
}

/* The draws of a step, some of them at a time, and what they give. */
typedef struct draws {
    size_t wanted;
    size_t first, count;
    double *reference;         /* [param_count]: the gradient without roundings */
    double *rank, *total;      /* [count][param_count]: of a rank's devices, and of the whole */
    double *sums, *exact_sums; /* [count], [devices]: a rank's sums of terms; a device's, without roundings */
    double *device_sums;       /* [count] */
    moments *l2, *max, *rank_loss, *loss_sum; /* as in ls_rounding; l2 is the memory of all */
} draws;

/* Memory that draws may take together. */
static const size_t draws_bytes = (size_t)256 << 20;

static size_t results_of(const ls_case *c) {
    return 2 * c->model.param_tensors + c->ranks + c->devices;
}

static void draws_close(draws *d) {
    double *owned[] = {d->reference, d->rank, d->total, d->sums, d->exact_sums, d->device_sums};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
        free(owned[i]);
    }
    free(d->l2);
}

static ls_rc draws_open(const ls_case *c, size_t wanted, draws *d) {
    size_t params = c->model.param_count;
    size_t most = draws_bytes / (2 * sizeof(double) * (params + 1));
    size_t count = most < 1 ? 1 : most < wanted ? most : wanted;
    moments *results = ls_calloc(results_of(c), sizeof *results, "draws of roundings");
    *d = (draws){.wanted = wanted,
                 .count = count,
                 .reference = ls_calloc(params, sizeof(double), "a gradient"),
                 .rank = ls_calloc(count * params, sizeof(double), "draws of roundings"),
                 .total = ls_calloc(count * params, sizeof(double), "draws of roundings"),
                 .sums = ls_calloc(count, sizeof(double), "losses"),
                 .exact_sums = ls_calloc(c->devices, sizeof(double), "losses"),
                 .device_sums = ls_calloc(count, sizeof(double), "losses"),
                 .l2 = results};
    if (d->reference == NULL || d->rank == NULL || d->total == NULL || d->sums == NULL || d->exact_sums == NULL ||
        d->device_sums == NULL || results == NULL) {
        draws_close(d);
        return LS_DEVICE_FAILED;
    }
    d->max = results + c->model.param_tensors;
    d->rank_loss = d->max + c->model.param_tensors;
    d->loss_sum = d->rank_loss + c->ranks;
    return LS_OK;
}

/* Adds a device's gradients and sums of terms to its rank's. */
static ls_rc draw_device(ls_oracle_cache *cache, const ls_case *c, size_t step, size_t device, draws *d) {
    ls_oracle_problem p;
    LS_TRY(ls_oracle_problem_open(c, step, device, &p));
    memset(d->device_sums, 0, d->count * sizeof *d->device_sums);
    ls_oracle_draws wanted = {.first = d->first,
                              .count = d->count,
                              .smallest = ls_smallest_normal(c->run.dtype),
                              .grads = d->rank,
                              .loss_sums = d->device_sums};
    int failed = ls_oracle_draw(cache->oracle, &p.input, &wanted);
    ls_oracle_problem_close(&p);
    if (failed != 0) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory in the oracle");
    }
    for (size_t k = 0; k < d->count; k++) {
        moments_add(d->loss_sum + device, d->device_sums[k] - d->exact_sums[device], d->wanted);
        d->sums[k] += d->device_sums[k];
    }
    return LS_OK;
}

/* Adds a rank's devices to the whole, weighted as the loss of each draw has it. */
static ls_rc draw_rank(ls_oracle_cache *cache, const ls_case *c, size_t step, size_t rank, draws *d) {
    size_t params = c->model.param_count;
    double samples = 0;
    double exact = 0;
    memset(d->rank, 0, d->count * params * sizeof *d->rank);
    memset(d->sums, 0, d->count * sizeof *d->sums);
    for (size_t device = 0; device < c->devices; device++) {
        if (ls_case_rank_of(c, device) == rank && ls_case_local(c, step, device)->count > 0) {
            LS_TRY(draw_device(cache, c, step, device, d));
            samples += (double)ls_case_local(c, step, device)->count;
            exact += d->exact_sums[device];
        }
    }
    ls_oracle_loss kind = ls_case_loss(c);
    for (size_t k = 0; k < d->count && samples > 0; k++) {
        double value = ls_oracle_loss_value(&kind, d->sums[k], samples, c->model.classes);
        moments_add(d->rank_loss + rank, value - ls_oracle_loss_value(&kind, exact, samples, c->model.classes),
                    d->wanted);
        double weight = ls_oracle_cache_weight(c, &kind, d->sums[k], samples);
        for (size_t i = 0; i < params; i++) {
            d->total[k * params + i] += weight * d->rank[k * params + i];
        }
    }
    return LS_OK;
}

static void add_norms(const ls_case *c, draws *d) {
    size_t params = c->model.param_count;
    for (size_t k = 0; k < d->count; k++) {
        for (size_t t = 0; t < c->model.param_tensors; t++) {
            const ls_param *param = &c->model.params[t];
            ls_distance distance =
                ls_distance_measure(LS_FLOAT64, d->total + k * params, d->reference, param->offset, param->count);
            moments_add(d->l2 + t, distance.l2, d->wanted);
            moments_add(d->max + t, distance.max, d->wanted);
        }
    }
}

static ls_rc draw_all(ls_oracle_cache *cache, const ls_case *c, size_t step, draws *d) {
    double loss = 0;
    LS_TRY(ls_oracle_cache_global(cache, c, step, d->reference, &loss));
    for (size_t device = 0; device < c->devices; device++) {
        const ls_oracle_local *local = NULL;
        LS_TRY(ls_oracle_cache_local(cache, c, step, device, &local));
        d->exact_sums[device] = local->loss_sum;
    }
    for (size_t at_once = d->count; d->first < d->wanted; d->first += d->count) {
        size_t left = d->wanted - d->first;
        d->count = left < at_once ? left : at_once;
        memset(d->total, 0, d->count * c->model.param_count * sizeof *d->total);
        for (size_t rank = 0; rank < c->ranks; rank++) {
            LS_TRY(draw_rank(cache, c, step, rank, d));
        }
        add_norms(c, d);
    }
    return LS_OK;
}

/* Of all devices, and of how their gradients and losses are put together. */
static void make_key(const ls_case *c, size_t step, uint64_t key[2]) {
    uint64_t shape[] = {c->ranks, c->devices, (uint64_t)c->reduction, (uint64_t)c->run.loss.reduction};
    for (size_t k = 0; k < 2; k++) {
        key[k] = ls_hash(LS_HASH_SEED, shape, sizeof shape);
    }
    for (size_t device = 0; device < c->devices; device++) {
        uint64_t of_device[2];
        ls_oracle_cache_key(c, step, device, of_device);
        for (size_t k = 0; k < 2; k++) {
            key[k] = ls_hash(key[k], &of_device[k], sizeof of_device[k]);
        }
    }
}

static const ls_rounding *find(const ls_oracle_cache *cache, const uint64_t key[2], ls_rounding_kind kind) {
    for (const ls_rounding_entry *e = cache->roundings; e != NULL; e = e->next) {
        if (memcmp(e->key, key, sizeof e->key) == 0 && e->kind == kind) {
            return &e->rounding;
        }
    }
    return NULL;
}

static ls_rc remember(ls_oracle_cache *cache, const ls_case *c, const uint64_t key[2], ls_rounding_kind kind,
                      const draws *d, const ls_rounding **out) {
    ls_rounding_entry *e = ls_calloc(1, sizeof *e, "bounds of rounding");
    double *bounds = ls_calloc(results_of(c), sizeof *bounds, "bounds of rounding");
    if (e == NULL || bounds == NULL) {
        free(e);
        free(bounds);
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < results_of(c); i++) {
        bounds[i] = kind == LS_ROUNDING_BOUND ? bound_of(d->l2 + i) : usual_factor * sqrt(d->l2[i].first);
    }
    *e = (ls_rounding_entry){.next = cache->roundings, .key = {key[0], key[1]}, .kind = kind};
    e->rounding.l2 = bounds;
    e->rounding.max = bounds + c->model.param_tensors;
    e->rounding.rank_loss = e->rounding.max + c->model.param_tensors;
    e->rounding.loss_sum = e->rounding.rank_loss + c->ranks;
    cache->roundings = e;
    *out = &e->rounding;
    return LS_OK;
}

void ls_oracle_cache_forget_roundings(ls_oracle_cache *cache) {
    while (cache->roundings != NULL) {
        ls_rounding_entry *next = cache->roundings->next;
        free(cache->roundings->rounding.l2);
        free(cache->roundings);
        cache->roundings = next;
    }
}

ls_rc ls_oracle_cache_rounding(ls_oracle_cache *cache, const ls_case *c, size_t step, ls_rounding_kind kind,
                               const ls_rounding **out) {
    LS_TRY(ls_oracle_cache_use_model(cache, &c->model));
    uint64_t key[2];
    make_key(c, step, key);
    *out = find(cache, key, kind);
    if (*out != NULL) {
        return LS_OK;
    }
    draws d;
    LS_TRY(draws_open(c, kind == LS_ROUNDING_BOUND ? ALL_DRAWS : FEW_DRAWS, &d));
    ls_rc rc = draw_all(cache, c, step, &d);
    rc = rc == LS_OK ? remember(cache, c, key, kind, &d, out) : rc;
    draws_close(&d);
    return rc;
}
