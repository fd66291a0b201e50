#!/usr/bin/env bash
# --graph: steps as CUDA graphs have the bits of steps as they are, with everything that changes from step to step; they really
# are launched as graphs; and what cannot be captured says so.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# Masks and statistics; 11 steps an epoch, of which the last has fewer samples; evaluation between the epochs.
model='conv 4 k5 s2; batchnorm; relu; dropout 0.3; maxpool 2; flatten; linear 10'

# train OPTIONS...: the run's hash is in $hash, its counters but those of graphs and of time in $counters, its launches in $launches.
train() {
  expect_exit 0 "$LOCKSTEP" train --no-baseline --model "$model" --data synthetic:170:1x14x14 --batch 8 --epochs 2 --log-every 0 \
    --bucket-bytes 1024 "$@" --json "$work/row.jsonl"
  [ ! -s "$work/err" ] || fail "$* says: $(head -n 1 "$work/err")"
  local row
  row=$(tail -n 1 "$work/row.jsonl")
  hash=$(jq -r .param_hash <<<"$row")
  launches=$(jq .counters.graph_launches <<<"$row")
  counters=$(jq -c '.counters | del(.graph_launches, .overlap_steps, .overlap_measured, .overlap_lead_seconds)' <<<"$row")
  [ "$(jq .graph <<<"$row")" = "$([[ " $* " == *" --graph "* ]] && echo true || echo false)" ] || fail "the row does not say --graph"
}

sgd="--momentum 0.9 --lr-schedule step --step-size 1"
adam="--optimizer adam --amsgrad --warmup-steps 6 --lr-schedule cosine --dtype float64"
modes="SCHED=check SCHED=fuzz:5 GUARD=1"
for case in "single 1 $sgd" "single 1 $adam" "dp 2 $adam" "ddp 2 --ranks threads $sgd" "ddp 2 --ranks processes $adam"; do
  read -r impl devices options <<<"$case"
  read -ra run <<<"--impl $impl --devices $devices $options"
  train "${run[@]}"
  [ "$launches" -eq 0 ] || fail "$case: $launches graphs without --graph"
  expected="$hash $counters"
  train "${run[@]}" --graph
  [ "$hash $counters" = "$expected" ] || fail "$case: $hash $counters with --graph, $expected without"
  # All steps but the two before the capture and the short one at the end of each epoch, on each rank.
  steps=$((2 * ((170 + 8 * devices - 1) / (8 * devices))))
  [ "$launches" -eq $(((steps - 4) * $([ "$impl" = ddp ] && echo "$devices" || echo 1))) ] ||
    fail "$case: $launches launches in $steps steps"
  [[ $case == dp* || $case == *threads* ]] || continue
  for mode in $modes; do # which find races: they see the operations of a graph, too
    export "LOCKSTEP_VGPU_$mode"
    train "${run[@]}" --graph
    unset "LOCKSTEP_VGPU_${mode%%=*}"
    [ "$hash $counters" = "$expected" ] || fail "$case: other parameters with --graph and LOCKSTEP_VGPU_$mode"
  done
done

# Verification, of what is captured and of what cannot be.
expect_exit 0 "$LOCKSTEP" verify --graph --impl all --devices 2 --model "$model" --data synthetic:90:1x14x14 --batch 4 --ranks processes \
  --bucket-bytes 1024 --json "$work/verify.jsonl"
jq -s -e 'all(.graph) and ([.[] | select(.impl == "mpi") | .status == "SKIPPED" and (.reason | test("CUDA graph"))] | length > 0 and all)
  and ([.[] | select(.impl == ("single", "dp", "ddp"))] | length == 6 and all(.status == "PASSED" and .counters.graph_launches > 0))' \
  "$work/verify.jsonl" >/dev/null || fail "$(cat "$work/out")"
expect_exit 1 "$LOCKSTEP" verify --graph --impl single --devices 1 --model "$model" --data synthetic:90:1x14x14 --batch 4 --steps 2
grep -q 'MISTRUSTED(no step ran as a graph' "$work/out" || fail "two steps show something about graphs: $(cat "$work/out")"
expect_error 2 "^lockstep: mpi: --graph: its steps cannot be captured in a CUDA graph; .* one of single, dp, ddp" "$LOCKSTEP" train --impl mpi --devices 2 --graph --data synthetic:64
