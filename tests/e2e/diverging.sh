#!/usr/bin/env bash
# A training that diverges is a training like any other: it says nan, as PyTorch does, saves what it has, and is not taken for a
# wrong implementation. Its numbers are judged while they stay in range.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$work"
what=(--data synthetic:640 --model "flatten; linear 16; linear 10" --loss mse)

for impl in single dp ddp mpi; do
  devices=$([ $impl = single ] && echo 1 || echo 2)
  rm -f n.safetensors run.json
  expect_exit 0 "$LOCKSTEP" train --impl $impl --devices "$devices" "${what[@]}" --lr 100 --batch 32 --log-every 1 --epochs 1 --no-baseline --save n.safetensors \
    --checkpoint c.safetensors --json run.json
  grep -qP '^Train Epoch: 1 .*\tLoss: nan$' out || fail "$impl: no loss that is nan: $(cat out)"
  grep -q '^Test set: average loss nan, ' out || fail "$impl: $(cat out)"
  grep -q '"loss":null}' run.json || fail "$impl: losses of $(cat run.json)"
  grep -q '"test_loss":null' run.json || fail "$impl: test loss of $(cat run.json)"
  [ -s n.safetensors ] && [ -s c.safetensors ] || fail "$impl: nothing saved"
done
expect_exit 0 "$LOCKSTEP" eval "${what[@]}" --load n.safetensors --json eval.json
grep -q '"test_loss":null' eval.json || fail "eval: $(cat eval.json)"

# No check finds a fault in it, and none says that it passed.
expect_exit 1 "$LOCKSTEP" verify --impl single,ddp --devices 2 "${what[@]}" --batch 8 --lr 100 --steps 8 --ranks threads \
  --bucket-bytes 4KiB
grep -qE '^0 passed, 0 failed, 0 skipped, 4 mistrusted' out || fail "verify: $(cat out)"
[ "$(grep -cE 'MISTRUSTED\(only the first [1-7] of 8 steps are judged: in step [1-7] .* is beyond float(32|64)' out)" -eq 4 ] ||
  fail "verify: $(cat out)"
# What is wrong before it leaves the range is found all the same.
expect_exit 1 env LOCKSTEP_MUTANT=no_division "${LOCKSTEP}-mutants" verify --impl ddp --devices 2 "${what[@]}" --batch 8 --lr 100 --steps 8 \
  --ranks threads --bucket-bytes 4KiB --dtype float32
grep -q 'not averaged: 2 times the mean' out || fail "a fault in a diverging run: $(cat out)"

expect_exit 0 "$LOCKSTEP" sweep --impl ddp --devices 2 --ranks threads --scaling weak "${what[@]}" --batch 8 --lr 1e3 --steps 12 \
  --warmup 3 -o sweep.jsonl
grep -q '"verification":"MISTRUSTED"' sweep.jsonl || fail "sweep: $(cat sweep.jsonl)"
