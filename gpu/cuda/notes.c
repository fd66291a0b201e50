/* The algorithms that were chosen in this process. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gpu/cuda/math.h"

enum { NOTES = 64, NOTE_SIZE = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char notes[NOTES][NOTE_SIZE]; /* in alphabetical order */
static size_t count;
static bool more; /* than fit */

void ls_math_note(const char *format, ...) {
    char note[NOTE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(note, sizeof note, format, arguments);
    va_end(arguments);
    if (pthread_mutex_lock(&lock) != 0) {
        return;
    }
    size_t at = 0;
    while (at < count && strcmp(notes[at], note) < 0) {
        at++;
    }
    if (at == count || strcmp(notes[at], note) != 0) {
        if (count == NOTES) {
            more = true;
        } else {
            memmove(&notes[at + 1], &notes[at], (count - at) * sizeof notes[0]);
            memcpy(notes[at], note, sizeof note);
            count++;
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

void ls_math_notes(char *text, size_t size) {
    text[0] = '\0';
    if (pthread_mutex_lock(&lock) != 0) {
        return;
    }
    size_t used = 0;
    for (size_t i = 0; i < count && used < size; i++) {
        int written = snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", notes[i]);
        used += written > 0 ? (size_t)written : 0;
    }
    if (more && used < size) {
        (void)snprintf(text + used, size - used, ", ...");
    }
    (void)pthread_mutex_unlock(&lock);
}
