/* For tests: what is written to stderr between begin and end, to check the one line of a failure. */
#ifndef LS_TESTS_IMPLS_STDERR_CAPTURE_H
#define LS_TESTS_IMPLS_STDERR_CAPTURE_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct stderr_capture {
    FILE *file;
    int saved;
    char text[4096];
    size_t lines;
} stderr_capture;

static inline int stderr_capture_begin(stderr_capture *capture) {
    memset(capture, 0, sizeof *capture);
    (void)fflush(stderr);
    capture->file = tmpfile();
    capture->saved = dup(STDERR_FILENO);
    return capture->file != NULL && capture->saved >= 0 && dup2(fileno(capture->file), STDERR_FILENO) >= 0 ? 0 : -1;
}

static inline void stderr_capture_end(stderr_capture *capture) {
    (void)fflush(stderr);
    (void)dup2(capture->saved, STDERR_FILENO);
    (void)close(capture->saved);
    rewind(capture->file);
    size_t got = fread(capture->text, 1, sizeof capture->text - 1, capture->file);
    capture->text[got] = '\0';
    for (size_t i = 0; i < got; i++) {
        capture->lines += capture->text[i] == '\n';
    }
    (void)fclose(capture->file);
}

#endif
