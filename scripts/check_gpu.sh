#!/usr/bin/env bash
# What only a machine with GPUs can prove, in at most 8 minutes, with one GPU or many and without a network: runs the steps of
# check_gpu_steps.sh, each under a time limit of its own, and ends with one table. Works in the source tree, where build/cuda or
# build/vgpu must have been built, and in an unpacked bundle (bundle_gpu.sh).
# usage: scripts/check_gpu.sh [--bundle FILE] [--platform cuda|vgpu] [--only STEP,...] [--dry-run] [-o DIR]
#   --bundle FILE   a bundle, unpacked to a folder of its own for the time of the check
#   --platform vgpu all steps on virtual GPUs: needs no GPU
#   --only STEP,... these steps only
#   --dry-run       lists the steps with their time limits, runs nothing
#   -o DIR          where results.jsonl, table.txt and log.txt go (default out/check_gpu; in a bundle lockstep-check)
# Exit code: 0 nothing failed, 1 a step failed or nothing passed, 2 wrong usage.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
scripts=$root/scripts
# shellcheck source=scripts/gpu_box.sh
source "$scripts/gpu_box.sh"
# shellcheck source=scripts/check_gpu_steps.sh
source "$scripts/check_gpu_steps.sh"

# One step, in a shell of its own so that it can be stopped as a whole.
if [ "${1:-}" = --step ]; then
  set +e
  "step_$2"
  exit $?
fi

usage='usage: check_gpu.sh [--bundle FILE] [--platform cuda|vgpu] [--only STEP,...] [--dry-run] [-o DIR]'
seconds_in_all=480
bundle="" platform="" only="" dry_run="" out=""
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry_run=yes ;;
    -h | --help)
      sed -n '2,/^# shellcheck/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | grep -v shellcheck
      exit 0
      ;;
    --bundle | --platform | --only | -o)
      [ $# -ge 2 ] || die 2 "$1 needs a value; $usage"
      case $1 in --bundle) bundle=$2 ;; --platform) platform=$2 ;; --only) only=$2 ;; *) out=$2 ;; esac
      shift
      ;;
    *) die 2 "unknown option '$1'; $usage" ;;
  esac
  shift
done

if [ -n "$bundle" ]; then
  [ -f "$bundle" ] || die 2 "--bundle $bundle: no such file; scripts/bundle_gpu.sh makes one"
  unpacked=$(mktemp -d)
  trap 'rm -rf "$unpacked"' EXIT
  tar -C "$unpacked" -xzf "$bundle" 2>/dev/null || true
  [ -f "$unpacked/lockstep-gpu/BUNDLE" ] ||
    die 2 "--bundle $bundle: expected a bundle of scripts/bundle_gpu.sh, found something else"
  bash "$unpacked/lockstep-gpu/scripts/check_gpu.sh" -o "${out:-lockstep-check}" ${platform:+--platform "$platform"} \
    ${only:+--only "$only"} ${dry_run:+--dry-run}
  exit
fi

# in_bundle KEY: what the bundle says about itself.
in_bundle() {
  sed -n "s/^$1=//p" "$root/BUNDLE"
}
if [ -f "$root/BUNDLE" ]; then
  [ -z "$platform" ] || [ "$platform" = "$(in_bundle platform)" ] ||
    die 2 "--platform $platform: this bundle was made for $(in_bundle platform)"
  platform=$(in_bundle platform)
  out=${out:-lockstep-check}
fi
platform=${platform:-cuda}
case $platform in cuda | vgpu) ;; *) die 2 "--platform: expected cuda or vgpu, found '$platform'" ;; esac
out=${out:-$root/out/check_gpu}

