/* Uploads: what is copied beside the kernels and what waits for them, sizes, and the bits of a training with and without copy
 * engines. */
#include "replica_fixture.h"

#include <errno.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reference/trainer.h"
#include "reference/upload.h"

enum { BYTES = 1000, UPLOADS = 5 };

/* Pinned memory of UPLOADS arrays, array u all of value u + 1, one array on the device, and what it held after each upload. */
typedef struct streams {
    cudaStream_t compute, copies;
    unsigned char *host, *device, *seen;
    ls_upload upload;
} streams;

static void streams_open(streams *s, bool staged, size_t bytes) {
    *s = (streams){0};
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaStreamCreateWithFlags(&s->compute, cudaStreamNonBlocking));
    s->copies = s->compute;
    if (staged) {
        CUDA_OK(cudaStreamCreateWithFlags(&s->copies, cudaStreamNonBlocking));
    }
    CUDA_OK(cudaMalloc((void **)&s->device, BYTES));
    CUDA_OK(cudaMallocHost((void **)&s->host, UPLOADS * BYTES));
    CUDA_OK(cudaMallocHost((void **)&s->seen, UPLOADS * BYTES));
    for (int u = 0; u < UPLOADS; u++) {
        memset(s->host + (size_t)u * BYTES, u + 1, BYTES);
    }
    OK(ls_upload_open(&s->upload, s->compute, s->copies, bytes));
}

static void streams_close(streams *s) {
    ls_rc rc = LS_OK;
    ls_upload_close(&s->upload, &rc);
    OK(rc);
    ls_upload_close(&s->upload, &rc); /* zeros: a no-op */
    OK(rc);
    CUDA_OK(cudaFree(s->device));
    CUDA_OK(cudaFreeHost(s->host));
    CUDA_OK(cudaFreeHost(s->seen));
    if (s->copies != s->compute) {
        CUDA_OK(cudaStreamDestroy(s->copies));
    }
    CUDA_OK(cudaStreamDestroy(s->compute));
}

static void upload(streams *s, size_t u) {
    ls_upload_part part = {s->device, s->host + u * BYTES, BYTES};
    OK(ls_upload_run(&s->upload, &part, 1));
    CUDA_OK(cudaMemcpyAsync(s->seen + u * BYTES, s->device, BYTES, cudaMemcpyDeviceToHost, s->compute));
}

static void check_seen(const streams *s) {
    CUDA_OK(cudaStreamSynchronize(s->compute));
    for (size_t i = 0; i < UPLOADS * BYTES; i++) {
        assert_int_equal(s->seen[i], i / BYTES + 1);
    }
}

static void hold(void *gate) {
    while (sem_wait(gate) != 0 && errno == EINTR) {
    }
}

/* While the stream that computes is held, as many uploads are read from the host as there are stages; that they are is shown by
 * a wait for the stream of copies, which would not end otherwise. The next ones wait for a stage, and all arrive in order. */
static void test_copies_run_beside_kernels(void **state) {
    (void)state;
    streams s;
    sem_t gate;
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    streams_open(&s, true, ls_upload_room(BYTES));
    CUDA_OK(cudaLaunchHostFunc(s.compute, hold, &gate));
    for (size_t u = 0; u < UPLOADS; u++) {
        upload(&s, u);
        if (u + 1 == LS_UPLOAD_STAGES) {
            CUDA_OK(cudaStreamSynchronize(s.copies));
            memset(s.host, 0, LS_UPLOAD_STAGES * BYTES); /* the host's memory is free again */
        }
    }
    assert_int_equal(cudaStreamQuery(s.copies), cudaErrorNotReady);
    (void)cudaGetLastError();
    assert_int_equal(sem_post(&gate), 0);
    check_seen(&s);
    streams_close(&s);
    (void)sem_destroy(&gate);
}

static void test_one_stream(void **state) {
    (void)state;
    streams s;
    streams_open(&s, false, 0);
    for (size_t u = 0; u < UPLOADS; u++) {
        upload(&s, u);
    }
    check_seen(&s);
    streams_close(&s);
}

/* Arrays lie apart in a stage, and what does not fit is refused until there is room for it, with nothing written. */
static void test_room(void **state) {
    (void)state;
    streams s;
    streams_open(&s, true, ls_upload_room(1) + ls_upload_room(257));
    for (size_t u = 0; u < UPLOADS; u++) {
        const unsigned char *from = s.host + u * BYTES;
        const ls_upload_part parts[] = {
            {s.device, from, 1}, {s.device + 1, from + 1, 257}, {s.device + 258, from + 258, BYTES - 258}};
        if (u == 1) {
            assert_int_equal(ls_upload_run(&s.upload, parts, 3), LS_BAD_INPUT);
            OK(ls_upload_reserve(&s.upload, ls_upload_room(1) + ls_upload_room(257) + ls_upload_room(BYTES - 258)));
            OK(ls_upload_reserve(&s.upload, 1)); /* room stays */
        }
        OK(ls_upload_run(&s.upload, parts, u == 0 ? 2 : 3));
        CUDA_OK(cudaMemcpyAsync(s.seen + u * BYTES, s.device, BYTES, cudaMemcpyDeviceToHost, s.compute));
    }
    CUDA_OK(cudaStreamSynchronize(s.compute));
    memset(s.seen + 258, 1, BYTES - 258); /* not uploaded the first time */
    check_seen(&s);
    streams_close(&s);
}

