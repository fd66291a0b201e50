/* The formats of files that hold a state. A new one is one file here and one line in formats.c. */
#ifndef LS_REFERENCE_CHECKPOINT_FORMATS_H
#define LS_REFERENCE_CHECKPOINT_FORMATS_H

#include "reference/checkpoint/state.h"
#include "reference/file.h"

typedef struct ls_state_format {
    const char *ending; /* ".pth" */
    /* Writes state; failures of the file are kept by the writer. stem: the file's name without folder and ending. */
    ls_rc (*write)(ls_file_writer *writer, const char *stem, const ls_state *state);
    /* Adds what the file holds to state (see ls_state_read). */
    ls_rc (*read)(const ls_file_bytes *file, ls_state *state);
    uint64_t max_bytes; /* of all tensors together that it can hold */
} ls_state_format;

/* .pth and .pt: PyTorch's zip archive; its older pickle stream is read too. No texts. */
ls_rc ls_pth_write(ls_file_writer *writer, const char *stem, const ls_state *state);
ls_rc ls_pth_read(const ls_file_bytes *file, ls_state *state);
/* The two kinds of .pth, which ls_pth_read tells apart by their first bytes. */
ls_rc ls_pth_zip_read(const ls_file_bytes *file, ls_state *state);
ls_rc ls_pth_legacy_read(const ls_file_bytes *file, ls_state *state);
/* .safetensors; texts are its __metadata__. */
ls_rc ls_safetensors_write(ls_file_writer *writer, const char *stem, const ls_state *state);
ls_rc ls_safetensors_read(const ls_file_bytes *file, ls_state *state);

/* Checks that path has an ending that can be written, that `bytes` of tensors fit the format, and that its folder can be
 * written; before any training, so that nothing is lost after. option: "--save". */
ls_rc ls_state_check_output(const char *option, const char *path, uint64_t bytes);

/* Writes a temporary file in the folder of path, syncs and renames it over path. One line and LS_BAD_INPUT when it cannot
 * be; then what was there before is unchanged. */
ls_rc ls_state_write(const char *path, const ls_state *state);

/* Reads a whole file into state (a fresh one; freed after a failure). Everything that can be checked is: one line that says
 * file, place, expected and found, and LS_BAD_INPUT. Memory stays within a small multiple of the file's size. */
ls_rc ls_state_read(const char *path, ls_state *state);

#endif
