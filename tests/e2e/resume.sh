#!/usr/bin/env bash
# 2 epochs, a checkpoint and 2 more equal 4 epochs bit for bit: log lines, test lines, final parameters.
# shellcheck disable=SC2086 # options as words
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
run="--data synthetic:600 --batch 50 --seed 3 --lr 0.05 --momentum 0.9 --log-every 2"

lines() { grep -E '^(Train Epoch|Test set)' "$work/out" || true; }

for dtype in float32 float64; do
  for impl in "single --devices 1" "ddp --devices 2" "ddp --ranks threads --devices 2" "dp --devices 3" "mpi --devices 2"; do
    [ $dtype = float32 ] || [ "$impl" = "ddp --devices 2" ] || continue
    words="--impl $impl --dtype $dtype $run"
    expect_exit 0 "$LOCKSTEP" train $words --epochs 4 --save "$work/whole.safetensors"
    lines >"$work/whole.log"
    expect_exit 0 "$LOCKSTEP" train $words --epochs 2 --checkpoint "$work/c.safetensors"
    lines >"$work/parts.log"
    expect_exit 0 "$LOCKSTEP" train $words --epochs 4 --resume "$work/c.safetensors" --checkpoint "$work/c.safetensors" \
      --save "$work/parts.safetensors"
    lines >>"$work/parts.log"
    grep -q '^Resumed from .*: 2 epochs' "$work/out" || fail "$words: $(cat "$work/out")"
    [ -s "$work/whole.log" ] || fail "$words: no log lines"
    cmp "$work/whole.log" "$work/parts.log" || fail "$words: log lines differ"
    cmp "$work/whole.safetensors" "$work/parts.safetensors" || fail "$words: parameters differ"
    expect_error 2 "it has 4 epochs, the run is to have 4" "$LOCKSTEP" train $words --epochs 4 --resume "$work/c.safetensors"
    expect_exit 0 "$LOCKSTEP" eval --load "$work/c.safetensors" --data synthetic:600 --dtype $dtype
  done
done

