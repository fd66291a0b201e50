/* For tests: the ranges of a thread as text. */
#ifndef LS_TESTS_IMPLS_RANGE_TRACE_H
#define LS_TESTS_IMPLS_RANGE_TRACE_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gpu/vgpu/ranges.h"
#include "gpu/vgpu/runtime.h"
#include "impls/buckets.h"
#include "impls/run.h"

enum { TRACE_TEXT = 4096 };

/* What one thread did, written as "step 0(input()forward()...)". */
typedef struct trace {
    char text[TRACE_TEXT];
    size_t used;
    size_t begun;     /* ranges */
    int open, lowest; /* ranges now; 0, or below where one ended that had not begun */
    bool wrong;       /* a depth or a domain that cannot be */
    size_t fails_at;  /* a device breaks as the range of this number begins; SIZE_MAX: none */
    int device;       /* that device */
} trace;

/* Of this thread; NULL: it is not looked at. */
static _Thread_local trace *traced;

static inline void trace_append(trace *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void trace_append(trace *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(t->text + t->used, TRACE_TEXT - t->used, format, arguments);
    va_end(arguments);
    bool fits = length >= 0 && t->used + (size_t)length < TRACE_TEXT;
    t->used += fits ? (size_t)length : 0;
    t->wrong = t->wrong || !fits; /* not asserted: this may be another thread than the test's */
}

/* For vgpu_ranges_listen. */
static inline void trace_listen(const vgpu_range_event *event) {
    trace *t = traced;
    if (t == NULL) {
        return;
    }
    t->wrong = t->wrong || strcmp(event->domain, "lockstep") != 0;
    if (event->name == NULL) {
        t->open--;
        t->lowest = t->open < t->lowest ? t->open : t->lowest;
        t->wrong = t->wrong || event->depth != t->open;
        trace_append(t, ")");
        return;
    }
    t->wrong = t->wrong || event->depth != t->open;
    t->open++;
    trace_append(t, "%s", event->name);
    if (event->numbered) {
        trace_append(t, " %llu", (unsigned long long)event->number);
    }
    trace_append(t, "(");
    if (t->begun++ == t->fails_at) {
        vgpu_device_wait(t->device); /* on a broken device nothing runs */
        vgpu_device_fail(t->device, cudaErrorLaunchFailure);
    }
}

/* This thread is traced from now on, until trace_check or traced is NULL. */
static inline void trace_begin(trace *t) {
    *t = (trace){.fails_at = SIZE_MAX};
    traced = t;
}

/* Every range has ended, and none twice. */
static inline void trace_check(const trace *t) {
    traced = NULL;
    assert_false(t->wrong);
    assert_int_equal(t->open, 0);
    assert_int_equal(t->lowest, 0);
}

/* "bucket 0()bucket 1()..." for the buckets of a plan, with the given words, of the last its own inside; the text stays until
 * the next call. */
static inline const char *trace_buckets(const ls_run *run, const ls_model *model, const char *name, const char *inside,
                                        const char *last_inside) {
    static char text[TRACE_TEXT];
    ls_bucket_plan plan;
    size_t used = 0;
    ls_bucket_plan_make(model, run->dtype, run->bucket_bytes, &plan);
    assert_true(plan.count > 1);
    for (size_t i = 0; i < plan.count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %zu(%s)", name, i,
                                 i + 1 < plan.count ? inside : last_inside);
    }
    return text;
}

#endif
