#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "impls/impl.h"
#include "impls/options.h"
#include "impls/options_table.h"

/* Splits a line at blanks and parses it; what was printed on stderr goes to error. */
static ls_rc parse(unsigned command, const char *line, ls_options *options, char *error, size_t size) {
    char copy[1024], *words[64];
    int count = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        words[count++] = word;
    }
    int saved = dup(STDERR_FILENO), ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_true(saved >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    bool help = false;
    ls_rc rc = ls_options_parse(command, count, words, options, &help);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    close(ends[1]);
    ssize_t length = read(ends[0], error, size - 1);
    close(ends[0]);
    error[length > 0 ? length : 0] = '\0';
    return rc;
}

static ls_options good(unsigned command, const char *line) {
    ls_options options;
    char error[1024];
    ls_rc rc = parse(command, line, &options, error, sizeof error);
    if (rc != LS_OK) {
        fail_msg("'%s' was refused: %s", line, error);
    }
    return options;
}

static void refused(unsigned command, const char *line, const char *expected) {
    ls_options options;
    char error[1024];
    assert_int_equal(parse(command, line, &options, error, sizeof error), LS_BAD_INPUT);
    char *newline = strchr(error, '\n');
    assert_non_null(newline);
    assert_int_equal(newline[1], '\0'); /* one line */
    if (strstr(error, expected) == NULL) {
        fail_msg("'%s' gave '%s', which does not say '%s'", line, error, expected);
    }
}

static void defaults_are_those_of_the_sources(void **state) {
    (void)state;
    ls_run run = good(LS_COMMAND_TRAIN, "").run;
    assert_int_equal(run.batch, 64);
    assert_float_equal(run.lr, 0.01, 0);
    assert_float_equal(run.optimizer.momentum, 0.5, 0);
    assert_int_equal(run.log_every, 10);
    assert_int_equal(run.seed, 0);
    assert_int_equal(run.bucket_bytes, 26214400);
    assert_int_equal(run.dtype, LS_FLOAT32);
    assert_int_equal(run.steps, SIZE_MAX);
    assert_string_equal(run.data, "fashion-mnist");
}

static void every_option_reaches_its_field(void **state) {
    (void)state;
    ls_run run =
        good(LS_COMMAND_TRAIN,
             "--impl mpi --devices 3 --ranks threads --model seed-conv --data synthetic:100 --normalize 0.5,0.25 "
             "--dtype float64 --batch 7 --global-batch 21 --epochs 4 --steps 9 --lr 0.125 --momentum=0.75 "
             "--weight-decay 0.5 --seed 18446744073709551615 --log-every 3 --bucket-bytes 16KiB --timeout 2.5 "
             "--drop-last --no-shuffle --loader-threads 3 --save a.safetensors --json b.json "
             "--save-grads c.pth --time-steps --math fast")
            .run;
    assert_string_equal(run.impl, "mpi");
    assert_int_equal(run.devices, 3);
    assert_int_equal(run.ranks, LS_RANKS_THREADS);
    assert_string_equal(run.model, "seed-conv");
    assert_string_equal(run.data, "synthetic:100");
    assert_true(run.normalize_given && run.normalize.channels == 1);
    assert_float_equal(run.normalize.mean[0], 0.5, 0);
    assert_float_equal(run.normalize.std[0], 0.25, 0);
    assert_int_equal(run.dtype, LS_FLOAT64);
    assert_int_equal(run.math, LS_MATH_FAST);
    assert_int_equal(run.batch, 7);
    assert_int_equal(run.global_batch, 21);
    assert_int_equal(run.epochs, 4);
    assert_int_equal(run.steps, 9);
    assert_float_equal(run.lr, 0.125, 0);
    assert_float_equal(run.optimizer.momentum, 0.75, 0);
    assert_float_equal(run.optimizer.weight_decay, 0.5, 0);
    assert_true(run.seed == UINT64_MAX);
    assert_int_equal(run.log_every, 3);
    assert_int_equal(run.bucket_bytes, 16384);
    assert_float_equal(run.timeout, 2.5, 0);
    assert_true(run.drop_last && run.no_shuffle);
    assert_int_equal(run.loader_threads, 3);
    assert_string_equal(run.save, "a.safetensors");
    assert_string_equal(run.json, "b.json");
    assert_string_equal(run.save_grads, "c.pth");
    assert_true(run.time_steps);
}

