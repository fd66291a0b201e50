#include "impls/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impls/impl.h"
#include "impls/options_table.h"
#include "impls/rank.h"
#include "impls/step_graph.h"
#include "reference/batcher.h"
#include "reference/model.h"

#define TRAINING   (LS_COMMAND_TRAIN | LS_COMMAND_RANK)
#define RUNS       (TRAINING | LS_COMMAND_VERIFY | LS_COMMAND_SWEEP)
#define EVALUATED  (RUNS | LS_COMMAND_EVAL)
#define RUN(field) offsetof(ls_run, field)

const ls_option ls_option_table[] = {
    {"--impl", "NAME,...|all", EVALUATED, "implementations: {impls}", ls_option_parse_impls, ls_option_format_text,
     RUN(impl), 0, 0},
    {"--devices", "N,...", EVALUATED, "device counts; more than 1: {multi}", ls_option_parse_devices,
     ls_option_format_size, RUN(devices), 1, 1024},
    {"--share-devices", NULL, TRAINING | LS_COMMAND_VERIFY, "{shared}: several devices of a run on one of the host",
     ls_option_parse_flag, ls_option_format_flag, RUN(share_devices), 0, 0},
    {"--ranks", "processes|threads", EVALUATED, "what a rank is, of {threads}; verify and sweep take both as a list",
     ls_option_parse_ranks, ls_option_format_ranks, 0, 0, 0},
    {"--model", "NAME|SPEC|FILE,...|all", EVALUATED, "networks: {models}, a spec or its file", ls_option_parse_models,
     ls_option_format_text, RUN(model), 0, 0},
    {"--data", "SOURCE", EVALUATED, "{data}; see lockstep data", ls_option_parse_data, ls_option_format_text, RUN(data),
     0, 0},
    {"--drop-last", NULL, RUNS, "ranks drop the samples that are too few for all (default: some are taken twice)",
     ls_option_parse_flag, ls_option_format_flag, RUN(drop_last), 0, 0},
    {"--no-shuffle", NULL, RUNS, "samples in the order of the data set", ls_option_parse_flag, ls_option_format_flag,
     RUN(no_shuffle), 0, 0},
    {"--loader-threads", "N", RUNS, "threads of a rank that make batches ahead; 0: in the step", ls_option_parse_size,
     ls_option_format_size, RUN(loader_threads), 0, LS_BATCHER_MAX_THREADS},
    {"--normalize", "none|MEAN,STD", EVALUATED,
     "of each channel: M1/M2/M3,S1/S2/S3; none: pixels scaled to 0..1 only (default: as the network's source)",
     ls_option_parse_normalize, ls_option_format_normalize, 0, 0, 0},
    {"--dtype", "float32|float64", EVALUATED, "element type; verify takes both as a list", ls_option_parse_dtypes,
     ls_option_format_dtype, 0, 0, 0},
    {"--math", "exact|fast|im2col", EVALUATED,
     "of layers: verified algorithms, the fastest as measured, or the second engine", ls_option_parse_math,
     ls_option_format_math, 0, 0, 0},
    {"--batch", "N", EVALUATED, "samples a device and step", ls_option_parse_size, ls_option_format_size, RUN(batch), 1,
     1 << 20},
    {"--global-batch", "N", RUNS, "samples a step over all devices, in place of --batch; 0: batch x devices",
     ls_option_parse_size, ls_option_format_size, RUN(global_batch), 0, 1 << 24},
    {"--epochs", "N", TRAINING, "epochs; 0: as the network's source", ls_option_parse_size, ls_option_format_size,
     RUN(epochs), 0, 1000000},
    {"--steps", "N", RUNS, "stop after so many steps (sweep: timed steps a point, rounded up to six rounds)",
     ls_option_parse_steps, ls_option_format_size, RUN(steps), 0, 1e15},
    {"--warmup", "N", LS_COMMAND_SWEEP | LS_COMMAND_RANK, "untimed steps before the timed ones", ls_option_parse_size,
     ls_option_format_size, RUN(warmup), 0, 1000000},
    {"--loss", "cross-entropy|mse|rmse", EVALUATED,
     "mse and rmse against float targets, or the labels' one-hot vectors", ls_option_parse_loss, ls_option_format_loss,
     0, 0, 0},
    {"--reduction", "mean|sum", RUNS, "of the loss over a rank's batch (dp: the whole batch)",
     ls_option_parse_reduction, ls_option_format_reduction, 0, 0, 0},
    {"--label-smoothing", "E", EVALUATED, "of cross entropy", ls_option_parse_double, ls_option_format_double,
     RUN(loss.label_smoothing), 0, 1},
    {"--optimizer", "NAME", RUNS, "as PyTorch's: {optimizers}", ls_option_parse_optimizer, ls_option_format_optimizer,
     0, 0, 0},
    {"--lr", "X", RUNS, "learning rate (default: {defaults})", ls_option_parse_double, ls_option_format_double, RUN(lr),
     0, 1e6},
    {"--momentum", "X", RUNS, "share of the step before that goes on (default: {defaults})", ls_option_parse_double,
     ls_option_format_hyper, RUN(optimizer.momentum), 0, 1},
    {"--dampening", "X", RUNS, "of the momentum (default: {defaults})", ls_option_parse_double, ls_option_format_hyper,
     RUN(optimizer.dampening), 0, 1},
    {"--nesterov", NULL, RUNS, "{owners}: Nesterov's momentum", ls_option_parse_flag, ls_option_format_flag,
     RUN(optimizer.nesterov), 0, 0},
    {"--weight-decay", "X", RUNS, "L2 penalty; adamw: decoupled (default: {defaults})", ls_option_parse_double,
     ls_option_format_hyper, RUN(optimizer.weight_decay), 0, 1e6},
    {"--betas", "B1,B2", RUNS, "of the mean gradient and its square (default: {defaults})", ls_option_parse_betas,
     ls_option_format_betas, 0, 0, 0},
    {"--eps", "X", RUNS, "beside the root (default: {defaults})", ls_option_parse_double, ls_option_format_hyper,
     RUN(optimizer.eps), 0, 1e6},
    {"--amsgrad", NULL, RUNS, "{owners}: the largest second moment so far", ls_option_parse_flag, ls_option_format_flag,
     RUN(optimizer.amsgrad), 0, 0},
    {"--alpha", "X", RUNS, "of the squared gradient (default: {defaults})", ls_option_parse_double,
     ls_option_format_hyper, RUN(optimizer.alpha), 0, 1},
    {"--centered", NULL, RUNS, "{owners}: by the gradient's variance", ls_option_parse_flag, ls_option_format_flag,
     RUN(optimizer.centered), 0, 0},
    {"--maximize", NULL, RUNS, "climb instead of descend", ls_option_parse_flag, ls_option_format_flag,
     RUN(optimizer.maximize), 0, 0},
    {"--lr-schedule", "constant|step|cosine", RUNS, "learning rate by epoch, as StepLR and CosineAnnealingLR",
     ls_option_parse_schedule, ls_option_format_schedule, 0, 0, 0},
    {"--step-size", "N", RUNS, "step: epochs between two reductions", ls_option_parse_size,
     ls_option_format_step_schedule, RUN(schedule.step_size), 1, 1000000},
    {"--gamma", "X", RUNS, "step: factor of a reduction (default 0.1)", ls_option_parse_double,
     ls_option_format_step_schedule, RUN(schedule.gamma), 0, 1e6},
    {"--warmup-steps", "N", RUNS, "steps in which the learning rate rises from 0", ls_option_parse_size,
     ls_option_format_size, RUN(schedule.warmup_steps), 0, 1e15},
    {"--warmup", "N", LS_COMMAND_TRAIN, "the same as --warmup-steps", ls_option_parse_size, NULL,
     RUN(schedule.warmup_steps), 0, 1e15},
    {"--baseline", NULL, LS_COMMAND_TRAIN, "print the speed-up over one device for short runs and one device too",
     ls_option_parse_flag, ls_option_format_flag, RUN(baseline), 0, 0},
    {"--no-baseline", NULL, LS_COMMAND_TRAIN, "do not measure one device afterwards", ls_option_parse_flag,
     ls_option_format_flag, RUN(no_baseline), 0, 0},
    {"--seed", "N", RUNS, "initial values and order of samples", ls_option_parse_seed, ls_option_format_seed, RUN(seed),
     0, 0},
    {"--log-every", "N", TRAINING, "a log line every so many batches; 0: none", ls_option_parse_size,
     ls_option_format_size, RUN(log_every), 0, 1e15},
    {"--bucket-bytes", "N[KiB|MiB],...", RUNS, "cap of a gradient bucket; verify and sweep take a list",
     ls_option_parse_buckets, ls_option_format_size, RUN(bucket_bytes), 1, 1e15},
    {"--mpi-buffers", "host|device|auto", RUNS, "mpi: where MPI reads gradients; auto: the device where that works",
     ls_option_parse_mpi_buffers, ls_option_format_mpi_buffers, 0, 0, 0},
    {"--nccl-register", NULL, RUNS,
     "{register}: gradients lie in memory of ncclMemAlloc, registered with the communicator", ls_option_parse_flag,
     ls_option_format_flag, RUN(nccl_register), 0, 0},
    {"--reverse-buckets", NULL, RUNS, "reduce buckets after backward, the last first: an order without overlap",
     ls_option_parse_flag, ls_option_format_flag, RUN(reverse_buckets), 0, 0},
    {"--graph", NULL, RUNS, "{graph}: full steps as CUDA graphs, captured once two have run", ls_option_parse_flag,
     ls_option_format_flag, RUN(graph), 0, 0},
    {"--timeout", "S", EVALUATED, "seconds without progress of a rank until the run is ended", ls_option_parse_double,
     ls_option_format_double, RUN(timeout), 0.1, 1e6},
    {"--scaling", "weak|strong", LS_COMMAND_SWEEP, "--batch (weak) or the global batch (strong) stays fixed; or both",
     ls_option_parse_scaling, NULL, 0, 0, 0},
    {"--random", "N", LS_COMMAND_VERIFY, "N correct runs drawn from --seed in place of the lists: no false alarms",
     ls_option_parse_random, NULL, 0, 1, 1e9},
    {"--case", "K", LS_COMMAND_VERIFY, "the first of --random's cases", ls_option_parse_case, NULL, 0, 0, 1e9},
    {"--determinism", NULL, LS_COMMAND_VERIFY, "bits compared over runs, ranks, world sizes, buckets, implementations",
     ls_option_parse_determinism, NULL, 0, 0, 0},
    {"--save", "FILE", TRAINING, "parameters after the last step, FILE.pth or FILE.safetensors", ls_option_parse_text,
     ls_option_format_text, RUN(save), 0, 0},
    {"--save-grads", "FILE", TRAINING, "gradients of the last step, of all ranks, under the parameters' names",
     ls_option_parse_text, ls_option_format_text, RUN(save_grads), 0, 0},
    {"--load", "FILE", TRAINING | LS_COMMAND_EVAL, "parameters to start from: PyTorch's .pth, or .safetensors",
     ls_option_parse_text, ls_option_format_text, RUN(load), 0, 0},
    {"--checkpoint", "FILE", TRAINING, "all that --resume needs, written after each whole epoch, FILE.safetensors",
     ls_option_parse_text, ls_option_format_text, RUN(checkpoint), 0, 0},
    {"--resume", "FILE", TRAINING, "goes on from a file of --checkpoint, up to --epochs in all", ls_option_parse_text,
     ls_option_format_text, RUN(resume), 0, 0},
    {"--json", "FILE", LS_COMMAND_TRAIN | LS_COMMAND_VERIFY | LS_COMMAND_INFO | LS_COMMAND_EVAL, "results as JSON",
     ls_option_parse_text, ls_option_format_text, RUN(json), 0, 0},
    {"-o", "FILE|DIR", LS_COMMAND_SWEEP | LS_COMMAND_REPORT, "sweep: result file; report: folder",
     ls_option_parse_output, NULL, 0, 0, 0},
    {"--run-dir", "DIR", LS_COMMAND_RANK, "the run's private folder", ls_option_parse_text, ls_option_format_text,
     RUN(run_dir), 0, 0},
    {"--capture", NULL, LS_COMMAND_RANK, "record what verification needs", ls_option_parse_flag, ls_option_format_flag,
     RUN(capture), 0, 0},
    {"--evaluate", NULL, LS_COMMAND_RANK, "test accuracy after each epoch", ls_option_parse_flag, ls_option_format_flag,
     RUN(evaluate), 0, 0},
    {"--evaluate-only", NULL, LS_COMMAND_RANK, "no training", ls_option_parse_flag, ls_option_format_flag,
     RUN(evaluate_only), 0, 0},
    {"--time-steps", NULL, TRAINING, "ranks meet before every step; its seconds, without its input, go to --json",
     ls_option_parse_flag, ls_option_format_flag, RUN(time_steps), 0, 0},
    {NULL, NULL, 0, NULL, NULL, NULL, 0, 0, 0},
};