/* What a training leaves behind. */
typedef struct outcome {
    ls_rc rc;
    int engines;
    bool apart; /* batches are copied on a stream of their own */
    double loss, correct;
    float params[4096];
} outcome;

static ls_rc evaluate(ls_replica *replica, const ls_dataset *data, outcome *o) {
    ls_batch samples = {.count = data->count,
                        .pixels = data->pixels,
                        .values = data->values,
                        .labels = data->labels,
                        .targets = data->targets,
                        .target_count = data->target_count};
    return ls_replica_evaluate(replica, &samples, &o->loss, &o->correct);
}

/* Batches of several sizes, an empty one too, and an evaluation between them and at the end. */
static ls_rc train(ls_trainer *trainer, const ls_dataset *data, outcome *o) {
    static const size_t counts[] = {8, 8, 8, 3, 0, 8, 8, 1};
    ls_replica *replica = ls_trainer_replica(trainer);
    size_t features = data->channels * data->height * data->width, first = 0;
    ls_batch all = {.pixels = data->pixels,
                    .values = data->values,
                    .labels = data->labels,
                    .targets = data->targets,
                    .target_count = data->target_count};
    LS_CUDA(cudaDeviceGetAttribute(&o->engines, cudaDevAttrAsyncEngineCount, 0));
    o->apart = ls_replica_input_stream(replica) != ls_replica_stream(replica);
    for (size_t i = 0; i < 3 * sizeof counts / sizeof counts[0]; i++) {
        ls_batch batch = ls_batch_part(&all, features, first, counts[i % 8]);
        LS_TRY(ls_trainer_step(trainer, &batch));
        first = (first + batch.count) % (data->count - 8);
        if (i == 10) {
            LS_TRY(evaluate(replica, data, o));
        }
    }
    LS_TRY(evaluate(replica, data, o));
    return ls_replica_read_params(replica, o->params);
}

static ls_rc run_training(const char *source, ls_loss_kind loss, outcome *o) {
    ls_dataset data;
    ls_model model;
    ls_model_spec spec = {.name = "small",
                          .layer_count = 3,
                          .layers = {{.kind = LS_LAYER_CONV, .name = "conv", .out = 3, .kernel = 3},
                                     {.kind = LS_LAYER_FLATTEN, .name = "flatten"},
                                     {.kind = LS_LAYER_LINEAR, .name = "fc"}}};
    char error[256];
    LS_TRY(ls_dataset_open(source, LS_SPLIT_TRAIN, &data));
    spec.channels = data.channels;
    spec.height = data.height;
    spec.width = data.width;
    spec.classes = spec.layers[2].out = data.target_count > 0 ? data.target_count : data.classes;
    if (ls_model_resolve(&spec, &model, error, sizeof error) != 0 || model.param_count > 4096) {
        return LS_BAD_INPUT;
    }
    ls_trainer_options options = {.replica = {.max_batch = 8,
                                              .normalize = {1, {0.25}, {0.5}},
                                              .lr = 0.005,
                                              .loss = {.kind = loss},
                                              .optimizer = {.momentum = 0.5}},
                                  .seed = 42};
    ls_trainer *trainer = NULL;
    LS_TRY(ls_trainer_open(&model, &options, &trainer));
    ls_rc rc = train(trainer, &data, o);
    ls_trainer_close(trainer);
    ls_dataset_close(&data);
    return rc;
}

/* In a process of its own: virtual GPUs read their settings once. */
static void train_with(const char *engines, const char *source, ls_loss_kind loss, outcome *o) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        *o = (outcome){0};
        (void)setenv("LOCKSTEP_VGPU_COPY_ENGINES", engines, 1);
        o->rc = run_training(source, loss, o);
        const char *at = (const char *)o, *end = at + sizeof *o;
        ssize_t written = 0;
        while (at < end && (written = write(ends[1], at, (size_t)(end - at))) > 0) {
            at += written;
        }
        _exit(at == end ? 0 : 1);
    }
    close(ends[1]);
    size_t got = 0;
    ssize_t more = 0;
    while ((more = read(ends[0], (char *)o + got, sizeof *o - got)) > 0) {
        got += (size_t)more;
    }
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(got, sizeof *o);
    OK(o->rc);
    assert_int_equal(o->apart, o->engines > 0);
    if (ls_platform_shared_cores() > 0) { /* virtual GPUs: the setting is what they have */
        assert_int_equal(o->engines, atoi(engines));
    }
}

static void test_same_bits_with_copy_engines(void **state) {
    (void)state;
    static const struct {
        const char *source;
        ls_loss_kind loss;
    } cases[] = {{"synthetic:70:1x9x7:4", LS_LOSS_CROSS_ENTROPY}, {"synthetic:70:3x9x7:t5", LS_LOSS_MSE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static outcome without, with;
        train_with("0", cases[i].source, cases[i].loss, &without);
        train_with("1", cases[i].source, cases[i].loss, &with);
        assert_true(with.loss > 0 && with.loss < 1000); /* not diverged */
        assert_true(with.loss == without.loss);
        assert_true(with.correct == without.correct);
        assert_memory_equal(with.params, without.params, sizeof with.params);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_same_bits_with_copy_engines), /* first: it forks, which a process that uses a GPU must not */
        cmocka_unit_test(test_copies_run_beside_kernels),
        cmocka_unit_test(test_one_stream),
        cmocka_unit_test(test_room),
    };
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
