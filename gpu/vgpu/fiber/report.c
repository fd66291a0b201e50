/* Reports, and the outputs of a launch. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gpu/vgpu/fiber/block.h"

enum { MAX_REPORTS = 64, REPORT_BYTES = 400, KEY_BYTES = 160 };

typedef struct report {
    ls_fiber_place place;
    const char *format; /* with kernel and place: what makes two reports the same */
    char kernel[KEY_BYTES];
    char text[REPORT_BYTES];
} report;

static report reports[MAX_REPORTS];
static size_t report_count;

typedef struct output {
    const char *name;
    unsigned char *memory;
    size_t element, count;
} output;

static output outputs[LS_FIBER_MAX_OUTPUTS];
static size_t output_count;

static bool same(const report *r, ls_fiber_place place, const char *format) {
    return r->format == format && r->place.line == place.line && strcmp(r->place.file, place.file) == 0 &&
           strncmp(r->kernel, fiber_now.kernel, KEY_BYTES - 1) == 0;
}

void fiber_report(ls_fiber_place place, const char *format, ...) {
    for (size_t i = 0; i < report_count; i++) {
        if (same(&reports[i], place, format)) {
            return;
        }
    }
    if (report_count == MAX_REPORTS) {
        return; /* enough to see that all is wrong */
    }
    report *r = &reports[report_count++];
    r->place = place;
    r->format = format;
    (void)snprintf(r->kernel, sizeof r->kernel, "%s", fiber_now.kernel);
    /* a template's name comes in the launch's parentheses */
    int parentheses = fiber_now.kernel[0] == '(' ? 1 : 0;
    int length = (int)strlen(fiber_now.kernel) - 2 * parentheses;
    int used = snprintf(r->text, sizeof r->text, "%s:%d: kernel %.*s, block %u: ", place.file, place.line, length,
                        fiber_now.kernel + parentheses, fiber_now.index);
    if (used < 0 || (size_t)used >= sizeof r->text) {
        return; /* the kernel's name fills the line */
    }
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(r->text + used, sizeof r->text - (size_t)used, format, arguments);
    va_end(arguments);
}

size_t ls_fiber_reports(void) {
    return report_count;
}

const char *ls_fiber_report(size_t index) {
    return reports[index].text;
}

void ls_fiber_clear(void) {
    report_count = 0;
    output_count = 0;
}

void ls_fiber_output(const char *name, void *memory, size_t element, size_t count) {
    if (output_count == LS_FIBER_MAX_OUTPUTS) {
        fiber_report((ls_fiber_place){name, 0}, "more than %d outputs of one launch", LS_FIBER_MAX_OUTPUTS);
        return;
    }
    memset(memory, LS_FIBER_POISON, element * count);
    outputs[output_count++] = (output){name, memory, element, count};
}

static bool unwritten(const output *o, size_t index) {
    for (size_t i = 0; i < o->element; i++) {
        if (o->memory[index * o->element + i] != LS_FIBER_POISON) {
            return false;
        }
    }
    return true;
}

void fiber_outputs_check(void) {
    for (size_t k = 0; k < output_count; k++) {
        const output *o = &outputs[k];
        size_t missing = 0, first = 0;
        for (size_t i = o->count; i-- > 0;) {
            if (unwritten(o, i)) {
                missing++;
                first = i;
            }
        }
        if (missing > 0) {
            fiber_report((ls_fiber_place){o->name, 0}, "output %s: %zu of %zu elements are unwritten, the first is %zu",
                         o->name, missing, o->count, first);
        }
    }
    output_count = 0;
}
