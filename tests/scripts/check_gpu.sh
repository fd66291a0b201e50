#!/usr/bin/env bash
# scripts/check_gpu.sh and gpu_box.sh over stand-ins: the steps fit into 8 minutes, every status and exit code, a step is stopped at
# its limit, NVIDIA's libraries are found where pip or a toolkit puts them, and what is missing is named.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"
check=$LOCKSTEP_SOURCE/scripts/check_gpu.sh

expect_exit 0 bash "$check" --dry-run
total=$(awk '/^[a-z]/ { sum += $2 } END { print sum }' "$work/out")
((total > 100 && total <= 480)) || fail "the limits of all steps add up to $total s"
grep -q "at most $total s together" "$work/out" || fail "the sum is not shown"
for step in runtime nccl kernels layer-math verify-share verify-ddp verify-graph memcheck racecheck selftest step-time bandwidth allreduce pytorch; do
  grep -qE "^$step +[0-9]+ s +[a-z]" "$work/out" || fail "no step $step"
done
expect_error 2 "unknown option '--fast'" bash "$check" --fast
expect_error 2 "expected cuda or vgpu, found 'rocm'" bash "$check" --platform rocm
expect_error 2 "no step 'no-such'" bash "$check" --only runtime,no-such
expect_error 2 'no such file' bash "$check" --bundle "$work/none.tar.gz"
echo text >"$work/text"
expect_error 2 'expected a bundle' bash "$check" --bundle "$work/text"

# A bundle whose program and tests are stand-ins.
box=$work/lockstep-gpu
mkdir -p "$box/bin" "$box/tests" "$box/lib"
cp -r "$LOCKSTEP_SOURCE/scripts" "$box/scripts"
printf 'platform=vgpu\nglibc=2.2\nkernels=a b \n' >"$box/BUNDLE"
stand_in() {
  printf '#!/bin/bash\n%s\n' "$2" >"$box/$1"
  chmod +x "$box/$1"
}
# shellcheck disable=SC2016 # the stand-ins expand it
info='[ "$1" != info ] || echo "{\"devices\":3,\"device\":\"a GPU\"}" >>"$3"'
stand_in bin/lockstep "$info"
stand_in tests/test_gpu_check 'echo "[       OK ] one"; echo "[  SKIPPED ] two"'
stand_in tests/test_gpu_layer_math 'echo "[       OK ] one"; echo "[  FAILED  ] conv_is_wrong"; exit 1'
sed -i 's/"nccl|[0-9]*|/"nccl|1|/' "$box/scripts/check_gpu_steps.sh"
stand_in tests/test_gpu_nccl_semantics 'echo before; sleep 60'

expect_exit 1 bash "$box/scripts/check_gpu.sh" -o "$work/check" --only runtime,layer-math,nccl,kernels
grep -qE '^box +PASSED .* a GPU$' "$work/out" || fail "no device"
grep -qE '^runtime +PASSED .* 1 tests passed, 1 need more devices' "$work/out" || fail "tests are not counted"
grep -qE '^layer-math +FAILED .* test_gpu_layer_math conv_is_wrong' "$work/out" || fail "a failed test is not named"
grep -qE '^nccl +FAILED +1\.[0-9]+ +1 +no end within 1 s' "$work/out" || fail "no time limit: $(grep nccl "$work/out")"
grep -qE '^kernels +SKIPPED .* no test program' "$work/out" || fail "a step that cannot run is not skipped"
grep -q '^2 passed, 2 failed, 1 skipped' "$work/out" || fail "$(tail -n 1 "$work/out")"
jq -s -e '[.[] | select(.kind == "gpu-check")] | length == 5 and all(.schema == 1 and .limit > 0 and (.shown | length > 0))
  and (map(.status) | sort) == ["FAILED", "FAILED", "PASSED", "PASSED", "SKIPPED"]' "$work/check/results.jsonl" >/dev/null ||
  fail "rows: $(cat "$work/check/results.jsonl")"
grep -q before "$work/check/log.txt" || fail "the log lacks what a stopped step had said"
expect_exit 0 bash "$box/scripts/check_gpu.sh" -o "$work/check" --only runtime
tar -C "$work" -czf "$work/b.tar.gz" lockstep-gpu
expect_exit 0 bash "$check" --bundle "$work/b.tar.gz" -o "$work/check" --only runtime
expect_error 2 'was made for vgpu' bash "$box/scripts/check_gpu.sh" --platform cuda

# Without a device nothing else runs.
# shellcheck disable=SC2016
stand_in bin/lockstep '[ "$1" != info ] || { echo "lockstep: no GPU" >&2; exit 3; }'
expect_exit 1 bash "$box/scripts/check_gpu.sh" -o "$work/check"
grep -qE '^box +FAILED .* lockstep: no GPU' "$work/out" || fail "no reason"
[ "$(grep -c 'SKIPPED .* no usable device' "$work/out")" -eq 14 ] || fail "steps ran without a device"
sed -i 's/^glibc=.*/glibc=99.1/' "$box/BUNDLE"
expect_error 2 'needs glibc 99.1' bash "$box/scripts/check_gpu.sh" -o "$work/check"

# Where libraries are looked for, and what their absence is called.
mkdir -p "$work/venv/lib/python3.11/site-packages/nvidia/cudnn/lib" "$work/toolkit/lib64" "$work/other"
touch "$work/venv/lib/python3.11/site-packages/nvidia/cudnn/lib/libstand_cudnn.so.9" "$work/toolkit/lib64/libstand_cudart.so.13" \
  "$work/other/libstand_cudart.so.13" "$work/toolkit/lib64/libstand_cublas.so.13"
# shellcheck disable=SC2016
find_them='. "$0/scripts/gpu_box.sh"; gpu_box_path libstand_cudnn.so.9 libstand_cudart.so.13 libstand_cublas.so.13 libnowhere.so.1'
expect_exit 0 env VIRTUAL_ENV="$work/venv" CUDA_HOME="$work/toolkit" bash -c "$find_them" "$LOCKSTEP_SOURCE"
[ "$(cat "$work/out")" = "$work/venv/lib/python3.11/site-packages/nvidia/cudnn/lib:$work/toolkit/lib64" ] || fail "$(cat "$work/out")"
expect_exit 0 env LOCKSTEP_CUDA_LIBRARIES="$work/other" CUDA_HOME="$work/toolkit" bash -c "$find_them" "$LOCKSTEP_SOURCE"
[ "$(cat "$work/out")" = "$work/other:$work/toolkit/lib64" ] || fail "$(cat "$work/out")"
