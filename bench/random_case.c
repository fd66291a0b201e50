#include "bench/random_case.h"

#include <stdio.h>
#include <string.h>

#include "bench/random_network.h"
#include "impls/chunk.h"
#include "impls/impl.h"
#include "impls/options.h"
#include "impls/rank.h"
#include "impls/step_graph.h"

/* Multiplications of a case's forward passes: what the oracle computes in a tenth of a second. */
static const size_t most_products = 4000000;
enum { MOST_DEVICES = 8 };

enum { MOST_CHOICES = 32 };

/* How often a name of a table is drawn. */
typedef struct chance {
    const char *name;
    size_t weight;
} chance;

/* A name without a weight of its own is drawn as often as is usual, so that a table's new line is drawn too. */
static size_t weight_of(const char *name, const chance *chances, size_t usual) {
    for (; chances->name != NULL; chances++) {
        if (strcmp(chances->name, name) == 0) {
            return chances->weight;
        }
    }
    return usual;
}

static double pick(ls_draws *d, const double *values, size_t count) {
    return values[ls_draw(d, count)];
}
#define PICK(d, ...) pick(d, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

static void draw_impl(ls_draws *d, size_t present, ls_run *run) {
    static const chance chances[] = {{"single", 8}, {"dp", 26}, {"ddp", 46}, {NULL, 0}};
    size_t weights[MOST_CHOICES] = {0}, count = 0;
    for (; ls_impls[count] != NULL && count < MOST_CHOICES; count++) {
        weights[count] = weight_of(ls_impls[count]->name, chances, 20);
    }
    const ls_impl *impl = ls_impls[ls_draw_weighted(d, weights, count)];
    snprintf(run->impl, sizeof run->impl, "%s", impl->name);
    size_t most = present < MOST_DEVICES ? present : MOST_DEVICES;
    bool many = (impl->capabilities & LS_CAP_MULTI_DEVICE) != 0;
    run->devices = many ? ls_draw_between(d, 1, most) : 1;
    bool threads = (impl->capabilities & LS_CAP_RANK_THREADS) != 0;
    run->ranks = threads && ls_draw_percent(d, 50) ? LS_RANKS_THREADS : LS_RANKS_PROCESSES;
    run->dtype = ls_draw_percent(d, 50) ? LS_FLOAT32 : LS_FLOAT64;
    static const size_t caps[] = {1, 100, 1000, 4096, 10000, 65536};
    if ((impl->capabilities & LS_CAP_BUCKETS) != 0 && ls_draw_percent(d, 80)) {
        run->bucket_bytes = caps[ls_draw(d, sizeof caps / sizeof caps[0])];
    }
}

/* A sample's shape; every tenth is a vector. */
static ls_shape draw_shape(ls_draws *d) {
    static const size_t sides[] = {4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 28};
    enum { SIDES = sizeof sides / sizeof sides[0] };
    if (ls_draw_percent(d, 10)) {
        return (ls_shape){ls_draw_between(d, 12, 16), 1, 1};
    }
    size_t height = sides[ls_draw(d, SIDES)];
    size_t width = ls_draw_percent(d, 60) ? height : sides[ls_draw(d, SIDES)];
    return (ls_shape){ls_draw_percent(d, 60) ? 1 : ls_draw_between(d, 2, 4), height, width};
}

static void draw_loss(ls_draws *d, bool targets, ls_run *run) {
    static const size_t kinds[LS_LOSS_KIND_COUNT] = {
        [LS_LOSS_CROSS_ENTROPY] = 60, [LS_LOSS_MSE] = 25, [LS_LOSS_RMSE] = 15};
    static const size_t regression[LS_LOSS_KIND_COUNT] = {[LS_LOSS_MSE] = 60, [LS_LOSS_RMSE] = 40};
    run->loss.kind = (ls_loss_kind)ls_draw_weighted(d, targets ? regression : kinds, LS_LOSS_KIND_COUNT);
    run->loss.reduction = ls_draw_percent(d, 25) ? LS_LOSS_SUM : LS_LOSS_MEAN;
    if (run->loss.kind == LS_LOSS_CROSS_ENTROPY && ls_draw_percent(d, 25)) {
        run->loss.label_smoothing = PICK(d, 0.05, 0.1, 0.3);
    }
}