void ls_run_defaults(ls_run *run) {
    *run = (ls_run){
        .impl = "ddp",
        .devices = 2,
        .model = "seed-cnn",
        .data = "fashion-mnist",
        .dtype = LS_FLOAT32,
        .batch = 64,
        .loader_threads = 1,
        .steps = SIZE_MAX,
        .schedule = {.gamma = LS_GAMMA_DEFAULT},
        .log_every = 10,
        .bucket_bytes = LS_BUCKET_BYTES_DEFAULT,
        .timeout = 60,
    };
    ls_run_optimizer_defaults(run);
}

enum {
    VERIFY_STEPS = 3,
    VERIFY_GRAPH_STEPS =
        LS_GRAPH_WARMUP + 3, /* the step that is captured, and two in which nothing but the graph runs */
};

/* What a command does without any option. */
static ls_rc set_command_defaults(unsigned command, ls_options *options) {
    *options = (ls_options){0};
    ls_run_defaults(&options->run);
    const char *impl = "ddp", *devices = "2", *model = "seed-cnn", *dtype = "float32", *bucket = "25MiB";
    const char *ranks = "processes", *scaling = "weak";
    if (command == LS_COMMAND_VERIFY) {
        impl = model = "all", devices = "1,2,4,8", dtype = "float64,float32", bucket = "4KiB,16KiB,25MiB";
        ranks = "processes,threads";
        options->run.batch = 16; /* the oracle computes every sample in plain C */
        options->run.steps = VERIFY_STEPS;
        ls_run_command_defaults(command, &options->run);
    } else if (command == LS_COMMAND_SWEEP) {
        impl = "all", devices = "1,2", scaling = "weak,strong";
        options->run.steps = 60;
        options->run.warmup = 5;
        snprintf(options->output, sizeof options->output, "results.jsonl");
    } else if (command == LS_COMMAND_EVAL) {
        impl = "single", devices = "1";
    } else if (command == LS_COMMAND_REPORT) {
        snprintf(options->output, sizeof options->output, "report");
    }
    LS_TRY(ls_option_parse_impls(&(ls_option){.flag = "--impl"}, impl, options));
    LS_TRY(ls_option_parse_devices(&(ls_option){.flag = "--devices"}, devices, options));
    LS_TRY(ls_option_parse_models(&(ls_option){.flag = "--model"}, model, options));
    LS_TRY(ls_option_parse_dtypes(&(ls_option){.flag = "--dtype"}, dtype, options));
    LS_TRY(ls_option_parse_buckets(&(ls_option){.flag = "--bucket-bytes"}, bucket, options));
    LS_TRY(ls_option_parse_ranks(&(ls_option){.flag = "--ranks"}, ranks, options));
    options->devices_given = false;
    return ls_option_parse_scaling(&(ls_option){.flag = "--scaling"}, scaling, options);
}

