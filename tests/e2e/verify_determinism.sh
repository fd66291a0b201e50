#!/usr/bin/env bash
# The determinism matrix: what is promised is equal, what is not says why, and a row tells both commands.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
network=(--model 'conv 4 k5; maxpool 3; relu; flatten; dropout 0.5; linear 10' --data synthetic:200 --batch 4)

expect_exit 0 "$LOCKSTEP" verify --determinism --impl single,dp,ddp --devices 1,3 --dtype float32 --bucket-bytes 100,25MiB \
  "${network[@]}" --json "$work/rows.jsonl"
grep -qE ' 0 differ unexpectedly, 0 failed' "$work/out" || fail "$(tail -n 1 "$work/out")"
for relation in run loader 'rank kind' 'bucket size' 'bucket order'; do
  grep -qE "^$relation +ddp +equal +equal " "$work/out" || fail "$relation is not equal: $(grep "^$relation" "$work/out")"
done
grep -qE '^rank +ddp +- +equal ' "$work/out" || fail "ranks differ"
grep -qE '^implementation +ddp, single +equal +- ' "$work/out" || fail "ddp on one device is not single"
grep -qE '^world size +ddp +- +differs +samples are summed' "$work/out" || fail "no reason for what differs"
jq -s -e 'length > 20 and all(.kind == "determinism" and .status == "PASSED" and (.determinism.bits | length == 33)
  and (.command | startswith("lockstep train")) and (.determinism.other_command | startswith("lockstep train")))
  and any(.determinism.varied == "world size" and .determinism.result == "differs as documented"
    and .determinism.bits != .determinism.other_bits)
  and all(.determinism.result != "equal" or .determinism.bits == .determinism.other_bits)' \
  "$work/rows.jsonl" >/dev/null || fail "rows are not as documented"
# The command of a row gives its bits.
line=$(jq -r 'select(.determinism.varied == "bucket order" and .devices == 3) | .determinism.other_command' "$work/rows.jsonl")
bits=$(jq -r 'select(.determinism.varied == "bucket order" and .devices == 3) | .determinism.other_bits' "$work/rows.jsonl")
grep -q -- --reverse-buckets <<<"$line" || fail "no other order of buckets: $line"
eval "expect_exit 0 \"\$LOCKSTEP\" ${line#lockstep } --json \"\$work/run.json\""
[ "$(jq -r .param_hash "$work/run.json")" = "${bits%/*}" ] || fail "not reproduced: $line"

# Two terms commute: ddp and mpi agree on two devices.
expect_exit 0 "$LOCKSTEP" verify --determinism --impl mpi --devices 2 --dtype float64 --bucket-bytes 100,25MiB "${network[@]}"
grep -qE '^implementation +mpi, ddp +equal ' "$work/out" || fail "mpi is not ddp on two devices"
grep -qE '^bucket size +mpi +equal ' "$work/out" || fail "bucket sizes differ on two devices"

# A run that fails is a failed cell.
mkdir "$work/bin"
printf '#!/bin/sh\nexit 7\n' >"$work/bin/mpirun"
chmod +x "$work/bin/mpirun"
expect_exit 1 env PATH="$work/bin:$PATH" "$LOCKSTEP" verify --determinism --impl mpi --devices 1 --dtype float32 \
  --bucket-bytes 25MiB "${network[@]}"
grep -q '^run  *mpi  *FAILED' "$work/out" || fail "$(cat "$work/out")"
expect_error 2 "'--loader-threads' does not go with --determinism" "$LOCKSTEP" verify --determinism --loader-threads 1
expect_error 2 'split evenly' "$LOCKSTEP" verify --determinism --impl ddp --devices 2,3 --global-batch 8 --data synthetic:90
[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls "$TMPDIR")"