static void lists_keep_their_order(void **state) {
    (void)state;
    ls_options options = good(LS_COMMAND_VERIFY, "--impl mpi,dp --devices 8,1,2 --bucket-bytes 4096,1MiB --model all");
    assert_int_equal(options.impl_count, 2);
    assert_string_equal(options.impls[0], "mpi");
    assert_string_equal(options.impls[1], "dp");
    assert_false(options.impl_all);
    assert_int_equal(options.device_count, 3);
    assert_int_equal(options.devices[0], 8);
    assert_int_equal(options.devices[2], 2);
    assert_int_equal(options.bucket_count, 2);
    assert_int_equal(options.buckets[1], 1048576);
    assert_int_equal(options.model_count, 2);
    options = good(LS_COMMAND_VERIFY, "");
    assert_true(options.impl_all);
    size_t impls = 0;
    for (; ls_impls[impls] != NULL; impls++) {
        assert_string_equal(options.impls[impls], ls_impls[impls]->name);
    }
    assert_int_equal(options.impl_count, impls);
    assert_int_equal(options.dtype_count, 2);
    assert_int_equal(options.ranks_count, 2);
    assert_int_equal(options.bucket_count, 3);
}

static void only_a_default_list_is_fitted_to_the_devices(void **state) {
    (void)state;
    ls_options options = good(LS_COMMAND_VERIFY, "");
    ls_options_fit_devices(&options, 3);
    assert_int_equal(options.device_count, 2);
    assert_int_equal(options.devices[1], 2);
    options = good(LS_COMMAND_VERIFY, "--devices 1,4");
    ls_options_fit_devices(&options, 3);
    assert_int_equal(options.device_count, 2);
    assert_int_equal(options.devices[1], 4);
}

static void bad_values_are_refused_by_name(void **state) {
    (void)state;
    refused(LS_COMMAND_TRAIN, "--devices 0", "'0' is not a whole number from 1");
    refused(LS_COMMAND_TRAIN, "--devices two", "'two'");
    refused(LS_COMMAND_TRAIN, "--devices -1", "'-1'");
    refused(LS_COMMAND_SWEEP, "--devices 1,,2", "''");
    refused(LS_COMMAND_SWEEP, "--devices 1,2x", "'2x'");
    refused(LS_COMMAND_SWEEP, "--devices 2,2", "twice");
    refused(LS_COMMAND_TRAIN, "--devices 1,2", "expected one");
    refused(LS_COMMAND_TRAIN, "--impl no-such", "expected single, dp, ddp, mpi");
    refused(LS_COMMAND_VERIFY, "--impl dp,no-such", "'no-such'");
    refused(LS_COMMAND_TRAIN, "--model lenet", "expected seed-cnn, seed-conv, all, a spec");
    refused(LS_COMMAND_TRAIN, "--data imagenet", "imagenet");
    refused(LS_COMMAND_TRAIN, "--normalize 0.5", "MEAN,STD");
    refused(LS_COMMAND_TRAIN, "--normalize 0.5,0", "STD above 0");
    refused(LS_COMMAND_TRAIN, "--normalize 0.5,1,2", "MEAN,STD");
    refused(LS_COMMAND_TRAIN, "--normalize 0.5/0.5,1", "M1/M2/M3,S1/S2/S3");
    refused(LS_COMMAND_TRAIN, "--normalize 0.5/,1/1", "'0.5/,1/1'");
    refused(LS_COMMAND_TRAIN, "--normalize 0/0,1/1e-60", "STD above 0");
    refused(LS_COMMAND_TRAIN, "--normalize 1/1/1/1/1/1/1/1/1/1/1/1/1/1/1/1/1,1", "at most 16 channels");
    refused(LS_COMMAND_TRAIN, "--loader-threads 17", "from 0 to 16");
    refused(LS_COMMAND_TRAIN, "--math tf32", "exact, fast or im2col");
    refused(LS_COMMAND_TRAIN, "--dtype float16", "float32 or float64");
    refused(LS_COMMAND_TRAIN, "--batch 0", "from 1 to");
    refused(LS_COMMAND_TRAIN, "--batch 1e3", "'1e3'");
    refused(LS_COMMAND_TRAIN, "--batch 99999999999999999999", "'99999999999999999999'");
    refused(LS_COMMAND_TRAIN, "--lr nan", "'nan'");
    refused(LS_COMMAND_TRAIN, "--lr -0.1", "'-0.1'");
    refused(LS_COMMAND_TRAIN, "--lr 0.1x", "'0.1x'");
    refused(LS_COMMAND_TRAIN, "--momentum 1.5", "from 0 to 1");
    refused(LS_COMMAND_TRAIN, "--seed -1", "'-1'");
    refused(LS_COMMAND_TRAIN, "--bucket-bytes 0", "'0'");
    refused(LS_COMMAND_TRAIN, "--bucket-bytes 4KB", "'4KB'");
    refused(LS_COMMAND_TRAIN, "--ranks fibers", "processes or threads");
    refused(LS_COMMAND_SWEEP, "--scaling weakly", "weak or strong");
    refused(LS_COMMAND_TRAIN, "--timeout 0", "from 0.1");
    refused(LS_COMMAND_TRAIN, "--save", "needs a value");
    refused(LS_COMMAND_TRAIN, "--frobnicate", "unknown option '--frobnicate'");
    refused(LS_COMMAND_TRAIN, "--dev 2", "unknown option '--dev'");
    refused(LS_COMMAND_TRAIN, "--scaling weak", "does not belong to this command");
    refused(LS_COMMAND_TRAIN, "--capture", "does not belong to this command");
    refused(LS_COMMAND_TRAIN, "results.jsonl", "unexpected word");
}