for step in ${only//,/ }; do
  [[ " ${gpu_steps[*]%%|*} " == *" $step "* ]] || die 2 "--only: no step '$step'; there are: ${gpu_steps[*]%%|*}"
done

line='%-13s %-8s %7s %6s  %s\n'
if [ -n "$dry_run" ]; then
  total=0
  # shellcheck disable=SC2059 # the layout of the table
  printf "$line" step "" "" limit "what it proves"
  for entry in "${gpu_steps[@]}"; do
    IFS='|' read -r name limit proves <<<"$entry"
    # shellcheck disable=SC2059
    printf "$line" "$name" "" "" "$limit s" "$proves"
    total=$((total + limit))
  done
  echo "${#gpu_steps[@]} steps, at most $total s together"
  exit 0
fi

# Where everything is.
if [ -f "$root/BUNDLE" ]; then
  gpu_box_glibc_too_old "$(in_bundle glibc)" &&
    die 2 "this bundle needs glibc $(in_bundle glibc), this machine has $(getconf GNU_LIBC_VERSION); make it on an older system"
  gpu_box_enter "$root"
  program=$root/bin/lockstep tests=$root/tests kernels=$(in_bundle kernels)
  data=synthetic:2048
  [ ! -d "$root/data" ] || data=fashion-mnist:$root/data
else
  program=$root/build/$platform/lockstep tests=$root/build/$platform/tests
  [ -x "$program" ] ||
    die 2 "$program is missing: cmake --preset $platform && cmake --build --preset $platform, or take a bundle: --bundle FILE"
  [ "$platform" = vgpu ] || gpu_box_find_libraries "$program"
  kernels=$(grep -rhoE '\bLS_KERNEL [a-z_0-9]+' "$root"/gpu/kernels/*.cu | cut -d ' ' -f 2 | sort -u | tr '\n' ' ')
  data=synthetic:2048
  [ ! -f /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || data=fashion-mnist
fi
absent=$(gpu_box_missing "$program")
if [ -n "$absent" ]; then
  for name in $absent; do
    printf 'check_gpu.sh: %s is missing on this machine; it comes with %s\n' "$name" "$(gpu_box_brings "$name")" >&2
  done
  die 1 "libraries are missing; where they lie elsewhere, name the folder: LOCKSTEP_CUDA_LIBRARIES=DIR"
fi

mkdir -p "$out" 2>/dev/null || true
[ -w "$out" ] || die 2 "-o $out: cannot write there"
out=$(cd "$out" && pwd)
results=$out/results.jsonl log=$out/log.txt table=$out/table.txt
rm -f "$results" "$log" "$table"
: >"$results"
gpus=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export program tests platform data work results gpus scripts kernels

# in_json TEXT: as the inside of a JSON string.
in_json() {
  printf '%s' "$*" | sed 's/\\/\\\\/g; s/"/\\"/g' | tr -d '\000-\037'
}

# report NAME STATUS SECONDS LIMIT SHOWN: a line of the table, and a row.
report() {
  # shellcheck disable=SC2059 # the layout of the table
  printf "$line" "$1" "$2" "$3" "$4" "$5" | tee -a "$table"
  printf '{"schema":1,"kind":"gpu-check","platform":"%s","step":"%s","status":"%s","seconds":%s,"limit":%s,"shown":"%s"}\n' \
    "$platform" "$1" "$2" "$3" "$4" "$(in_json "$5")" >>"$results"
}

# shellcheck disable=SC2059
printf "$line" step status seconds "limit" "what it shows" | tee "$table"
began=$SECONDS passed=0 failed=0 skipped=0 usable=yes
for entry in "${gpu_steps[@]}"; do
  IFS='|' read -r name limit proves <<<"$entry"
  [ -z "$only" ] || [[ ",$only," == *",$name,"* ]] || [ "$name" = box ] || continue
  left=$((seconds_in_all - (SECONDS - began)))
  limit=$((limit < left ? limit : left))
  status=SKIPPED seconds=0 code=77
  : >"$work/shown"
  if [ -z "$usable" ]; then
    echo "no usable device" >"$work/shown"
  elif [ "$limit" -lt 1 ]; then
    echo "no time left of $seconds_in_all s" >"$work/shown"
  else
    printf '\n== %s: %s\n' "$name" "$proves" >>"$log"
    start=$(date +%s%N)
    code=0
    timeout -k 5 "$limit" bash "$scripts/check_gpu.sh" --step "$name" >>"$log" 2>&1 </dev/null || code=$?
    seconds=$(awk -v start="$start" -v end="$(date +%s%N)" 'BEGIN { printf "%.1f", (end - start) / 1e9 }')
  fi
  shown=$(head -n 1 "$work/shown")
  if [ $code -eq 124 ] || [ $code -eq 137 ]; then
    tail -n 100 "$work"/*.log >>"$log" 2>/dev/null || true # what it had said when it was stopped
  fi
  rm -f "$work"/*.log
  case $code in
    0) status=PASSED passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    124 | 137) status=FAILED failed=$((failed + 1)) shown="no end within $limit s; $proves" ;;
    *) status=FAILED failed=$((failed + 1)) shown=${shown:-exit code $code, see the log} ;;
  esac
  report "$name" "$status" "$seconds" "$limit" "$shown"
  if [ "$name" = box ]; then
    [ "$status" = PASSED ] || usable=""
    gpus=$(sed -n 's/.*"devices": *\([0-9][0-9]*\).*/\1/p' "$work/info.json" 2>/dev/null | tail -n 1) || true
    gpus=${gpus:-1}
  fi
done
echo "$passed passed, $failed failed, $skipped skipped in $((SECONDS - began)) s; $results, $log" | tee -a "$table"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