void ls_options_fit_devices(ls_options *options, size_t present) {
    size_t kept = 0;
    for (size_t i = 0; i < options->device_count && !options->devices_given; i++) {
        if (options->devices[i] <= present) {
            options->devices[kept++] = options->devices[i];
        }
    }
    options->device_count = kept > 0 ? kept : options->device_count;
}

/* A command that makes one run takes one device for an implementation that has no more, where no count was given. */
static void fit_impl(unsigned command, ls_options *options) {
    const ls_impl *impl = ls_impl_find(options->run.impl);
    bool one_run = (command & (TRAINING | LS_COMMAND_EVAL)) != 0;
    if (one_run && !options->devices_given && impl != NULL && (impl->capabilities & LS_CAP_MULTI_DEVICE) == 0) {
        options->run.devices = options->devices[0] = 1;
    }
}

/* The row of command with this flag, else of another command. */
static const ls_option *find_option(unsigned command, const char *flag, size_t length) {
    const ls_option *found = NULL;
    for (const ls_option *option = ls_option_table; option->flag != NULL; option++) {
        if (strlen(option->flag) == length && strncmp(option->flag, flag, length) == 0) {
            found = found == NULL || (option->commands & command) != 0 ? option : found;
        }
    }
    return found;
}

/* One option and its value; *used: how many words it took. */
static ls_rc parse_option(unsigned command, int count, char **words, ls_options *options, int *used) {
    const char *equals = strncmp(words[0], "--", 2) == 0 ? strchr(words[0], '=') : NULL;
    size_t length = equals != NULL ? (size_t)(equals - words[0]) : strlen(words[0]);
    const ls_option *option = find_option(command, words[0], length);
    if (option == NULL) {
        return ls_fail(LS_BAD_INPUT, "unknown option '%.*s'; --help lists the options", (int)length, words[0]);
    }
    if ((option->commands & command) == 0) {
        return ls_fail(LS_BAD_INPUT, "option '%s' does not belong to this command; --help lists those that do",
                       option->flag);
    }
    *used = 1;
    const char *value = equals != NULL ? equals + 1 : NULL;
    if (option->argument == NULL) {
        return value == NULL ? option->parse(option, "", options)
                             : ls_fail(LS_BAD_INPUT, "option '%s' takes no value, found '%s'", option->flag, value);
    }
    if (value == NULL) {
        if (count < 2) {
            return ls_fail(LS_BAD_INPUT, "option '%s' needs a value: %s", option->flag, option->argument);
        }
        value = words[1];
        *used = 2;
    }
    return option->parse(option, value, options);
}

