#!/usr/bin/env bash
# --share-devices: dp and mpi verify with more devices than the host has; ddp says why it cannot, and rows say that such a run is no
# measure of scaling.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export LOCKSTEP_VGPU_COUNT=1
small=(--model seed-conv --data synthetic:96 --batch 4)

expect_exit 0 "$LOCKSTEP" verify --impl dp,mpi --devices 1,2,4 --share-devices --dtype float32 --bucket-bytes 16KiB "${small[@]}" \
  --json "$work/rows.jsonl"
grep -qE '^[0-9]+ passed, 0 failed, 0 skipped' "$work/out" || fail "$(tail -n 1 "$work/out")"
jq -s -e 'map(select(.impl != "single")) | length == 6 and all(.status == "PASSED" and .oversubscribed == (.devices > 1))
  and any(.command | test("--share-devices"))' "$work/rows.jsonl" >/dev/null || fail "rows do not say that devices were shared"

# Two ranks of mpi on one device of two, two on the other; what conflicts is ordered there too.
expect_exit 0 env LOCKSTEP_VGPU_COUNT=2 LOCKSTEP_VGPU_SCHED=check "$LOCKSTEP" train --impl dp --devices 4 --share-devices --steps 2 \
  --no-baseline "${small[@]}"

expect_error 2 'ddp on 1 device: NCCL refuses two ranks on one GPU; share devices with dp or mpi' \
  "$LOCKSTEP" train --impl ddp --devices 2 --share-devices "${small[@]}"
expect_error 2 'expected at most 1, the devices present, found 2$' "$LOCKSTEP" train --impl ddp --devices 2 "${small[@]}"
expect_error 2 'found 2; --share-devices puts several on one$' "$LOCKSTEP" train --impl dp --devices 2 "${small[@]}"
expect_exit 0 "$LOCKSTEP" verify --impl all --devices 2 --share-devices --ranks threads --dtype float32 --bucket-bytes 16KiB "${small[@]}"
grep -qE '^ddp .* SKIPPED\(2 ranks of ddp on 1 device' "$work/out" || fail "ddp is not skipped with its reason"
