/* The network that a run trains: an entry of the zoo or one of the user's own. */
#ifndef LS_IMPLS_RUN_SPEC_H
#define LS_IMPLS_RUN_SPEC_H

#include "gpu/base/error.h"
#include "impls/options.h"
#include "reference/model.h"

/* The spec of run->model, with the input shape and classes of the data set in force where the network leaves them open. One
 * line and LS_BAD_INPUT for an unknown name or text that is no network. */
ls_rc ls_run_spec(const ls_run *run, ls_model_spec *spec);

/* Infers the shapes of run->model. The line about an impossible layer names its place in the text or file. */
ls_rc ls_run_resolve(const ls_run *run, ls_model_spec *spec, ls_model *model);

/* Reads what --model was given: a name of the zoo, a spec, or the path of a file with one, into text (a name, or a spec of
 * one line) and file (the path, or empty). */
ls_rc ls_run_read_model(const char *value, char text[LS_MODEL_TEXT_SIZE], char file[LS_PATH_SIZE]);

/* What tells networks apart, in text: a name of the zoo, or an own network's spec, the same however it was typed. */
ls_rc ls_run_network(const ls_run *run, char text[LS_MODEL_TEXT_SIZE]);

/* Takes entry m of the options' list of networks. */
void ls_run_use_model(const ls_options *options, size_t m, ls_run *run);

/* The network as a table has room for it: its name, or the start of its text. */
const char *ls_run_model_label(const ls_run *run, char label[16]);

#endif