/* What the launcher hands to a rank program reads back as the same run, field by field. */
static void a_run_survives_its_command_line(void **state) {
    (void)state;
    static const char *const lines[] = {
        "--impl dp --devices 1",
        "--impl ddp --devices 5 --ranks threads --model seed-conv --data synthetic:77 --normalize 0.1307,0.3081",
        "--impl ddp --devices 2 --drop-last --no-shuffle --loader-threads 0",
        "--impl dp --devices 2 --normalize 0.485/0.456/0.406,0.229/0.224/0.225",
        "--impl mpi --devices 2 --normalize none --dtype float64 --math im2col --epochs 2 --lr 0.1 --momentum 0",
        "--impl single --devices 1 --global-batch 130 --seed 42 --log-every 0 --bucket-bytes 4097 --timeout 0.3",
        "--impl ddp --devices 2 --lr 0.30000000000000004 --weight-decay 1e-4 --save x.safetensors",
        "--optimizer adam --lr 0.01", /* SGD's usual rate is not Adam's */
        "--optimizer adamw --weight-decay 0 --betas 0.5,0.999 --amsgrad --maximize --loss rmse --reduction sum",
        "--optimizer rmsprop --momentum 0.5 --alpha 0.8 --eps 0.001 --centered --lr-schedule step --step-size 2",
        "--nesterov --lr-schedule step --step-size 1 --gamma 0.5 --warmup 12 --label-smoothing 0.3 --log-every 1"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        ls_run run = good(LS_COMMAND_TRAIN, lines[i]).run;
        run.capture = run.time_steps = i % 2 == 0;
        run.warmup = i;
        snprintf(run.run_dir, sizeof run.run_dir, "/nowhere/run %zu", i);
        char **words = ls_options_argv("program", LS_COMMAND_RANK, &run);
        assert_non_null(words);
        assert_string_equal(words[0], "program");
        assert_string_equal(words[1], "rank");
        int count = 0;
        while (words[count] != NULL) {
            count++;
        }
        ls_options again;
        bool help = false;
        assert_int_equal(ls_options_parse(LS_COMMAND_RANK, count - 2, words + 2, &again, &help), LS_OK);
        assert_memory_equal(&again.run.lr, &run.lr, sizeof run.lr);
        assert_string_equal(again.run.run_dir, run.run_dir);
        char first[4096], second[4096];
        ls_options_line("program", LS_COMMAND_RANK, &run, first, sizeof first);
        ls_options_line("program", LS_COMMAND_RANK, &again.run, second, sizeof second);
        assert_string_equal(first, second);
        assert_int_equal(again.run.capture, run.capture);
        assert_memory_equal(&again.run.optimizer, &run.optimizer, sizeof run.optimizer);
        assert_memory_equal(&again.run.schedule, &run.schedule, sizeof run.schedule);
        assert_memory_equal(&again.run.loss, &run.loss, sizeof run.loss);
        assert_int_equal(again.run.devices, run.devices);
        assert_true(again.run.drop_last == run.drop_last && again.run.no_shuffle == run.no_shuffle);
        assert_int_equal(again.run.loader_threads, run.loader_threads);
        assert_int_equal(again.run.normalize_given, run.normalize_given);
        assert_memory_equal(&again.run.normalize, &run.normalize, sizeof run.normalize);
        free(words);
    }
}

