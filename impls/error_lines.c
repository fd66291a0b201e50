#include "impls/error_lines.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "impls/rank_pipe.h"

enum { LINE_SIZE = 2048, HELD = 64, SEEN = 64, RECENT = 16 };

/* mpirun takes a second to end after a rank has failed: so long a line that was shown still explains the failure. */
static const time_t recent_seconds = 10;

typedef struct held_line {
    int rank;       /* -1: the line names none */
    time_t arrived; /* monotonic */
    char text[LINE_SIZE];
} held_line;

struct ls_error_lines {
    ls_rank_pipe pipe;
    bool mpirun, in_block;
    char hint[LINE_SIZE / 4];
    char partial[LINE_SIZE];
    size_t partial_size;
    held_line held[HELD];
    size_t held_count, aged;  /* the first `aged` were there at the last tick */
    held_line recent[RECENT]; /* the last lines that ls_error_lines_tick showed, or left out as seen before */
    size_t recent_count;
    size_t seen[SEEN]; /* hashes of the messages shown */
    size_t seen_count;
};

ls_rc ls_error_lines_open(bool mpirun, ls_error_lines **out) {
    ls_error_lines *lines = ls_calloc(1, sizeof *lines, "the ranks' messages");
    if (lines == NULL) {
        return LS_DEVICE_FAILED;
    }
    lines->mpirun = mpirun;
    ls_rc rc = ls_rank_pipe_open(&lines->pipe);
    if (rc != LS_OK) {
        free(lines);
        return rc;
    }
    *out = lines;
    return LS_OK;
}

void ls_error_lines_close(ls_error_lines *lines) {
    if (lines != NULL) {
        ls_rank_pipe_close(&lines->pipe);
        free(lines);
    }
}

int ls_error_lines_writer(const ls_error_lines *lines) {
    return lines->pipe.writer;
}

int ls_error_lines_reader(const ls_error_lines *lines) {
    return lines->pipe.reader;
}

void ls_error_lines_started(ls_error_lines *lines) {
    ls_rank_pipe_started(&lines->pipe);
}

static time_t now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void write_line(const char *text) {
    char line[LINE_SIZE + 2];
    int size = snprintf(line, sizeof line, "%s\n", text);
    if (size > 0) {
        ssize_t written = write(STDERR_FILENO, line, (size_t)size);
        (void)written; /* nothing can be said about a stderr that is gone */
    }
}

/* Reads a label and the whole number behind it; *at moves behind both. */
static bool read_labelled(const char **at, const char *label, int *number) {
    size_t length = strlen(label);
    if (strncmp(*at, label, length) != 0) {
        return false;
    }
    char *end = NULL;
    errno = 0;
    long value = strtol(*at + length, &end, 10);
    if (end == *at + length || errno != 0 || value < INT_MIN || value > INT_MAX) {
        return false;
    }
    *number = (int)value;
    *at = end;
    return true;
}

/* The message of a line of ours, and the rank that it names. */
static const char *split_line(const char *text, int *rank) {
    const char *message = text + strlen("lockstep: "), *at = message;
    int number = -1, device = -1;
    *rank = -1;
    if (read_labelled(&at, "rank ", &number) && read_labelled(&at, " device ", &device) && strncmp(at, ": ", 2) == 0) {
        *rank = number;
        return at + 2;
    }
    return message;
}

/* Several ranks may find the same fault; it is shown once. FNV-1a. */
static bool seen_before(ls_error_lines *lines, const char *message) {
    size_t hash = 14695981039346656037u;
    for (const char *c = message; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    }
    size_t known = lines->seen_count < SEEN ? lines->seen_count : SEEN;
    for (size_t i = 0; i < known; i++) {
        if (lines->seen[i] == hash) {
            return true;
        }
    }
    lines->seen[lines->seen_count++ % SEEN] = hash;
    return false;
}

