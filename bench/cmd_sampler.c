/* lockstep sampler: which samples each rank takes in an epoch, in order. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/cmd.h"
#include "bench/flags.h"
#include "reference/sampler.h"

enum { MAX_WORLD = 65536 };
static const size_t max_samples = (size_t)1 << 32;

/* One line: "rank R: index index ...". */
static ls_rc print_rank(const ls_sampler *sampler, size_t epoch, size_t head) {
    size_t length = ls_sampler_length(sampler);
    size_t *order = ls_calloc(length, sizeof *order, "an order of samples");
    if (order == NULL) {
        return LS_DEVICE_FAILED;
    }
    if (ls_sampler_order(sampler, epoch, order) != 0) {
        free(order);
        return ls_fail(LS_DEVICE_FAILED, "out of memory for an order of %zu samples", sampler->count);
    }
    printf("rank %zu:", sampler->rank);
    for (size_t i = 0; i < length && i < head; i++) {
        printf(" %zu", order[i]);
    }
    printf("\n");
    free(order);
    return LS_OK;
}

ls_rc ls_command_sampler(int argc, char **argv) {
    ls_sampler sampler = {.count = SIZE_MAX};
    size_t rank = SIZE_MAX, epoch = 0, head = SIZE_MAX;
    bool no_shuffle = false, help = false;
    const ls_flag flags[] = {
        {"--n", "N", LS_FLAG_SIZE, &sampler.count, 0, max_samples, "samples of the data set"},
        {"--world", "W", LS_FLAG_SIZE, &sampler.world, 1, MAX_WORLD, "ranks"},
        {"--rank", "R", LS_FLAG_SIZE, &rank, 0, MAX_WORLD - 1, "this rank only (default: all)"},
        {"--epoch", "E", LS_FLAG_SIZE, &epoch, 0, (size_t)1 << 40, "epoch, from 0 [0]"},
        {"--seed", "S", LS_FLAG_SEED, &sampler.seed, 0, 0, "seed, to which the epoch is added [0]"},
        {"--drop-last", NULL, LS_FLAG_SWITCH, &sampler.drop_last, 0, 0, "drop what is too little for all ranks"},
        {"--no-shuffle", NULL, LS_FLAG_SWITCH, &no_shuffle, 0, 0, "in the order of the data set"},
        {"--head", "K", LS_FLAG_SIZE, &head, 1, max_samples, "the first K samples of a rank (default: all)"},
        {0}};
    ls_flag_words words;
    LS_TRY(ls_flags_parse(flags, "lockstep sampler --n N --world W [options]", argc, argv, 0, &words, &help));
    if (help) {
        return LS_OK;
    }
    if (sampler.count == SIZE_MAX || sampler.world == 0) {
        return ls_fail(LS_BAD_INPUT, "sampler needs the samples and the ranks: lockstep sampler --n N --world W");
    }
    if (rank != SIZE_MAX && rank >= sampler.world) {
        return ls_fail(LS_BAD_INPUT, "option '--rank': expected 0 to %zu with --world %zu, found %zu",
                       sampler.world - 1, sampler.world, rank);
    }
    sampler.shuffle = !no_shuffle;
    size_t first = rank != SIZE_MAX ? rank : 0, end = rank != SIZE_MAX ? rank + 1 : sampler.world;
    for (sampler.rank = first; sampler.rank < end; sampler.rank++) {
        LS_TRY(print_rank(&sampler, epoch, head));
    }
    return LS_OK;
}
