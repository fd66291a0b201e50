#!/usr/bin/env bash
# Losses, optimizers and schedules as a user asks for them: they train, they change what they should, every implementation
# makes the same of them, contradictions are refused, and verification passes.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
data=synthetic:400

# train NAME OPTIONS...: a short run; its log lines (loss of each batch) end up in $work/NAME.
train() {
  local name=$1
  shift
  expect_exit 0 "$LOCKSTEP" train --data "$data" --model seed-conv --batch 16 --steps 12 --log-every 1 --dtype float64 "$@"
  grep '^Train Epoch' "$work/out" | sed 's/.*Loss: //' >"$work/$name"
  [ "$(wc -l <"$work/$name")" -eq 12 ] || fail "$name: $(wc -l <"$work/$name") log lines"
  ! grep -qi nan "$work/$name" || fail "$name: not a number"
}
same() { cmp -s "$work/$1" "$work/$2" || fail "$1 and $2 differ: $(paste "$work/$1" "$work/$2" | head -n 3)"; }
differ() { ! cmp -s "$work/$1" "$work/$2" || fail "$1 and $2 are the same"; }
# learns NAME: the last loss is lower than the first.
learns() { awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first) }' "$work/$1" || fail "$1 does not learn"; }

one=(--impl single --devices 1)
train plain "${one[@]}"
for optimizer in sgd adam adamw rmsprop; do
  train $optimizer "${one[@]}" --optimizer $optimizer
  learns $optimizer
done
same plain sgd
differ sgd adam
differ adam rmsprop
train explicit "${one[@]}" --optimizer adam --lr 0.001 --betas 0.9,0.999 --eps 1e-8 --weight-decay 0
same adam explicit
for loss in mse rmse; do
  train $loss "${one[@]}" --loss $loss
  learns $loss
done
# The first loss is that of the same outputs: the root of the other's.
awk 'NR == FNR { if (FNR == 1) m = $1; next } FNR == 1 { d = $1 - sqrt(m); exit !(d < 1e-5 && d > -1e-5) }' "$work/mse" \
  "$work/rmse" || fail "rmse is not the root of mse"
train smooth "${one[@]}" --label-smoothing 0.2
differ plain smooth

# A sum over 16 samples at a sixteenth of the rate is the mean.
train sum "${one[@]}" --reduction sum --lr 0.000625
awk 'NR == FNR { mean[FNR] = $1; next } { d = $1 / 16 - mean[FNR]; if (d > 1e-5 || d < -1e-5) exit 1 }' "$work/plain" \
  "$work/sum" || fail "a sum at a sixteenth of the rate is not the mean: $(paste "$work/plain" "$work/sum")"

# A rate of zero in the first step of the warm-up: the first two steps see the same parameters.
train warm "${one[@]}" --warmup 3
differ plain warm
[ "$(head -n 1 "$work/plain")" = "$(head -n 1 "$work/warm")" ] || fail "the first loss depends on the rate"
# Halved by every epoch (25 steps of 16): nothing changes within the first, something in the second.
train within "${one[@]}" --lr-schedule step --step-size 1 --gamma 0.5
same plain within
expect_exit 0 "$LOCKSTEP" train --data "$data" --model seed-conv --batch 16 --steps 30 --log-every 1 "${one[@]}"
grep '^Train Epoch' "$work/out" >"$work/long"
for schedule in "step --step-size 1" cosine; do
  # shellcheck disable=SC2086
  expect_exit 0 "$LOCKSTEP" train --data "$data" --model seed-conv --batch 16 --steps 30 --log-every 1 "${one[@]}" \
    --lr-schedule $schedule --epochs 2
  grep '^Train Epoch' "$work/out" >"$work/scheduled"
  same_lines=$(paste -d '\n' "$work/long" "$work/scheduled" | uniq -d | wc -l)
  [ "$same_lines" -eq 26 ] || fail "$schedule: $same_lines lines are the same, expected the first epoch's 25 and one more"
done

# Every implementation makes the same loss lines as one device on the same global batch (means over equal batches are alike).
for impl in dp ddp mpi; do
  train "$impl" --impl $impl --devices 2 --global-batch 16 --optimizer adam --loss mse
  train reference "${one[@]}" --optimizer adam --loss mse
  same "$impl" reference
done

# A shard smaller than the batch is one short step, as PyTorch's DataLoader makes it: as a batch of the shard's size.
short=(--data synthetic:50 --model seed-conv --epochs 2 --optimizer adam)
hash_of() {
  expect_exit 0 "$LOCKSTEP" train "${short[@]}" "$@" --json "$work/short.jsonl"
  tail -n 1 "$work/short.jsonl" | jq -r '.param_hash'
}
for run in "single 1 50" "dp 3 17" "ddp 2 25" "ddp 3 17" "mpi 2 25"; do
  read -r impl devices shard <<<"$run"
  whole=$(hash_of --impl "$impl" --devices "$devices" --batch "$shard")
  for batch in 64 1048576; do
    [ "$(hash_of --impl "$impl" --devices "$devices" --batch "$batch")" = "$whole" ] || fail "$run: other bits with a batch of $batch"
  done
done
expect_exit 0 "$LOCKSTEP" verify --impl single,dp,ddp,mpi --devices 1,2,3 --data synthetic:50 --model seed-conv --batch 64 \
  --dtype float64 --bucket-bytes 16KiB
grep -qE '^15 passed, 0 failed, 0 skipped, 0 mistrusted' "$work/out" || fail "short batches: $(tail -n 1 "$work/out")"

# The speed-up names its base.
expect_exit 0 "$LOCKSTEP" train --data "$data" --model seed-conv --impl ddp --devices 2 --batch 8 --epochs 1 --baseline
grep -qE '^Trained 400 samples in .* samples/s' "$work/out" || fail "no throughput: $(tail -n 3 "$work/out")"
grep -qE '^Speed-up over one device: [0-9.]+ \(ddp, 2 devices: [0-9]+ samples/s; base: single, 1 device, 8 samples a step' \
  "$work/out" || fail "no speed-up: $(tail -n 3 "$work/out")"
[ ! -s "$work/err" ] || fail "stderr is not empty: $(head -n 1 "$work/err")"

expect_error 2 "'--betas' does not belong to --optimizer sgd" "$LOCKSTEP" train --betas 0.9,0.99
expect_error 2 'nesterov needs' "$LOCKSTEP" train --nesterov --momentum 0
expect_error 2 'label-smoothing' "$LOCKSTEP" train --loss mse --label-smoothing 0.1
expect_error 2 'step-size' "$LOCKSTEP" train --lr-schedule step

# Verification, with shards that had to be padded (50 samples, 3 ranks) and the end of an epoch on the way.
for options in "--optimizer adam" "--optimizer rmsprop --centered --momentum 0.9 --lr 0.001 --lr-schedule step --step-size 1" \
  "--loss rmse --reduction sum --nesterov --warmup-steps 2" "--label-smoothing 0.1 --optimizer adamw --amsgrad"; do
  # shellcheck disable=SC2086
  expect_exit 0 "$LOCKSTEP" verify --impl single,dp,ddp,mpi --devices 1,3 --data synthetic:50 --model seed-conv --batch 8 --steps 4 \
    --bucket-bytes 16KiB $options
  grep -qE '^20 passed, 0 failed, 0 skipped, 0 mistrusted' "$work/out" || fail "$options: $(tail -n 1 "$work/out")"
done
