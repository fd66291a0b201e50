#!/usr/bin/env bash
# Without a GPU (or with all of them hidden) every command that needs one says so in exactly one line and exits 3.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"
export CUDA_VISIBLE_DEVICES=
cd "$work"

expect_error 3 'cudaGetDeviceCount.*cmake --preset vgpu' "$LOCKSTEP" info
expect_error 3 'cudaGetDeviceCount' "$LOCKSTEP" train --data synthetic:64 --epochs 1
expect_error 3 'cudaGetDeviceCount' "$LOCKSTEP" train --impl single --devices 1 --data synthetic:64 --epochs 1
expect_error 3 'cudaGetDeviceCount' "$LOCKSTEP" verify --impl all --devices 1,2 --data synthetic:64
expect_error 3 'cudaGetDeviceCount' "$LOCKSTEP" sweep --devices 1,2 --data synthetic:64 -o "$work/results.jsonl"
[ ! -e "$work/results.jsonl" ] || [ ! -s "$work/results.jsonl" ] || fail "sweep wrote rows without a device"
expect_exit 0 "$LOCKSTEP" --help