static void draw_sgd(ls_draws *d, ls_optimizer_options *o) {
    o->momentum = PICK(d, 0, 0.5, 0.9);
    o->nesterov = o->momentum > 0 && ls_draw_percent(d, 30);
    o->dampening = !o->nesterov && ls_draw_percent(d, 20) ? 0.1 : 0;
}

static void draw_optimizer(ls_draws *d, ls_run *run) {
    static const chance chances[] = {{"sgd", 55}, {NULL, 0}};
    ls_optimizer_options *o = &run->optimizer;
    size_t weights[MOST_CHOICES] = {0}, count = 0;
    for (; ls_optimizers[count] != NULL && count < MOST_CHOICES; count++) {
        weights[count] = weight_of(ls_optimizers[count]->name, chances, 15);
    }
    o->kind = ls_draw_weighted(d, weights, count);
    ls_run_optimizer_defaults(run);
    unsigned knows = ls_optimizer_of(o)->knows;
    if ((knows & LS_KNOWS_NESTEROV) != 0) {
        draw_sgd(d, o);
    } else if ((knows & LS_KNOWS_MOMENTUM) != 0) {
        o->momentum = PICK(d, 0, 0, 0.5);
    }
    o->amsgrad = (knows & LS_KNOWS_AMSGRAD) != 0 && ls_draw_percent(d, 30);
    o->centered = (knows & LS_KNOWS_CENTERED) != 0 && ls_draw_percent(d, 30);
    if ((knows & LS_KNOWS_BETAS) != 0 && ls_draw_percent(d, 30)) {
        o->beta1 = 0.8;
        o->beta2 = 0.99;
    }
    if ((knows & LS_KNOWS_ALPHA) != 0 && ls_draw_percent(d, 30)) {
        o->alpha = 0.9;
    }
    if (ls_draw_percent(d, 40)) {
        o->weight_decay = PICK(d, 1e-4, 1e-3, 0.1);
    }
    o->maximize = ls_draw_percent(d, 10);
    run->lr *= PICK(d, 0.1, 1, 1, 3);
    run->lr *= run->loss.reduction == LS_LOSS_SUM ? 0.1 : 1;
}

static void draw_schedule(ls_draws *d, ls_run *run) {
    static const size_t kinds[LS_SCHEDULE_COUNT] = {
        [LS_SCHEDULE_CONSTANT] = 70, [LS_SCHEDULE_STEP] = 20, [LS_SCHEDULE_COSINE] = 10};
    run->schedule.kind = (ls_schedule_kind)ls_draw_weighted(d, kinds, LS_SCHEDULE_COUNT);
    if (run->schedule.kind == LS_SCHEDULE_STEP) {
        run->schedule.step_size = ls_draw_between(d, 1, 2);
        run->schedule.gamma = PICK(d, 0.1, 0.5);
    }
    run->schedule.warmup_steps = ls_draw_percent(d, 15) ? ls_draw_between(d, 1, 3) : 0;
}

static void draw_normalize(ls_draws *d, size_t channels, ls_run *run) {
    if (!ls_draw_percent(d, 50)) {
        return;
    }
    ls_normalize *n = &run->normalize;
    run->normalize_given = true;
    n->channels = ls_draw_percent(d, 50) && channels <= LS_NORMALIZE_MAX_CHANNELS ? channels : 1;
    for (size_t c = 0; c < n->channels; c++) {
        n->mean[c] = PICK(d, 0.25, 0.375, 0.5);
        n->std[c] = PICK(d, 0.25, 0.3125, 0.5);
    }
}

/* Samples of the smallest share that a device of so many ranks has in any full or last step of an epoch; those without any do
 * not count. */
static size_t least_share_of(size_t length, size_t batch, size_t devices) {
    size_t steps[2] = {length < batch ? length : batch, length % batch};
    size_t least = SIZE_MAX, first = 0;
    for (size_t s = 0; s < 2; s++) {
        for (size_t device = 0; device < devices; device++) {
            size_t share = ls_chunk(steps[s], devices, device, &first);
            least = share > 0 && share < least ? share : least;
        }
    }
    return least;
}