static void single_takes_one_device_unless_told_otherwise(void **state) {
    (void)state;
    assert_int_equal(good(LS_COMMAND_TRAIN, "--impl single").run.devices, 1);
    assert_int_equal(good(LS_COMMAND_TRAIN, "--impl ddp --impl single").run.devices, 1);
    assert_int_equal(good(LS_COMMAND_TRAIN, "--devices 2 --impl single").run.devices, 2); /* which its check refuses */
    assert_int_equal(good(LS_COMMAND_EVAL, "--impl single").run.devices, 1);
    static const char *const others[] = {"--impl dp", "--impl ddp", "--impl mpi", "--impl single --impl ddp"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(good(LS_COMMAND_TRAIN, others[i]).run.devices, 2);
    }
    assert_int_equal(good(LS_COMMAND_VERIFY, "--impl single").device_count, 4); /* as many global batches */
}

static void optimizers_bring_their_defaults(void **state) {
    (void)state;
    ls_run run = good(LS_COMMAND_TRAIN, "--optimizer adam").run;
    assert_string_equal(ls_optimizer_of(&run.optimizer)->name, "adam");
    assert_float_equal(run.lr, 1e-3, 0);
    assert_float_equal(run.optimizer.beta1, 0.9, 0);
    assert_float_equal(run.optimizer.beta2, 0.999, 0);
    assert_float_equal(run.optimizer.eps, 1e-8, 0);
    assert_float_equal(run.optimizer.weight_decay, 0, 0);
    assert_float_equal(run.optimizer.momentum, 0, 0);
    run = good(LS_COMMAND_VERIFY, "--lr 0.25 --betas 0.5,0.75 --amsgrad --optimizer adamw --maximize").run;
    assert_float_equal(run.lr, 0.25, 0);
    assert_float_equal(run.optimizer.beta1, 0.5, 0);
    assert_float_equal(run.optimizer.beta2, 0.75, 0);
    assert_float_equal(run.optimizer.weight_decay, 1e-2, 0);
    assert_true(run.optimizer.amsgrad && run.optimizer.maximize);
    run = good(LS_COMMAND_SWEEP, "--optimizer rmsprop --momentum 0.5 --centered --eps 1e-4").run;
    assert_float_equal(run.lr, 1e-2, 0);
    assert_float_equal(run.optimizer.alpha, 0.99, 0);
    assert_float_equal(run.optimizer.momentum, 0.5, 0);
    assert_float_equal(run.optimizer.eps, 1e-4, 0);
    assert_true(run.optimizer.centered);
    run = good(LS_COMMAND_TRAIN, "--optimizer rmsprop").run;
    assert_float_equal(run.optimizer.momentum, 0, 0);
    run = good(LS_COMMAND_TRAIN, "--nesterov --momentum 0.5 --dampening 0").run;
    assert_true(run.optimizer.nesterov);
}

