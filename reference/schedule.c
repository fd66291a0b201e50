#include "reference/schedule.h"

#include <math.h>

const char *ls_schedule_name(ls_schedule_kind kind) {
    static const char *const names[LS_SCHEDULE_COUNT] = {"constant", "step", "cosine"};
    return names[kind];
}

double ls_schedule_rate(const ls_schedule *schedule, double base, uint64_t step, size_t epoch, size_t epochs) {
    static const double pi = 3.14159265358979323846;
    double rate = base;
    if (schedule->kind == LS_SCHEDULE_STEP) {
        size_t drops = epoch / schedule->step_size;
        rate *= pow(schedule->gamma, (double)drops);
    } else if (schedule->kind == LS_SCHEDULE_COSINE) {
        rate *= (1 + cos(pi * (double)epoch / (double)epochs)) / 2;
    }
    if (step < schedule->warmup_steps) {
        rate *= (double)step / (double)schedule->warmup_steps;
    }
    return rate;
}
