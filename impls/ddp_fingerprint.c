#include "impls/ddp_fingerprint.h"

#include "reference/hash.h"

/* The options that decide order, batches, loss and update. */
static uint64_t hash_options(uint64_t hash, const ls_run *run) {
    const ls_optimizer_options *o = &run->optimizer;
    const ls_schedule *schedule = &run->schedule;
    uint64_t counts[] = {
        run->seed,
        run->batch,
        run->global_batch,
        run->drop_last,
        run->no_shuffle,
        run->epochs,
        run->steps,
        run->evaluate,
        run->loss.kind,
        run->log_every,
        run->loss.reduction,
        o->kind,
        o->nesterov,
        o->amsgrad,
        o->centered,
        o->maximize,
        schedule->kind,
        schedule->step_size,
        schedule->warmup_steps,
        run->resume[0] != '\0',
        run->reverse_buckets,
        run->graph,
        run->nccl_register, /* NCCL wants a buffer registered on all ranks or on none */
    };
    double reals[] = {
        run->lr,  run->loss.label_smoothing, o->momentum, o->dampening, o->weight_decay, o->beta1, o->beta2, o->eps,
        o->alpha, schedule->gamma,
    };
    hash = ls_hash(hash, counts, sizeof counts);
    return ls_hash(hash, reals, sizeof reals);
}

uint64_t ls_ddp_fingerprint(const ls_run *run, const ls_model *model, const ls_bucket_plan *plan) {
    uint64_t hash = hash_options(ls_hash(LS_HASH_SEED, model->name, sizeof model->name), run);
    for (size_t i = 0; i < model->param_tensors; i++) {
        const ls_param *param = &model->params[i];
        hash = ls_hash(hash, param->shape, param->dims * sizeof param->shape[0]);
        hash = ls_hash(hash, &param->offset, sizeof param->offset);
    }
    for (size_t i = 0; i < model->layer_count; i++) {
        const ls_layer *l = &model->layers[i];
        size_t sizes[] = {(size_t)l->kind, l->kernel, l->stride, l->padding};
        double reals[] = {l->p, l->eps, l->momentum};
        hash = ls_hash(hash, sizes, sizeof sizes);
        hash = ls_hash(hash, reals, sizeof reals);
    }
    for (size_t i = 0; i < plan->count; i++) {
        hash = ls_hash(hash, &plan->buckets[i].offset, sizeof plan->buckets[i].offset);
        hash = ls_hash(hash, &plan->buckets[i].count, sizeof plan->buckets[i].count);
    }
    uint64_t dtype = (uint64_t)run->dtype;
    return ls_hash(hash, &dtype, sizeof dtype);
}