# The same with state of every kind: Adam's moments, batchnorm's statistics, dropout's masks, a schedule.
spec='conv 4 k3; batchnorm; relu; maxpool 4; flatten; dropout 0.5; linear 10'
for impl in "single --devices 1" "ddp --devices 2" "dp --devices 2" "mpi --devices 2"; do
  words="--impl $impl --data synthetic:200 --batch 20 --seed 5 --optimizer adam --lr-schedule step --step-size 1 --log-every 1"
  "$LOCKSTEP" train $words --model "$spec" --epochs 2 --save "$work/whole.safetensors" >"$work/whole.log"
  "$LOCKSTEP" train $words --model "$spec" --epochs 1 --checkpoint "$work/c.safetensors" >"$work/parts.log"
  "$LOCKSTEP" train $words --model "$spec" --epochs 2 --resume "$work/c.safetensors" --save "$work/parts.safetensors" \
    --json "$work/row.jsonl" >>"$work/parts.log"
  cmp <(grep '^T[re][as]' "$work/whole.log" | grep -v '^Trained') <(grep '^T[re][as]' "$work/parts.log" | grep -v '^Trained') ||
    fail "$impl: log lines differ"
  cmp "$work/whole.safetensors" "$work/parts.safetensors" || fail "$impl: saved values differ"
  made=$((200 / 20 / ${impl##* })) # in the second epoch: counters know nothing of the first
  [ "$(tail -n 1 "$work/row.jsonl" | jq .counters.steps)" -eq "$made" ] || fail "$impl: counters of other steps than $made"
done
[ -z "$(ls "$TMPDIR")" ] || fail "left behind: $(ls "$TMPDIR")"

# A run killed while it trains and writes leaves a whole checkpoint, from which it goes on.
rm "$work/c.safetensors"
"$LOCKSTEP" train --impl ddp --devices 2 $run --epochs 100000 --checkpoint "$work/c.safetensors" >"$work/killed.out" 2>&1 &
pid=$!
await 60 test -s "$work/c.safetensors" || fail "no checkpoint: $(cat "$work/killed.out")"
kill -KILL $pid 2>/dev/null || fail "ended before it was killed: $(cat "$work/killed.out")"
wait $pid 2>/dev/null || true
expect_exit 0 "$LOCKSTEP" eval --load "$work/c.safetensors" --data synthetic:600
epochs=$(head -c 2000 "$work/c.safetensors" | grep -ao '"epoch":"[0-9]*"' | grep -o '[0-9]*')
expect_exit 0 "$LOCKSTEP" train --impl ddp --devices 2 $run --epochs $((epochs + 1)) --resume "$work/c.safetensors"
grep -q "^Train Epoch: $((epochs + 1)) " "$work/out" || fail "not gone on after epoch $epochs: $(cat "$work/out")"

# Other runs are refused before any training.
expect_exit 0 "$LOCKSTEP" train --impl ddp --devices 2 $run --epochs 1 --checkpoint "$work/c.safetensors"
refused() {
  local pattern=$1
  shift
  expect_error 2 "$pattern" "$LOCKSTEP" train $run --epochs 2 --resume "$work/c.safetensors" "$@"
}
refused "model seed-cnn, this run has seed-conv" --impl ddp --devices 2 --model seed-conv
refused "dtype float32, this run has float64" --impl ddp --devices 2 --dtype float64
refused "ranks 2, this run has 3" --impl ddp --devices 3
refused "ranks 2, this run has 1" --impl dp --devices 2
refused "global batch 100, this run has 60" --impl ddp --devices 2 --batch 30
refused "seed 3, this run has 4" --impl ddp --devices 2 --seed 4
refused "samples=600, this run has .*samples=700" --impl ddp --devices 2 --data synthetic:700
refused "optimizer sgd with momentum_buffer, this run has sgd;" --impl ddp --devices 2 --momentum 0
refused "loss cross-entropy .*, this run has mse" --impl ddp --devices 2 --loss mse
refused "label-smoothing 0, this run has .*--label-smoothing 0.10" --impl ddp --devices 2 --label-smoothing 0.1
refused "normalize none, this run has 0.5,0.5" --impl ddp --devices 2 --normalize 0.5,0.5
# The same number of samples, but others: only the ranks, which read them, can tell.
head -c $((600 * 784)) /dev/zero >"$work/x.u8"
head -c 600 /dev/zero >"$work/y.u8"
expect_exit 0 "$LOCKSTEP" data import "$work/zeros.raw" --train-x "$work/x.u8" --train-y "$work/y.u8" --shape 28x28 --classes 10 \
  --test-x "$work/x.u8" --test-y "$work/y.u8"
for impl in "ddp --devices 2" "ddp --devices 2 --ranks threads"; do
  refused "training set of 600 samples of hash .*, this run has 600 samples of hash" --impl $impl --data "raw:$work/zeros.raw"
done
# What may change.
expect_exit 0 "$LOCKSTEP" train $run --impl ddp --devices 2 --epochs 2 --resume "$work/c.safetensors" --lr 0.1 --momentum 0.5 \
  --weight-decay 0.01 --nesterov --lr-schedule cosine
# An own network is known by all of its layers, however they are typed: this relu has no parameters.
own="--impl single --data synthetic:200 --batch 20"
expect_exit 0 "$LOCKSTEP" train $own --model 'flatten; linear 8; relu; linear 10' --epochs 1 --checkpoint "$work/own.safetensors"
expect_exit 0 "$LOCKSTEP" train $own --model 'flatten;linear 8;  relu;linear 10' --epochs 2 --resume "$work/own.safetensors"
expect_error 2 "made with --model input 1x28x28; flatten; linear 8; relu; linear 10, this run has .*linear 8; linear 10;" \
  "$LOCKSTEP" train $own --model 'flatten; linear 8; linear 10' --epochs 2 --resume "$work/own.safetensors"
# A run that ends within its first epoch, or in the one after a checkpoint (of 6 steps), would write none.
expect_error 2 "first after step 12, .* ends after step 11; .*--save" "$LOCKSTEP" train --impl single $run --steps 11 \
  --checkpoint "$work/none.safetensors"
[ ! -e "$work/none.safetensors" ] || fail "a checkpoint within an epoch"
expect_exit 0 "$LOCKSTEP" train --impl single $run --steps 12 --checkpoint "$work/whole_epoch.safetensors"
[ -s "$work/whole_epoch.safetensors" ] || fail "no checkpoint after a whole epoch"
refused "next after step 12, .* ends after step 11" --impl ddp --devices 2 --steps 11 --checkpoint "$work/c.safetensors"
expect_error 2 "ends in .safetensors" "$LOCKSTEP" train $run --checkpoint "$work/c.pth"
expect_error 2 "/nonexistent" "$LOCKSTEP" train $run --checkpoint /nonexistent/c.safetensors
head -c 1000 "$work/c.safetensors" >"$work/cut.safetensors"
expect_error 2 "cut.safetensors: .*truncated" "$LOCKSTEP" train $run --resume "$work/cut.safetensors"