/* Commands that train once take one value where harnesses take a list. */
static ls_rc check_single_values(unsigned command, const ls_options *options) {
    if ((command & (TRAINING | LS_COMMAND_EVAL)) == 0) {
        return LS_OK;
    }
    const struct {
        const char *flag;
        size_t count;
    } lists[] = {{"--impl", options->impl_count},           {"--devices", options->device_count},
                 {"--model", options->model_count},         {"--dtype", options->dtype_count},
                 {"--bucket-bytes", options->bucket_count}, {"--ranks", options->ranks_count}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i].count > 1) {
            return ls_fail(LS_BAD_INPUT,
                           "option '%s' has %zu values, expected one: train makes one run; sweep and verify "
                           "take lists",
                           lists[i].flag, lists[i].count);
        }
    }
    return LS_OK;
}

ls_rc ls_options_parse(unsigned command, int argc, char **argv, ls_options *options, bool *help) {
    *help = false;
    LS_TRY(set_command_defaults(command, options));
    ls_options_training_begin(&options->run);
    for (int i = 0; i < argc;) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            ls_options_print_help(command);
            *help = true;
            return LS_OK;
        }
        if (argv[i][0] != '-' && command == LS_COMMAND_REPORT && options->input[0] == '\0') {
            if (snprintf(options->input, sizeof options->input, "%s", argv[i]) >= (int)sizeof options->input) {
                return ls_fail(LS_BAD_INPUT, "the path of the result file is longer than %d bytes", LS_PATH_SIZE - 1);
            }
            i++;
            continue;
        }
        if (argv[i][0] != '-') {
            return ls_fail(LS_BAD_INPUT, "unexpected word '%s'; --help lists the options", argv[i]);
        }
        int used = 0;
        LS_TRY(parse_option(command, argc - i, argv + i, options, &used));
        i += used;
    }
    if (command == LS_COMMAND_VERIFY && !options->steps_given && (options->run.graph || options->determinism)) {
        options->run.steps = VERIFY_GRAPH_STEPS;
    }
    fit_impl(command, options);
    LS_TRY(ls_options_training_finish(command, &options->run));
    LS_TRY(check_single_values(command, options));
    return ls_options_check_files(command, options);
}

