/* What the files of the oracle's cache share. */
#ifndef LS_VERIFY_ORACLE_CACHE_PARTS_H
#define LS_VERIFY_ORACLE_CACHE_PARTS_H

#include "verify/oracle_cache.h"

typedef struct ls_oracle_entry {
    uint64_t key[2]; /* two hashes of the same bytes, so that a chance equality is out of the question */
    ls_oracle_local local;
} ls_oracle_entry;

typedef struct ls_rounding_entry {
    struct ls_rounding_entry *next;
    uint64_t key[2];
    ls_rounding_kind kind;
    ls_rounding rounding; /* l2 is the memory of all */
} ls_rounding_entry;

struct ls_oracle_cache {
    bool has_model;
    ls_model model;
    ls_oracle *oracle;
    size_t count, capacity;
    ls_oracle_entry **entries; /* pointers, so that an answer stays where it is */
    ls_rounding_entry *roundings;
    size_t computed, reused;
};

/* What the oracle reads, in its own types. */
typedef struct ls_oracle_problem {
    double *params, *x;
    int32_t *labels;
    double *targets; /* NULL: none */
    ls_oracle_input input;
} ls_oracle_problem;

/* Of a device in a step. Owned: ls_oracle_problem_close. */
ls_rc ls_oracle_problem_open(const ls_case *c, size_t step, size_t device, ls_oracle_problem *p);
void ls_oracle_problem_close(ls_oracle_problem *p);

/* Of everything that a device's answer follows from, but the model. */
void ls_oracle_cache_key(const ls_case *c, size_t step, size_t device, uint64_t key[2]);

/* Forgets the answers for another model. */
ls_rc ls_oracle_cache_use_model(ls_oracle_cache *cache, const ls_model *model);

/* The derivative of the run's loss with respect to a rank's sum of terms. */
double ls_oracle_cache_weight(const ls_case *c, const ls_oracle_loss *kind, double sum, double samples);

/* Frees what oracle_cache_rounding.c remembers. */
void ls_oracle_cache_forget_roundings(ls_oracle_cache *cache);

#endif
