#!/usr/bin/env bash
# `lockstep train` as a user sees it: the log lines, the accuracy, the saved parameters, and what starts it.
# shellcheck disable=SC2086 # options as words
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export TMPDIR=$work/tmp
mkdir "$TMPDIR"
run="--data synthetic:1000 --batch 50 --epochs 2 --seed 3"

lines() {
  grep -c "$1" "$work/out" || true
}

# 1000 samples over 2 ranks of 50: 10 steps an epoch, one log line every 5th.
for impl in ddp "ddp --ranks threads" mpi dp; do
  expect_exit 0 "$LOCKSTEP" train --impl $impl --devices 2 $run --log-every 5 --save "$work/saved.safetensors"
  [ -s "$work/err" ] && fail "$impl: stderr: $(cat "$work/err")"
  [ "$(lines '^Train Epoch: ')" -eq 4 ] || fail "$impl: expected 4 log lines: $(cat "$work/out")"
  grep -qP '^Train Epoch: 1 \[0/1000 \(0%\)\]\tLoss: [0-9]+\.[0-9]{6}$' "$work/out" || fail "$impl: first log line"
  grep -qP '^Train Epoch: 2 \[500/1000 \(50%\)\]\tLoss: [0-9]+\.[0-9]{6}$' "$work/out" || fail "$impl: last log line"
  [ "$(grep -cP '^Test set: average loss [0-9.]+, accuracy: [0-9]+/166 \([0-9.]+%\)$' "$work/out")" -eq 2 ] ||
    fail "$impl: accuracy lines"
  grep -qP '^Trained 2000 samples in [0-9.]+ s: [0-9]+ samples/s$' "$work/out" || fail "$impl: last line"
  grep '^Train Epoch' "$work/out" >"$work/log-${impl// /}"
  mv "$work/saved.safetensors" "$work/saved-${impl// /}"
  [ -z "$(ls "$TMPDIR")" ] || fail "$impl: left behind: $(ls "$TMPDIR")"
done

# Two ranks: the same bits, whatever starts and joins them.
for other in ddp--ranksthreads mpi; do
  cmp "$work/log-ddp" "$work/log-$other" || fail "log lines of ddp and $other differ"
  cmp "$work/saved-ddp" "$work/saved-$other" || fail "parameters of ddp and $other differ"
done

# Under somebody else's mpirun.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
expect_exit 0 mpirun --oversubscribe --bind-to none -n 2 "$LOCKSTEP" train --impl mpi --devices 2 $run --log-every 5 \
  --save "$work/saved.safetensors"
grep '^Train Epoch' "$work/out" >"$work/log"
cmp "$work/log-mpi" "$work/log" || fail "log lines under mpirun differ"
cmp "$work/saved-mpi" "$work/saved.safetensors" || fail "parameters under mpirun differ"
expect_exit 2 mpirun --oversubscribe --bind-to none -n 2 "$LOCKSTEP" train --impl mpi --devices 3 $run
grep -q 'the run has 3 devices, mpirun started 2 processes' "$work/err" || fail "wrong count under mpirun"

# Steps end a run in the middle of an epoch, and go over its end when no number of epochs is given.
expect_exit 0 "$LOCKSTEP" train --impl single --devices 1 --data synthetic:1000 --batch 50 --steps 45 --log-every 5
[ "$(lines '^Train Epoch: 3 ')" -eq 1 ] || fail "45 steps of 20 an epoch: $(cat "$work/out")"
grep -q '^Trained 2250 samples' "$work/out" || fail "samples of 45 steps: $(cat "$work/out")"

# A partial last batch: 1000 = 15 * 64 + 40.
expect_exit 0 "$LOCKSTEP" train --impl single --devices 1 --data synthetic:1000 --epochs 1 --log-every 15
grep -qP '^Train Epoch: 1 \[960/1000 \(94%\)\]' "$work/out" || fail "partial batch: $(cat "$work/out")"
grep -q '^Trained 1000 samples' "$work/out" || fail "samples of an epoch: $(cat "$work/out")"
