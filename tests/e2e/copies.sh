#!/usr/bin/env bash
# Batches copied on a stream of their own, as where a device has copy engines: every implementation has the bits of one stream, as
# a graph too, and is silent in the modes that find races.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
model='conv 4 k5 s2; batchnorm; relu; dropout 0.3; maxpool 2; flatten; linear 10'
labels="--data synthetic:170:1x14x14"
targets="--data synthetic:170:3x14x14:t10 --loss mse"

# train OPTIONS...: two epochs, their last steps with fewer samples, evaluated; hash and test losses are in $result.
train() {
  expect_exit 0 "$LOCKSTEP" train --no-baseline --model "$model" --batch 8 --epochs 2 --log-every 0 --bucket-bytes 1024 \
    --momentum 0.9 "$@" --json "$work/row.jsonl"
  [ ! -s "$work/err" ] || fail "$* says: $(head -n 1 "$work/err")"
  result=$(tail -n 1 "$work/row.jsonl" | jq -c '[.param_hash, (.epochs[] | .test_loss)]')
  jq -e '(.[0] | length > 0) and (.[1:] | length == 2 and all(. > 0))' <<<"$result" >/dev/null || fail "no result: $result"
}

for case in "single 1 $labels" "dp 3 $targets" "ddp 2 --ranks threads $labels" "ddp 2 --ranks processes $targets" "mpi 2 $labels"; do
  read -r impl devices options <<<"$case"
  read -ra run <<<"--impl $impl --devices $devices $options"
  train "${run[@]}"
  expected=$result
  export LOCKSTEP_VGPU_COPY_ENGINES=1
  ways=("")
  [ "$impl" = mpi ] || ways+=(--graph)
  for way in "${ways[@]}"; do
    train "${run[@]}" ${way:+"$way"}
    [ "$result" = "$expected" ] || fail "$case $way: $result with copy engines, $expected without"
    modes=(SCHED=check)
    [[ $impl == mpi || $way == --graph ]] || modes+=(SCHED=fuzz:1 GUARD=1) # mpirun takes its time
    for mode in "${modes[@]}"; do
      export "LOCKSTEP_VGPU_$mode"
      train "${run[@]}" ${way:+"$way"}
      unset "LOCKSTEP_VGPU_${mode%%=*}"
      [ "$result" = "$expected" ] || fail "$case $way: other parameters with copy engines and LOCKSTEP_VGPU_$mode"
    done
  done
  unset LOCKSTEP_VGPU_COPY_ENGINES
done

# Verification, whose captures read the batch, too.
LOCKSTEP_VGPU_COPY_ENGINES=1 expect_exit 0 "$LOCKSTEP" verify --impl all --devices 2 --model "$model" --data synthetic:90:1x14x14 \
  --batch 4 --bucket-bytes 1024
expect_error 2 "LOCKSTEP_VGPU_COPY_ENGINES is 'two', expected 0 or 1" env LOCKSTEP_VGPU_COPY_ENGINES=two "$LOCKSTEP" train \
  --data synthetic:64
