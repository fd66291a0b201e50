#!/usr/bin/env bash
# scripts/bundle_gpu.sh: the file is small enough, starts from another folder without what it was built beside, says in one line
# that there is no GPU, and names what a machine lacks.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"
export CUDA_VISIBLE_DEVICES=
bundle=$work/lockstep-gpu.tar.gz

expect_exit 0 bash "$LOCKSTEP_SOURCE/scripts/bundle_gpu.sh" --build "$(dirname "$LOCKSTEP")" -o "$bundle" --images 1000
[ "$(stat -c %s "$bundle")" -lt $((40 * 1024 * 1024)) ] || fail "$(stat -c %s "$bundle") bytes"
mkdir "$work/moved"
tar -C "$work/moved" -xzf "$bundle"
box=$work/moved/lockstep-gpu

cd /
expect_exit 0 "$box/lockstep" --help
expect_error 3 'no usable GPU|no GPU' "$box/lockstep" info
expect_error 3 'no usable GPU|no GPU' "$box/lockstep" verify --impl dp --devices 2 --share-devices --data "fashion-mnist:$box/data"
expect_exit 1 "$box/check_gpu.sh" -o "$work/check"
grep -qE '^box +FAILED .*no (usable )?GPU' "$work/out" || fail "the reason is not shown: $(head -n 2 "$work/out")"
expect_exit 0 "$box/check_gpu.sh" --dry-run

# Nothing of NVIDIA's or the C library goes along, nothing points back to where it was built, all programs are stripped.
for name in libcuda libcudart libcudnn libcublas libnccl libc.so libstdc++; do
  [ -z "$(find "$box" -name "$name*")" ] || fail "$name goes along"
done
for program in "$box"/bin/* "$box"/tests/*; do
  rpath=$(readelf -d "$program" | sed -n 's/.*R.*PATH.*\[\(.*\)\]/\1/p')
  [ "$rpath" = "\$ORIGIN/../lib" ] || fail "$(basename "$program") looks for libraries in '$rpath'"
  ! readelf -S "$program" | grep -q ' \.debug_info' || fail "$(basename "$program") is not stripped"
done
for name in libjansson libzip libcmocka libmpi.so; do
  [ -n "$(find "$box/lib" -name "$name*")" ] || fail "$name does not go along"
done
expect_exit 0 bash -c ". '$box/scripts/gpu_box.sh'; gpu_box_glibc_too_old 2.34 && exit 1; [ \"\$(gpu_box_brings libcudnn.so.9)\" ]"
[ "$(sed -n 's/^glibc=//p' "$box/BUNDLE" | tr -d .)" -le 236 ] || fail "needs $(grep glibc "$box/BUNDLE"): Debian 12 has 2.36"

# Where NVIDIA's libraries are nowhere each is named with what brings it.
if [ -z "$(ldconfig -p | grep -E 'libcudnn|libnccl')" ]; then
  sed -i "s#^gpu_box_folders() {#&\n  return#" "$box/scripts/gpu_box.sh"
  expect_exit 1 "$box/check_gpu.sh" -o "$work/check"
  grep -q 'libcudnn.so.9 is missing on this machine; it comes with' "$work/err" || fail "$(cat "$work/err")"
  grep -q 'LOCKSTEP_CUDA_LIBRARIES=DIR' "$work/err" || fail "no way out is named"
fi