void ls_options_print_help(unsigned command) {
    ls_options options;
    if (set_command_defaults(command, &options) != LS_OK) {
        return;
    }
    printf("options:\n");
    for (const ls_option *option = ls_option_table; option->flag != NULL; option++) {
        if ((option->commands & command) == 0) {
            continue;
        }
        char name[64];
        snprintf(name, sizeof name, "%s %s", option->flag, option->argument != NULL ? option->argument : "");
        char text[512];
        ls_option_help(command, option, text, sizeof text);
        printf("  %-30s %s", name, text);
        if (option->format != NULL) {
            char value[LS_MODEL_TEXT_SIZE];
            option->format(option, &options.run, value, sizeof value);
            if (value[0] != '\0') {
                printf(" [%s]", value);
            }
        }
        printf("\n");
    }
}

/* Whether the option must be said: it differs from what the command does without it, or the command takes a list there. */
static bool must_say(const ls_option *option, unsigned command, const ls_run *run, const ls_run *defaults, char *value,
                     size_t size) {
    static const char *const always[] = {"--impl", "--devices"};
    static const char *const lists[] = {"--ranks", "--model", "--dtype", "--bucket-bytes"};
    if ((option->commands & command) == 0 || option->format == NULL) {
        return false;
    }
    char usual[LS_MODEL_TEXT_SIZE];
    option->format(option, defaults, usual, sizeof usual);
    option->format(option, run, value, size);
    bool said = strcmp(value, usual) != 0;
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++) {
        said = said || strcmp(option->flag, always[i]) == 0;
    }
    bool harness = (command & (LS_COMMAND_VERIFY | LS_COMMAND_SWEEP)) != 0;
    for (size_t i = 0; harness && i < sizeof lists / sizeof lists[0]; i++) {
        said = said || strcmp(option->flag, lists[i]) == 0;
    }
    said = said || (option->format == ls_option_format_optimizer && run->optimizer.kind != 0);
    return said && value[0] != '\0';
}