static void show(ls_error_lines *lines, const held_line *line) {
    int rank;
    if (!seen_before(lines, split_line(line->text, &rank))) {
        write_line(line->text);
    }
}

void ls_error_lines_show(ls_error_lines *lines) {
    for (size_t i = 0; i < lines->held_count; i++) {
        show(lines, &lines->held[i]);
    }
    lines->held_count = lines->aged = 0;
}

void ls_error_lines_tick(ls_error_lines *lines) {
    for (size_t i = 0; i < lines->aged; i++) {
        show(lines, &lines->held[i]);
        lines->recent[lines->recent_count++ % RECENT] = lines->held[i];
    }
    lines->held_count -= lines->aged;
    memmove(lines->held, lines->held + lines->aged, lines->held_count * sizeof lines->held[0]);
    lines->aged = lines->held_count;
}

/* mpirun's own words come between lines of dashes, or begin with [host:pid]. */
static bool is_noise(ls_error_lines *lines, const char *text) {
    if (!lines->mpirun) {
        return false;
    }
    if (strncmp(text, "--------------------", 20) == 0) {
        lines->in_block = !lines->in_block;
        return true;
    }
    size_t host = strcspn(text, "]:"); /* "[host:pid] ..." */
    const char *behind = text + host;
    int pid = 0;
    bool tagged = text[0] == '[' && host > 1 && read_labelled(&behind, ":", &pid) && behind[0] == ']';
    if (!lines->in_block && !tagged) {
        return text[0] == '\0' || strncmp(text, "mpirun: ", 8) == 0;
    }
    if (lines->hint[0] == '\0' && text[0] != '\0') {
        snprintf(lines->hint, sizeof lines->hint, "%.*s", (int)sizeof lines->hint - 1, text);
    }
    return true;
}

static void take_line(ls_error_lines *lines, const char *text) {
    if (is_noise(lines, text)) {
        return;
    }
    if (strncmp(text, "lockstep: ", 10) != 0) {
        write_line(text);
        return;
    }
    if (lines->held_count == HELD) {
        ls_error_lines_show(lines);
    }
    held_line *line = &lines->held[lines->held_count++];
    snprintf(line->text, sizeof line->text, "%s", text);
    split_line(text, &line->rank);
    line->arrived = now_seconds();
}

void ls_error_lines_read(ls_error_lines *lines) {
    char block[4096];
    ssize_t count;
    while ((count = read(lines->pipe.reader, block, sizeof block)) > 0) {
        for (ssize_t i = 0; i < count; i++) {
            bool full = lines->partial_size == sizeof lines->partial - 1;
            if (block[i] == '\n' || full) {
                lines->partial[lines->partial_size] = '\0';
                lines->partial_size = 0;
                take_line(lines, lines->partial);
            }
            if (block[i] != '\n') {
                lines->partial[lines->partial_size++] = block[i];
            }
        }
    }
}

static bool concerns(const held_line *line, int rank, bool unnamed) {
    return rank < 0 || line->rank == rank || (line->rank < 0 && unnamed);
}

bool ls_error_lines_settle(ls_error_lines *lines, int rank, bool unnamed, char *text, size_t size) {
    const held_line *first = NULL;
    int named;
    for (size_t i = 0; i < lines->held_count; i++) {
        const held_line *line = &lines->held[i];
        if (concerns(line, rank, unnamed)) {
            first = first == NULL ? line : first;
            show(lines, line);
        }
    }
    for (size_t i = 0; i < RECENT && first == NULL; i++) {
        const held_line *line = &lines->recent[i];
        bool recent = line->text[0] != '\0' && now_seconds() - line->arrived <= recent_seconds;
        first = recent && concerns(line, rank, unnamed) ? line : NULL;
    }
    if (first != NULL) {
        snprintf(text, size, "%s", split_line(first->text, &named));
    }
    lines->held_count = lines->aged = 0;
    return first != NULL;
}

const char *ls_error_lines_hint(const ls_error_lines *lines) {
    return lines->hint;
}
