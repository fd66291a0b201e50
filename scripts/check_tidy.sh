#!/usr/bin/env bash
# clang-tidy over C files: those given, or all of the tree. Needs the compile commands of a build (default: build/vgpu).
# With --deep also clang's path analysis, which takes twenty times as long.
# usage: scripts/check_tidy.sh [--deep] [-b BUILD] [FILE...]
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

build=build/vgpu
checks=(--checks=-clang-analyzer-*)
if [ "${1:-}" = --deep ]; then
  checks=()
  shift
fi
if [ "${1:-}" = -b ]; then
  build=${2:?-b needs a build folder}
  shift 2
fi
[ -f "$build/compile_commands.json" ] || die 2 "no $build/compile_commands.json; run: cmake --preset vgpu"
command -v clang-tidy >/dev/null || die 2 "clang-tidy is missing; run: apt-get install -y clang-tidy"

files=("$@")
if [ ${#files[@]} -eq 0 ]; then
  mapfile -t files < <(find gpu/*.c gpu/base gpu/vgpu reference impls verify bench reports -name '*.c' | sort)
fi
# One process a core. The build may be gcc's, whose own warning options clang does not know. On stderr are counts only.
printf '%s\n' "${files[@]}" | xargs -d '\n' -P "$(nproc)" -n 4 \
  clang-tidy -quiet "${checks[@]}" -p "$build" --extra-arg=-Wno-unknown-warning-option 2>/dev/null ||
  die 1 "clang-tidy found something in ${#files[@]} files"
say "clang-tidy: ${#files[@]} files are clean"
