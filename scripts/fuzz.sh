#!/usr/bin/env bash
# Runs one fuzz target from its seeds: for a number of inputs, or for a time with an s behind it. What crashes it is written to
# the current folder. Inputs found on the way are kept beside the program, and start the next run.
# usage: scripts/fuzz.sh [-b BUILD] TARGET [INPUTS|SECONDSs]      TARGET: pth_zip pth_legacy pickle safetensors idx
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build=$root/build/fuzz
if [ "${1:-}" = -b ]; then
  build=${2:?-b needs a build folder}
  shift 2
fi
target=${1:-}
amount=${2:-1000000}
seeds=$root/tests/fuzz/corpus/$target
if [ -z "$target" ] || ! [ -d "$seeds" ]; then
  die 2 "expected a target, one of: $(cd "$root/tests/fuzz/corpus" && echo *)"
fi
[[ "$amount" =~ ^[0-9]+s?$ ]] || die 2 "expected a number of inputs, or of seconds with an s behind it, found '$amount'"
if [ ! -x "$build/fuzz/fuzz_$target" ]; then
  [ "$build" = "$root/build/fuzz" ] || die 2 "no $build/fuzz/fuzz_$target; build with -DLOCKSTEP_FUZZ=ON and clang"
  build_folder build/fuzz -S . -B build/fuzz -G Ninja -DLOCKSTEP_PLATFORM=vgpu -DLOCKSTEP_FUZZ=ON \
    -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -- "fuzz_$target"
fi

limit=(-runs="$amount")
if [[ "$amount" == *s ]]; then
  limit=(-max_total_time="${amount%s}")
fi
found=$build/fuzz/found-$target
mkdir -p "$found"
# The parsers' own lines go nowhere (close_fd_mask=2). A single input may take 10 s and 1 GiB.
exec "$build/fuzz/fuzz_$target" "${limit[@]}" -close_fd_mask=2 -timeout=10 -rss_limit_mb=1024 -max_len=16384 \
  -print_final_stats=1 -verbosity=0 "$found" "$seeds"
