#include "bench/determinism_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impls/launch.h"
#include "impls/options.h"

static const char *text_of(const json_t *rank, const char *key) {
    const char *text = json_string_value(json_object_get(rank, key));
    return text != NULL ? text : "none";
}

static ls_rc take_bits(const ls_outcome *outcome, ls_run_bits *out) {
    out->ranks = json_array_size(outcome->ranks);
    out->bits = ls_calloc(out->ranks, sizeof *out->bits, "hashes");
    for (size_t r = 0; out->bits != NULL && r < out->ranks; r++) {
        const json_t *rank = json_array_get(outcome->ranks, r);
        snprintf(out->bits[r], LS_BITS_TEXT, "%.16s/%.16s", text_of(rank, "param_hash"), text_of(rank, "grad_hash"));
    }
    return out->bits != NULL ? LS_OK : LS_DEVICE_FAILED;
}

static ls_rc make(const char *program, const ls_run *run, ls_run_bits *out) {
    ls_outcome outcome;
    ls_rc rc = ls_launch(program, run, &outcome);
    if (rc == LS_OK) {
        rc = take_bits(&outcome, out);
    } else if (rc == LS_DEVICE_FAILED) {
        snprintf(out->failure, sizeof out->failure, "%s", outcome.reason);
        rc = LS_OK;
    }
    ls_outcome_release(&outcome);
    return rc;
}

static ls_run_bits *add(ls_run_cache *cache, const char *key) {
    ls_run_bits **grown = realloc(cache->runs, (cache->count + 1) * sizeof(ls_run_bits *));
    if (grown == NULL) {
        return NULL;
    }
    cache->runs = grown;
    ls_run_bits *bits = calloc(1, sizeof *bits);
    if (bits == NULL) {
        return NULL;
    }
    bits->key = strdup(key);
    cache->runs[cache->count++] = bits;
    return bits->key != NULL ? bits : NULL;
}

ls_rc ls_run_cache_get(ls_run_cache *cache, const ls_run *run, size_t repeat, const ls_run_bits **out) {
    char line[4096], key[4200];
    ls_options_line("lockstep", LS_COMMAND_TRAIN, run, line, sizeof line);
    snprintf(key, sizeof key, "%zu: %s", repeat, line);
    for (size_t i = 0; i < cache->count; i++) {
        if (strcmp(cache->runs[i]->key, key) == 0) {
            *out = cache->runs[i];
            return LS_OK;
        }
    }
    ls_run_bits *made = add(cache, key);
    if (made == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for %zu runs", cache->count + 1);
    }
    *out = made;
    return make(cache->program, run, made);
}

void ls_run_cache_free(ls_run_cache *cache) {
    for (size_t i = 0; i < cache->count; i++) {
        free(cache->runs[i]->key);
        free(cache->runs[i]->bits);
        free(cache->runs[i]);
    }
    free(cache->runs);
    *cache = (ls_run_cache){0};
}