/* The same for the run, and for `single` on its global batch, which verification makes its yardstick. */
static size_t least_share(const ls_run *run, size_t count) {
    size_t length = 0, batch = 0;
    size_t ranks = ls_impl_find(run->impl)->ranks(run->devices);
    if (ls_run_share(run, count, &length, &batch) != LS_OK) {
        return 0;
    }
    size_t own = least_share_of(length, batch, run->devices / ranks);
    size_t single = least_share_of(count, batch * ranks, 1);
    return own < single ? own : single;
}

/* Batch and size of the data set: the last batch of an epoch is mostly a smaller one, samples mostly do not divide by the
 * ranks, and dp's batches often leave devices with fewer samples or none. */
static size_t draw_samples(ls_draws *d, const ls_random_network *network, ls_run *run) {
    run->batch = ls_draw_between(d, 1, 6);
    run->steps = ls_draw_between(d, 2, 4);
    size_t fits = most_products / (network->products * run->steps * run->devices);
    run->batch = run->batch <= fits ? run->batch : (fits > 0 ? fits : 1);
    if (strcmp(run->impl, "dp") == 0 && ls_draw_percent(d, 50)) {
        run->global_batch = ls_draw_between(d, 1, run->batch * run->devices);
    } else if (ls_draw_percent(d, 20)) {
        run->global_batch = run->batch * run->devices;
    }
    size_t global = run->global_batch > 0 ? run->global_batch : run->batch * run->devices;
    size_t count = ls_draw_between(d, global, 4 * global);
    run->drop_last = ls_draw_percent(d, 25);
    /* one value of a channel has no variance: then even shares of at least two */
    if (network->least_plane == 1 && least_share(run, count) < 2) {
        run->batch = run->batch < 2 ? 2 : run->batch;
        run->global_batch = 0;
        count = run->batch * run->devices * ls_draw_between(d, 1, 3);
    }
    return count;
}

/* Steps of the run in which a rank has a full batch. */
static size_t full_steps(const ls_run *run, size_t count) {
    size_t length = 0, batch = 0;
    if (ls_run_share(run, count, &length, &batch) != LS_OK) {
        return 0;
    }
    size_t epoch = (length + batch - 1) / batch;
    size_t rest = run->steps % epoch;
    return run->steps / epoch * (length / batch) + (rest < length / batch ? rest : length / batch);
}

/* As graphs, where enough steps are full for one to be captured. */
static void draw_graph(ls_draws *d, size_t count, ls_run *run) {
    if ((ls_impl_find(run->impl)->capabilities & LS_CAP_GRAPH) == 0 || !ls_draw_percent(d, 25)) {
        return;
    }
    size_t steps = run->steps;
    run->steps += LS_GRAPH_WARMUP;
    run->graph = full_steps(run, count) > LS_GRAPH_WARMUP;
    run->steps = run->graph ? run->steps : steps;
}

void ls_random_case_draw(uint64_t seed, uint64_t index, size_t devices_present, ls_run *out) {
    ls_draws draws = ls_draws_of(seed, index);
    ls_draws *d = &draws;
    ls_run_defaults(out);
    draw_impl(d, devices_present, out);
    ls_shape shape = draw_shape(d);
    bool targets = ls_draw_percent(d, 15);
    size_t classes = ls_draw_between(d, targets ? 1 : 2, 10);
    /* a handful of parameters shows nothing */
    classes = ls_shape_features(shape) * classes < 32 ? 32 / ls_shape_features(shape) + 1 : classes;
    ls_random_network network;
    ls_random_network_draw(d, shape, classes, &network);
    memcpy(out->model, network.text, sizeof out->model);
    size_t count = draw_samples(d, &network, out);
    snprintf(out->data, sizeof out->data, "synthetic:%zu:%zux%zux%zu:%s%zu", count, shape.channels, shape.height,
             shape.width, targets ? "t" : "", classes);
    draw_loss(d, targets, out);
    draw_optimizer(d, out);
    draw_schedule(d, out);
    draw_normalize(d, shape.channels, out);
    out->no_shuffle = ls_draw_percent(d, 15);
    out->loader_threads = ls_draw(d, 3);
    out->seed = ls_draw(d, 1000000);
    bool buckets = (ls_impl_find(out->impl)->capabilities & LS_CAP_BUCKETS) != 0;
    out->reverse_buckets = buckets && ls_draw_percent(d, 15);
    draw_graph(d, count, out);
}