/* verify trains so that every hyper-parameter shows; a line that repeats a run says the same. */
static void verify_brings_its_own_defaults(void **state) {
    (void)state;
    ls_options verify = good(LS_COMMAND_VERIFY, "");
    assert_true(verify.model_all);
    assert_float_equal(verify.run.optimizer.momentum, 0.5, 0);
    assert_float_equal(verify.run.optimizer.dampening, 0.1, 0);
    assert_float_equal(verify.run.optimizer.weight_decay, 0.01, 0);
    assert_float_equal(good(LS_COMMAND_VERIFY, "--optimizer adam").run.optimizer.eps, 1e-3, 0);
    assert_float_equal(good(LS_COMMAND_VERIFY, "--nesterov").run.optimizer.dampening, 0, 0);
    ls_run given = good(LS_COMMAND_VERIFY, "--weight-decay 0 --dampening 0.25 --model exact").run;
    assert_float_equal(given.optimizer.weight_decay, 0, 0);
    assert_float_equal(given.optimizer.dampening, 0.25, 0);
    char line[4096];
    ls_options_line("lockstep", LS_COMMAND_VERIFY, &given, line, sizeof line);
    assert_non_null(strstr(line, "--weight-decay 0"));
    assert_non_null(strstr(line, "--model exact"));
    ls_options_line("lockstep", LS_COMMAND_VERIFY, &verify.run, line, sizeof line);
    assert_null(strstr(line, "--weight-decay"));
    ls_options_line("lockstep", LS_COMMAND_RANK, &verify.run, line, sizeof line);
    assert_non_null(strstr(line, "--dampening 0.1"));
    assert_non_null(strstr(line, "--weight-decay 0.01"));
}

static void losses_and_schedules(void **state) {
    (void)state;
    ls_run run = good(LS_COMMAND_TRAIN, "--loss rmse --reduction sum --lr-schedule step --step-size 3").run;
    assert_int_equal(run.loss.kind, LS_LOSS_RMSE);
    assert_int_equal(run.loss.reduction, LS_LOSS_SUM);
    assert_int_equal(run.schedule.kind, LS_SCHEDULE_STEP);
    assert_int_equal(run.schedule.step_size, 3);
    assert_float_equal(run.schedule.gamma, 0.1, 0);
    run = good(LS_COMMAND_TRAIN, "--label-smoothing 0.25 --lr-schedule cosine --warmup 7").run;
    assert_float_equal(run.loss.label_smoothing, 0.25, 0);
    assert_int_equal(run.schedule.kind, LS_SCHEDULE_COSINE);
    assert_int_equal(run.schedule.warmup_steps, 7);
    assert_int_equal(run.warmup, 0);
    run = good(LS_COMMAND_SWEEP, "--warmup 7 --warmup-steps 9").run; /* a sweep's untimed steps are another thing */
    assert_int_equal(run.warmup, 7);
    assert_int_equal(run.schedule.warmup_steps, 9);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    unsigned train = LS_COMMAND_TRAIN;
    refused(train, "--optimizer no-such", "expected one of sgd, adam, adamw, rmsprop");
    refused(train, "--betas 0.9,0.99", "'--betas' does not belong to --optimizer sgd; it is one of adam, adamw");
    refused(train, "--optimizer adam --momentum 0.5", "it is one of sgd, rmsprop");
    refused(train, "--optimizer adam --nesterov", "'--nesterov'");
    refused(train, "--amsgrad --optimizer rmsprop", "'--amsgrad'");
    refused(train, "--centered", "it is one of rmsprop");
    refused(train, "--alpha 0.5 --optimizer adamw", "'--alpha'");
    refused(train, "--eps 1e-3", "it is one of adam, adamw, rmsprop");
    refused(train, "--optimizer rmsprop --dampening 0.1", "'--dampening'");
    refused(train, "--nesterov --momentum 0", "--nesterov needs --momentum");
    refused(train, "--nesterov --dampening 0.5", "--nesterov needs --momentum");
    refused(train, "--optimizer adam --betas 0.9", "B1,B2");
    refused(train, "--optimizer adam --betas 0.9,1", "below 1");
    refused(train, "--optimizer adam --betas 0.9,0.99,0.5", "B1,B2");
    refused(train, "--optimizer adam --betas x,y", "B1,B2");
    refused(train, "--loss huber", "cross-entropy|mse|rmse");
    refused(train, "--reduction none", "mean|sum");
    refused(train, "--loss mse --label-smoothing 0.1", "does not belong to --loss mse");
    refused(train, "--label-smoothing 1.5", "from 0 to 1");
    refused(train, "--lr-schedule linear", "constant|step|cosine");
    refused(train, "--lr-schedule step", "--step-size");
    refused(train, "--lr-schedule cosine --step-size 3", "does not belong to --lr-schedule cosine");
    refused(train, "--gamma 0.5", "'--gamma' does not belong to --lr-schedule constant");
    refused(train, "--lr nan", "'--lr'");
    refused(LS_COMMAND_VERIFY, "--warmup 3", "does not belong to this command");
}

