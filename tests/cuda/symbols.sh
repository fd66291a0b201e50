#!/usr/bin/env bash
# The program built for real GPUs holds every kernel launcher of kernels.h, machine code or PTX for them, and every function of
# layer_math.h.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"

nm "$LOCKSTEP" | awk '$2 ~ /^[Tt]$/ { print $3 }' | sort -u >"$work/symbols"

# expect_functions HEADER PATTERN COUNT: every function of the header is in the program; at least COUNT of them were found.
expect_functions() {
  grep -oE "\\b($2)\\(" "$LOCKSTEP_SOURCE/$1" | tr -d '(' | sort -u >"$work/expected"
  [ "$(wc -l <"$work/expected")" -ge "$3" ] || fail "found only $(wc -l <"$work/expected") functions in $1"
  missing=$(comm -23 "$work/expected" "$work/symbols" | tr '\n' ' ')
  [ -z "$missing" ] || fail "not in the program: $missing"
}
# static inline functions of the headers have no symbol of their own
expect_functions gpu/kernels/kernels.h 'ls_kernel_[a-z_]+' 16
expect_functions gpu/layer_math.h 'ls_lanes|ls_activation_count|ls_math_[a-z]+|ls_conv_(open|close|forward|backward_[a-z]+)|ls_linear_[a-z_]+' 15

# Every kernel function of the sources was registered with the CUDA runtime: nvcc makes a host stub of its name.
nm -C "$LOCKSTEP" >"$work/all"
grep -q __cudaRegisterFatBinary "$work/all" || fail "no device code is registered"
for source in "$LOCKSTEP_SOURCE"/gpu/kernels/*.cu; do
  grep -oE '\bLS_KERNEL [a-z_0-9]+' "$source" | cut -d ' ' -f 2 | while read -r kernel; do
    grep -qE "\\b$kernel\\b" "$work/all" || fail "no host stub of kernel $kernel of $(basename "$source")"
  done
done
objdump -h "$LOCKSTEP" >"$work/sections"
grep -q "\.nv_fatbin" "$work/sections" || fail "no section with device code"

# Ranges go through NVTX where its header was found.
cache=$(dirname "$LOCKSTEP")/CMakeCache.txt
if grep -q '^NVTX_INCLUDE_DIR:PATH=/' "$cache" && ! grep -q '^LOCKSTEP_WITHOUT:.*nvtx' "$cache"; then
  grep -q nvtxDomainRangePushEx "$work/all" || fail "no range goes through NVTX"
fi