static const char *command_name(unsigned command) {
    return command == LS_COMMAND_RANK     ? "rank"
           : command == LS_COMMAND_VERIFY ? "verify"
           : command == LS_COMMAND_SWEEP  ? "sweep"
           : command == LS_COMMAND_EVAL   ? "eval"
                                          : "train";
}

char **ls_options_argv(const char *program, unsigned command, const ls_run *run) {
    enum { WORDS = 128, BYTES = 16 * 1024 };
    char **words = ls_calloc(1, WORDS * sizeof(char *) + BYTES, "a command line");
    if (words == NULL) {
        return NULL;
    }
    char *text = (char *)(words + WORDS), *end = text + BYTES;
    size_t count = 0;
    char value[LS_MODEL_TEXT_SIZE];
    ls_options defaults;
    if (set_command_defaults(command, &defaults) != LS_OK) {
        free(words);
        return NULL;
    }
    defaults.run.optimizer.kind = run->optimizer.kind; /* other hyper-parameters are usual with another optimizer */
    if (command == LS_COMMAND_VERIFY && run->graph) {
        defaults.run.steps = VERIFY_GRAPH_STEPS;
    }
    ls_run_command_defaults(command, &defaults.run);
    const char *first[2] = {program, command_name(command)};
    for (size_t i = 0; i < 2; i++) {
        words[count++] = text;
        text += snprintf(text, (size_t)(end - text), "%s", first[i]) + 1;
    }
    for (const ls_option *option = ls_option_table; option->flag != NULL; option++) {
        if (!must_say(option, command, run, &defaults.run, value, sizeof value)) {
            continue;
        }
        words[count++] = text;
        text += snprintf(text, (size_t)(end - text), "%s", option->flag) + 1;
        if (option->argument != NULL) {
            words[count++] = text;
            text += snprintf(text, (size_t)(end - text), "%s", value) + 1;
        }
    }
    return words;
}

void ls_options_line(const char *program, unsigned command, const ls_run *run, char *text, size_t size) {
    text[0] = '\0';
    char **words = ls_options_argv(program, command, run);
    if (words == NULL) {
        return;
    }
    size_t at = 0;
    for (size_t i = 0; words[i] != NULL && at < size; i++) {
        bool plain =
            words[i][0] != '\0' && words[i][strspn(words[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                             "0123456789-_=+.,:/@%")] == '\0';
        int more = snprintf(text + at, size - at, plain ? "%s%s" : "%s'%s'", i > 0 ? " " : "", words[i]);
        at += more > 0 ? (size_t)more : 0;
    }
    free(words);
}