/* The help of one option under command. */
static const char *help_of(unsigned command, const char *flag) {
    static char text[512];
    for (const ls_option *option = ls_option_table; option->flag != NULL; option++) {
        if (strcmp(option->flag, flag) == 0 && (option->commands & command) != 0) {
            ls_option_help(command, option, text, sizeof text);
            return text;
        }
    }
    fail_msg("no option %s", flag);
    return "";
}

static void help_names_what_tables_hold(void **state) {
    (void)state;
    for (const ls_option *option = ls_option_table; option->flag != NULL; option++) {
        char text[512];
        ls_option_help(option->commands, option, text, sizeof text);
        assert_null(strpbrk(text, "{}")); /* each {name} is known */
        assert_true(strlen(text) < sizeof text - 1);
    }
    for (size_t i = 0; ls_impls[i] != NULL; i++) {
        assert_non_null(strstr(help_of(LS_COMMAND_TRAIN, "--impl"), ls_impls[i]->name));
        bool graph = (ls_impls[i]->capabilities & LS_CAP_GRAPH) != 0;
        assert_int_equal(graph, strstr(help_of(LS_COMMAND_TRAIN, "--graph"), ls_impls[i]->name) != NULL);
    }
    for (size_t i = 0; ls_optimizers[i] != NULL; i++) {
        assert_non_null(strstr(help_of(LS_COMMAND_TRAIN, "--optimizer"), ls_optimizers[i]->name));
        assert_non_null(strstr(help_of(LS_COMMAND_TRAIN, "--lr"), ls_optimizers[i]->name));
    }
    for (size_t i = 0; ls_zoo[i] != NULL; i++) {
        assert_non_null(strstr(help_of(LS_COMMAND_TRAIN, "--model"), ls_zoo[i]->name));
    }
    /* what counts when an option is not given, under the command that is asked */
    assert_non_null(strstr(help_of(LS_COMMAND_TRAIN, "--lr"), "adam, adamw 0.001"));
    assert_non_null(strstr(help_of(LS_COMMAND_TRAIN, "--betas"), "adam, adamw 0.9,0.999"));
    assert_non_null(strstr(help_of(LS_COMMAND_TRAIN, "--eps"), "rmsprop 1e-08"));
    assert_non_null(strstr(help_of(LS_COMMAND_VERIFY, "--eps"), "rmsprop 0.001"));
    assert_non_null(strstr(help_of(LS_COMMAND_TRAIN, "--nesterov"), "sgd:"));
}

static void a_line_is_quoted_for_the_shell(void **state) {
    (void)state;
    ls_run run;
    ls_run_defaults(&run);
    snprintf(run.data, sizeof run.data, "mnist:/my data");
    char line[4096];
    ls_options_line("lockstep", LS_COMMAND_TRAIN, &run, line, sizeof line);
    assert_string_equal(line, "lockstep train --impl ddp --devices 2 --data 'mnist:/my data'");
    ls_options_line("lockstep", LS_COMMAND_VERIFY, &run, line, sizeof line);
    assert_non_null(strstr(line, "--model seed-cnn"));
    assert_non_null(strstr(line, "--dtype float32"));
    assert_non_null(strstr(line, "--bucket-bytes 26214400"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_sources),
        cmocka_unit_test(every_option_reaches_its_field),
        cmocka_unit_test(lists_keep_their_order),
        cmocka_unit_test(bad_values_are_refused_by_name),
        cmocka_unit_test(only_a_default_list_is_fitted_to_the_devices),
        cmocka_unit_test(single_takes_one_device_unless_told_otherwise),
        cmocka_unit_test(optimizers_bring_their_defaults),
        cmocka_unit_test(verify_brings_its_own_defaults),
        cmocka_unit_test(losses_and_schedules),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_run_survives_its_command_line),
        cmocka_unit_test(help_names_what_tables_hold),
        cmocka_unit_test(a_line_is_quoted_for_the_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
