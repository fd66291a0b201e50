#!/usr/bin/env bash
# The modes that find races: correct runs of every implementation are silent in all of them, and have the same bits. With
# RACES_SEEDS=20 more orders are tried than the suite has time for.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
seeds=${RACES_SEEDS:-4}
model='conv 6 k3; batchnorm; relu; maxpool 2; dropout 0.25; flatten; linear 10'

# run IMPL DEVICES OPTIONS...: a few steps without a host that waits in between; the parameters' sum is in $sum.
run() {
  local impl=$1 devices=$2
  shift 2
  expect_exit 0 "$LOCKSTEP" train --no-baseline --impl "$impl" --devices "$devices" --model "$model" --data synthetic:96 --batch 4 --steps 5 \
    --epochs 1 --log-every 100 --bucket-bytes 4096 --save "$work/p.safetensors" "$@"
  [ ! -s "$work/err" ] || fail "$impl in $mode: $(head -1 "$work/err")"
  sum=$(md5sum <"$work/p.safetensors")
}

for case in "single 1" "dp 3" "ddp 3 --ranks threads" "ddp 2 --ranks processes" "mpi 2"; do
  read -ra arguments <<<"$case"
  mode=async
  run "${arguments[@]}"
  expected=$sum
  modes=(SCHED=check GUARD=1 "DELAY=kernel@0=2ms,copy=1ms" "DELAY=collective@1=5ms,name:scale=2ms")
  for ((seed = 0; seed < seeds; seed++)); do
    [[ $case != mpi* ]] || ((seed == 2)) || continue # mpirun takes its time
    modes+=("SCHED=fuzz:$seed")
  done
  for mode in "${modes[@]}"; do
    export "LOCKSTEP_VGPU_$mode"
    run "${arguments[@]}"
    unset "LOCKSTEP_VGPU_${mode%%=*}"
    [ "$sum" = "$expected" ] || fail "$case: other parameters with LOCKSTEP_VGPU_$mode"
  done
done

# Poison alone, as on real GPUs.
mode=poison
LOCKSTEP_POISON=1 run mpi 2
[ "$sum" = "$expected" ] || fail "mpi: other parameters with LOCKSTEP_POISON"

for bad in SCHED=often SCHED=fuzz:x GUARD=2 DELAY=kernel; do
  expect_error 2 "LOCKSTEP_VGPU_${bad%%=*} is '${bad#*=}', expected" env "LOCKSTEP_VGPU_$bad" "$LOCKSTEP" train --data synthetic:64
done

# Isolation takes every run but those whose ranks meet in collectives.
export LOCKSTEP_VGPU_SCHED=isolate
mode=isolate
for case in "single 1" "dp 2" "ddp 1" "mpi 2"; do
  read -ra arguments <<<"$case"
  run "${arguments[@]}"
done
for ranks in threads processes; do
  expect_error 2 "ddp cannot run on 2 devices: LOCKSTEP_VGPU_SCHED=isolate" "$LOCKSTEP" train --impl ddp --devices 2 \
    --ranks $ranks --data synthetic:96 --steps 5
done
expect_error 2 "ddp cannot run here: LOCKSTEP_VGPU_SCHED=isolate" env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=localhost \
  MASTER_PORT=29500 "$LOCKSTEP" train --impl ddp --devices 2 --data synthetic:96 --steps 5
small=(--impl all --model "$model" --data synthetic:96 --batch 4 --dtype float32 --bucket-bytes 4096)
expect_exit 0 "$LOCKSTEP" verify "${small[@]}" --devices 1,2 --steps 1
[ "$(grep -c 'SKIPPED(LOCKSTEP_VGPU_SCHED=isolate' "$work/out")" -eq 2 ] || fail "verify: $(cat "$work/out")"
grep -q ' passed, 0 failed, ' "$work/out" || fail "verify: $(tail -n 1 "$work/out")"
expect_exit 0 "$LOCKSTEP" sweep "${small[@]}" --devices 2 --scaling weak --steps 2 -o "$work/isolated.jsonl"
[ "$(grep -c 'SKIPPED: LOCKSTEP_VGPU_SCHED=isolate' "$work/out")" -eq 1 ] || fail "sweep: $(cat "$work/out")"
expect_error 2 "option '--ranks': threads cannot run here: LOCKSTEP_VGPU_SCHED=isolate" "$LOCKSTEP" micro --allreduce --ranks threads
expect_exit 0 "$LOCKSTEP" micro --allreduce -b 64 -e 64 -n 1 -w 0
[ "$(grep -c '^lockstep: --ranks .*: SKIPPED (LOCKSTEP_VGPU_SCHED=isolate' "$work/err")" -eq 2 ] || fail "micro: $(cat "$work/err")"
grep -q 'by MPI' "$work/out" || fail "micro without MPI: $(cat "$work/out")"
unset LOCKSTEP_VGPU_SCHED

# Before anything is printed, whatever the command.
for command in info train verify sweep eval selftest micro; do
  for bad in ISA=avx2 ISA=AVX9 COUNT=0 MEMORY=1 FUSE=off; do
    expect_error 2 "environment: LOCKSTEP_VGPU_${bad%%=*} is '${bad#*=}', expected" env "LOCKSTEP_VGPU_$bad" "$LOCKSTEP" $command
    [ ! -s "$work/out" ] || fail "$command in $bad: $(head -1 "$work/out")"
  done
done

# No kernel is left out of the proof that kernels declare what they use.
grep -oE 'ls_(kernel|conv|linear)_[a-z_]+\(' "$LOCKSTEP_SOURCE/gpu/kernels/kernels.h" "$LOCKSTEP_SOURCE/gpu/layer_math.h" -h |
  grep -vE '_(out_height|out_width|shape_check|pools)\(' | sort -u >"$work/kernels"
[ "$(wc -l <"$work/kernels")" -gt 30 ] || fail "the list of kernels is not found"
while read -r kernel; do
  grep -qF "$kernel" "$LOCKSTEP_SOURCE/tests/gpu/test_vgpu_declarations.c" || fail "$kernel is not in test_vgpu_declarations.c"
done <"$work/kernels"
echo "silent and equal in every mode; $(wc -l <"$work/kernels") calls are held to their declarations"
