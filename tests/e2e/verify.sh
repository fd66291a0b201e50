#!/usr/bin/env bash
# lockstep verify as a user runs it: a small matrix passes, says what it did, and leaves nothing behind; bad input is refused.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

# Every implementation, both kinds of rank, both models, both dtypes, on small synthetic data.
expect_exit 0 "$LOCKSTEP" verify --impl single,dp,ddp,mpi --devices 1,2 --model all --bucket-bytes 16KiB --batch 4 --data synthetic:600 \
  --json "$work/rows.jsonl"
# A model and dtype: single on two global batches; dp, ddp twice and mpi on two device counts. Two models in two types, and
# `exact` in float32.
grep -qE '^50 passed, 0 failed, 0 skipped, 0 mistrusted' "$work/out" || fail "$(tail -n 1 "$work/out")"
[ ! -s "$work/err" ] || fail "stderr is not empty: $(head -n 1 "$work/err")"
jq -s -e 'length == 50 and all(.kind == "verify" and .schema == 1 and .status == "PASSED" and .reason == null
  and (.verification.layers | length == 13) and (.param_hash | length == 16) and (.command | startswith("lockstep verify")))' \
  "$work/rows.jsonl" >/dev/null || fail "a row is not as documented"
# The bound is 1e-12 of a tensor, over that tensor again: two roundings.
jq -s -e '[.[] | select(.dtype == "float64") | .verification.layers[] | select(.layer == 3)]
  | length == 20 and all(.status == "PASSED" and .observed > 0 and .observed <= .bound
    and (.bound / 1e-12 - 1 | fabs) <= 4.5e-16)' \
  "$work/rows.jsonl" >/dev/null || fail "float64 was not measured against the oracle"
jq -s -e '[.[] | .verification.layers[] | select(.layer == 5 and .status != "SKIPPED")]
  | length == 10 and all(.status == "PASSED" and .observed == 0 and .bound == 0)' \
  "$work/rows.jsonl" >/dev/null || fail "exact arithmetic was not compared"
jq -s -e '[.[] | .verification.layers[] | select(.name == "each update" or .name == "inputs and answers")]
  | length == 100 and all(.status == "PASSED")' "$work/rows.jsonl" >/dev/null || fail "inputs or updates were not checked"
jq -s -e '[.[] | select(.devices == 2 and .impl != "dp") | .counters.allreduces] | length == 15 and all(. > 0)' \
  "$work/rows.jsonl" >/dev/null || fail "an implementation did not reduce"

# The line that reproduces a case runs that case again, to the same bits.
line=$(jq -r 'select(.impl == "ddp" and .ranks == "threads" and .devices == 2 and .dtype == "float32") | .command' \
  "$work/rows.jsonl" | head -n 1)
hash=$(jq -r 'select(.impl == "ddp" and .ranks == "threads" and .devices == 2 and .dtype == "float32") | .param_hash' \
  "$work/rows.jsonl" | head -n 1)
read -ra words <<<"$line"
expect_exit 0 "$LOCKSTEP" "${words[@]:1}" --json "$work/again.jsonl"
jq -s -e --arg hash "$hash" 'length == 2 and .[0].impl == "single" and .[1].impl == "ddp" and .[1].param_hash == $hash' \
  "$work/again.jsonl" >/dev/null || fail "not reproduced: $line"

# The second engine of the layer math, convolutions and linear layers, in both types; its line reproduces it.
expect_exit 0 "$LOCKSTEP" verify --math im2col --impl single,dp,ddp --devices 2 --ranks threads --model seed-cnn --batch 4 \
  --bucket-bytes 16KiB --data synthetic:600 --json "$work/im2col.jsonl"
jq -s -e 'length >= 6 and all(.status == "PASSED" and .math == "im2col" and (.environment.math | contains("im2col"))
  and (.command | contains("--math im2col")))' "$work/im2col.jsonl" >/dev/null || fail "the second engine: $(tail -n 1 "$work/out")"

# What an implementation cannot do is skipped, and a verification in which everything was skipped has shown nothing.
expect_exit 1 "$LOCKSTEP" verify --impl mpi --ranks threads --devices 2 --model seed-conv --dtype float32 \
  --bucket-bytes 4KiB --batch 4 --data synthetic:600
grep -q 'SKIPPED(mpi has no ranks as threads)' "$work/out" || fail "no reason for the skipped case"
grep -qE '^1 passed, 0 failed, 1 skipped' "$work/out" || fail "$(tail -n 2 "$work/out")"

# Without mpirun mpi is skipped under all, and refused when asked for.
mkdir "$work/bin"
expect_exit 0 env PATH="$work/bin" "$LOCKSTEP" verify --impl all --devices 1 --model seed-conv --dtype float32 --batch 4 \
  --bucket-bytes 4KiB --ranks processes --data synthetic:600
grep -qE '^mpi .* SKIPPED\(' "$work/out" || fail "mpi is not skipped without mpirun"
expect_error 2 mpirun env PATH="$work/bin" "$LOCKSTEP" verify --impl mpi --devices 1 --data synthetic:600

expect_error 2 "'?--steps'?" "$LOCKSTEP" verify --steps 0
expect_error 2 devices "$LOCKSTEP" verify --devices 1,99 --data synthetic:600
expect_error 2 'refus|mpirun' env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$LOCKSTEP" verify --data synthetic:600

[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls "$TMPDIR")"
await 10 no_shm_left || fail "shared memory was left behind: $(shm_unmapped)"
