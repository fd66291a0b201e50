/* Private to the option table: what a row is, and the parsers of values (options_values.c). */
#ifndef LS_IMPLS_OPTIONS_TABLE_H
#define LS_IMPLS_OPTIONS_TABLE_H

#include "impls/options.h"

typedef struct ls_option ls_option;

struct ls_option {
    const char *flag;     /* "--batch"; NULL ends the table */
    const char *argument; /* its name in the help; NULL: the option takes none */
    unsigned commands;    /* LS_COMMAND_* that know it */
    const char *help;     /* as ls_option_help reads it */
    /* Reads value into options; one line and LS_BAD_INPUT when it is not as expected. */
    ls_rc (*parse)(const ls_option *option, const char *value, ls_options *options);
    /* Writes the value of a run as parse reads it. NULL: not a property of a run. */
    void (*format)(const ls_option *option, const ls_run *run, char *text, size_t size);
    size_t offset;    /* into ls_run, for numbers, flags and texts */
    double low, high; /* inclusive range of a number */
};

/* The table, ended by a NULL flag. */
extern const ls_option ls_option_table[];

/* The option's help under command, with what {names} in it stand for (options_help.c): what tables know is not said twice.
 * Cut off where size does not do. */
void ls_option_help(unsigned command, const ls_option *option, char *text, size_t size);
/* Optimizers that know the option (options_training.c): "adam, adamw", and the value that each has under command when the
 * option is not given: "sgd, rmsprop 0.01; adam, adamw 0.001". */
void ls_option_owners(const ls_option *option, char *text, size_t size);
void ls_option_defaults(unsigned command, const ls_option *option, char *text, size_t size);

ls_rc ls_option_parse_size(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_steps(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_seed(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_double(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_flag(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_text(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_impls(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_devices(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_models(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_data(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_normalize(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_dtypes(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_math(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_buckets(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_ranks(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_mpi_buffers(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_scaling(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_random(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_case(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_determinism(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_output(const ls_option *option, const char *value, ls_options *options);

void ls_option_format_size(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_seed(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_double(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_flag(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_text(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_normalize(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_dtype(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_math(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_mpi_buffers(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_ranks(const ls_option *option, const ls_run *run, char *text, size_t size);

/* Refuses options that name one file where writing it would lose something (options_files.c): one line with both, LS_BAD_INPUT. */
ls_rc ls_options_check_files(unsigned command, const ls_options *options);

/* Loss, optimizer and learning rate (options_training.c). begin: before options are read; finish: after, fills in what was
 * not given with the optimizer's own defaults and refuses what does not fit together. */
#define LS_GAMMA_DEFAULT 0.1
void ls_options_training_begin(ls_run *run);
ls_rc ls_options_training_finish(unsigned command, ls_run *run);
ls_rc ls_option_parse_optimizer(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_loss(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_reduction(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_schedule(const ls_option *option, const char *value, ls_options *options);
ls_rc ls_option_parse_betas(const ls_option *option, const char *value, ls_options *options);
void ls_option_format_optimizer(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_loss(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_reduction(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_schedule(const ls_option *option, const ls_run *run, char *text, size_t size);
/* Nothing unless the schedule, or the optimizer, knows the number. */
void ls_option_format_step_schedule(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_hyper(const ls_option *option, const ls_run *run, char *text, size_t size);
void ls_option_format_betas(const ls_option *option, const ls_run *run, char *text, size_t size);

#endif
