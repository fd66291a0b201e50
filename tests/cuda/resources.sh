#!/usr/bin/env bash
# What the kernels take of a device, from ptxas' own report (cmake/ptxas_log.sh): no kernel spills registers, and none takes more
# registers, shared memory or stack than resources.txt allows its source file.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"
limits=$LOCKSTEP_SOURCE/tests/cuda/resources.txt
objects=$(dirname "$LOCKSTEP")/gpu/CMakeFiles/lockstep_gpu.dir/kernels

# figures: "architecture kernel registers shared stack spills", a line for each kernel function and architecture of a report.
figures() {
  awk '
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; architecture = part[4] }
    /bytes stack frame/ { stack = $1; spills = $5 + $9 }
    / Used [0-9]+ registers/ {
      shared = 0
      for (i = 1; i < NF; i++) {
        if ($i == "Used") registers = $(i + 1)
        if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i
      }
      print architecture, kernel, registers, shared, stack, spills
    }' "$1"
}

# judge FILE REGISTERS SHARED STACK: a line for everything above the limits.
judge() {
  awk -v file="$1" -v r="$2" -v s="$3" -v k="$4" '
    $6 > 0 { print file ": " $2 ", " $1 ": spills " $6 " bytes, expected none" }
    $3 > r { print file ": " $2 ", " $1 ": " $3 " registers, at most " r }
    $4 > s { print file ": " $2 ", " $1 ": " $4 " bytes of shared memory, at most " s }
    $5 > k { print file ": " $2 ", " $1 ": a stack of " $5 " bytes, at most " k }'
}

# The reading and the judgement themselves, on a report with every fault.
cat >"$work/planted" <<'END'
ptxas info    : Compiling entry function '_Z5plainv' for 'sm_90'
ptxas info    : Function properties for _Z5plainv
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 41 registers, used 1 barriers, 8 bytes stack, 256 bytes smem, 440 bytes cmem[0]
END
[ "$(figures "$work/planted")" = "sm_90 _Z5plainv 41 256 8 16" ] || fail "read: $(figures "$work/planted")"
[ "$(figures "$work/planted" | judge planted 40 255 7 | wc -l)" -eq 4 ] || fail "a planted fault was not seen"
[ -z "$(sed 's/4 bytes spill stores, 12/0 bytes spill stores, 0/' "$work/planted" >"$work/sound" &&
  figures "$work/sound" | judge planted 41 256 8)" ] || fail "a sound report was refused"

for source in "$LOCKSTEP_SOURCE"/gpu/kernels/*.cu; do
  name=$(basename "$source" .cu)
  report=$objects/$name.cu.o.ptxas
  [ -s "$report" ] || fail "no report of ptxas for $name.cu: $report"
  figures "$report" >"$work/figures"
  grep -oE '\bLS_KERNEL [a-z_0-9]+' "$source" | cut -d ' ' -f 2 | while read -r kernel; do
    grep -qE "[0-9]$kernel[A-Za-z0-9]" "$work/figures" || fail "no figures of kernel $kernel in $report"
  done
  limit=$(awk -v name="$name" '$1 == name { print $2, $3, $4 }' "$limits")
  [ -n "$limit" ] || fail "no line for $name in $limits"
  # shellcheck disable=SC2086 # three words
  judge "$name.cu" $limit <"$work/figures" >>"$work/above"
  awk -v name="$name" '
    { r = $3 > r ? $3 : r; s = $4 > s ? $4 : s; k = $5 > k ? $5 : k; n++ }
    END { printf "%-15s %3d instances: registers %3d, shared %5d, stack %5d\n", name, n, r, s, k }' "$work/figures"
done
if [ -s "$work/above" ]; then
  cat "$work/above" >&2
  fail "$(wc -l <"$work/above") figures above their limits"
fi
