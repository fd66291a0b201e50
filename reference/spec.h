/* A network of one's own as text. The grammar is in docs/models.md:
 *
 *   input 1x28x28; conv1: conv 10 k5; maxpool 2; relu; flatten; linear 10
 */
#ifndef LS_REFERENCE_SPEC_H
#define LS_REFERENCE_SPEC_H

#include "gpu/base/error.h"
#include "reference/model.h"

enum { LS_SPEC_TEXT_SIZE = 2048 };

/* Epochs of a network that says nothing about them, as seed-cnn's. */
enum { LS_SPEC_EPOCHS = 10 };

/* Reads text into a spec with the name `custom`; layers know their line and column. channels, height and width are 0 unless
 * the text says `input CxHxW`, classes is 0: whoever knows the data set fills them in. Returns 0, or -1 with line, column and
 * what was expected in error (at most size bytes). */
int ls_spec_parse(const char *text, ls_model_spec *out, char *error, size_t size);

/* The spec as one line, which ls_spec_parse reads back as the same network. Returns 0, or -1 when size does not do. */
int ls_spec_format(const ls_model_spec *spec, char *text, size_t size);

/* Whether a word given for a network is a spec rather than a name or path: it says more than one word, or names a kind of
 * layer. */
bool ls_spec_is_text(const char *text);

/* The text of a file, ended by a zero; the caller frees. One line and LS_BAD_INPUT when it cannot be read or is absurdly
 * long. */
ls_rc ls_spec_read_file(const char *path, char **out);

#endif
