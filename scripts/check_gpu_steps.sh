# The steps of check_gpu.sh, each a function step_NAME; a step is run by check_gpu.sh in a shell of its own, under its time limit.
# A step prints what it does and returns its status; 77: it cannot run here. The last call of `show` is its cell in the table.
# shellcheck shell=bash disable=SC2034,SC2154 # one uses the other's variables
# Set by check_gpu.sh: program, tests, platform, data, results, gpus, scripts, kernels, and work, a folder for what a step leaves.

# name | seconds at most | what it proves
gpu_steps=(
  "box|10|a driver, a device, and every library that the program needs"
  "runtime|25|the CUDA runtime keeps what the code above gpu/ relies on"
  "nccl|50|collectives: results, order, groups, processes and threads"
  "kernels|25|every kernel of gpu/kernels against plain loops"
  "layer-math|30|convolution and linear layers against plain loops"
  "verify-share|80|single, dp, mpi: gradients of 1, 2, 4 devices equal one device's"
  "verify-ddp|50|ddp on 1 device and on all, registered buffers too: the same"
  "verify-graph|30|the same where steps are launched as CUDA graphs: single, dp, ddp"
  "memcheck|40|no access out of bounds in a training"
  "racecheck|30|no shared-memory race in a training"
  "selftest|45|planted faults are caught here too"
  "step-time|20|seconds a step, eager against a captured graph"
  "bandwidth|20|kernels against memory bandwidth"
  "allreduce|15|bus bandwidth, and no wrong element"
  "pytorch|10|the same step in PyTorch"
)

show() {
  printf '%s\n' "$*" >"$work/shown"
}

# skip REASON: the step cannot run here.
skip() {
  show "$*"
  exit 77
}

# run COMMAND...: the command line, then the command.
run() {
  printf '$ %s\n' "$*"
  "$@"
}

# run_tests NAME...: programs of tests/; their counts are shown, and the first test that failed.
run_tests() {
  local name passed=0 skipped=0 failed="" log=$work/tests.log
  for name in "$@"; do
    [ -x "$tests/$name" ] || continue
    if ! run "$tests/$name" >"$log" 2>&1; then
      failed=${failed:-$name $(sed -n 's/.*\[  FAILED  \] \([a-z][a-z_0-9]*\)$/\1/p' "$log" | head -n 1)}
    fi
    passed=$((passed + $(grep -c '\[       OK \]' "$log" || true)))
    skipped=$((skipped + $(grep -c '\[  SKIPPED \] [a-z]' "$log" || true)))
    cat "$log"
  done
  [ $((passed + skipped)) -gt 0 ] || [ -n "$failed" ] || skip "no test program in $tests"
  show "$passed tests passed$([ $skipped -eq 0 ] || echo ", $skipped need more devices")${failed:+, FAILED: $failed}"
  [ -z "$failed" ]
}

# matching PATTERN...: names of test programs.
matching() {
  local pattern
  for pattern in "$@"; do
    find "$tests" -maxdepth 1 -type f -name "$pattern" ! -name '*.*' -printf '%f\n'
  done | sort
}

step_box() {
  local info
  if [ "$platform" = cuda ] && command -v nvidia-smi >/dev/null; then
    run nvidia-smi
  fi
  run "$program" info --json "$work/info.json" || { # its one line is in the log
    show "$("$program" info 2>&1 >/dev/null | head -n 1)"
    return 1
  }
  info=$(tail -n 1 "$work/info.json")
  cat "$work/info.json" >>"$results"
  show "$(sed -n 's/.*"device": *"\([^"]*\)".*/\1/p' <<<"$info")"
}

step_runtime() {
  # shellcheck disable=SC2046 # names without blanks
  run_tests $(matching test_gpu_check 'test_gpu_runtime_*')
}

step_nccl() {
  # shellcheck disable=SC2046
  run_tests $(matching 'test_gpu_nccl_*')
}

step_kernels() {
  # shellcheck disable=SC2046
  run_tests $(matching 'test_gpu_kernels_*' 'test_gpu_fiber_*')
}

step_layer-math() {
  run_tests test_gpu_layer_math
}

# run_verify OPTION...: the cases are shown by status, and the first that failed.
run_verify() {
  local status=0
  run "$program" verify --data "$data" --json "$results" --timeout 30 "$@" >"$work/verify.log" 2>&1 || status=$?
  cat "$work/verify.log"
  show "$(grep -E '^[0-9]+ passed, ' "$work/verify.log" || tail -n 1 "$work/verify.log")$(
    grep -E ' FAILED' "$work/verify.log" | head -n 1 | sed 's/^/; /; s/  */ /g')"
  return $status
}

step_verify-share() {
  run_verify --impl single,dp,mpi --devices 1,2,4 --share-devices --model seed-cnn --dtype float64,float32 --bucket-bytes 16KiB &&
    cp "$work/shown" "$work/first" &&
    run_verify --impl single,dp,mpi --devices 1,2,4 --share-devices --model exact --data exact --dtype float32 --bucket-bytes 16KiB \
      --mpi-buffers auto &&
    show "$(cat "$work/first"); exact network: $(cat "$work/shown")"
}

step_verify-ddp() {
  local options=(--impl ddp --devices "$([ "$gpus" -gt 1 ] && echo "1,$gpus" || echo 1)" --model seed-cnn --bucket-bytes 16KiB)
  run_verify "${options[@]}" --dtype float64,float32 &&
    cp "$work/shown" "$work/first" || return 1
  if run_verify "${options[@]}" --dtype float32 --ranks threads --nccl-register; then
    show "$(cat "$work/first"); --nccl-register: $(cat "$work/shown")"
  else
    grep -q 'expected NCCL 2.19' "$work/verify.log" && show "$(cat "$work/first"); --nccl-register: this NCCL is too old"
  fi
}

has_graph() {
  [[ $("$program" train --help) == *--graph* ]]
}

step_verify-graph() {
  has_graph || skip "this program has no --graph"
  run_verify --graph --impl single,dp --devices 1,2 --share-devices --model seed-cnn --dtype float32 &&
    cp "$work/shown" "$work/first" &&
    run_verify --graph --impl ddp --devices "$([ "$gpus" -gt 1 ] && echo "1,$gpus" || echo 1)" --ranks threads --model seed-cnn \
      --dtype float32 --bucket-bytes 16KiB &&
    show "$(cat "$work/first"); ddp: $(cat "$work/shown")"
}

# A short training that comes by every kernel of training: all of it on one device, in one process.
training=(train --impl single --devices 1 --steps 2 --batch 8 --epochs 1 --no-baseline --log-every 0 --data synthetic:32
  --model "conv 4 k5; batchnorm; relu; maxpool 2; avgpool 2; dropout 0.25; flatten; linear 10")

# sanitize TOOL OPTION...: the training under a tool of compute-sanitizer.
sanitize() {
  local tool=$1 sanitizer
  shift
  sanitizer=$(command -v compute-sanitizer || find /usr/local/cuda*/bin/ /usr/local/cuda*/compute-sanitizer/ -maxdepth 1 \
    -name compute-sanitizer 2>/dev/null | head -n 1)
  [ -n "$sanitizer" ] || skip "compute-sanitizer is not here; it comes with the CUDA Toolkit"
  run "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 "$@" "$program" "${training[@]}" --timeout 28 \
    >"$work/sanitizer.log" 2>&1
}

# The virtual counterpart of memcheck: pages without access around every buffer.
step_memcheck() {
  local status=0
  if [ "$platform" = vgpu ]; then
    LOCKSTEP_VGPU_GUARD=1 run "$program" "${training[@]}" || return 1
    show "LOCKSTEP_VGPU_GUARD=1: nothing found"
    return
  fi
  # libraries probe what a device can do, and a call that it refuses is an answer
  sanitize memcheck --report-api-errors no || status=$?
  cat "$work/sanitizer.log"
  show "$(sed -n 's/^=* *\(ERROR SUMMARY: .*\)/\1/p' "$work/sanitizer.log" | sort | uniq -c | sort -rn | head -n 1 | sed 's/^ *[0-9]* //')"
  return $status
}

# The virtual counterpart of racecheck: operations that nothing orders are reported.
step_racecheck() {
  local ours
  if [ "$platform" = vgpu ]; then
    LOCKSTEP_VGPU_SCHED=check run "$program" "${training[@]}" || return 1
    show "LOCKSTEP_VGPU_SCHED=check: nothing found"
    return
  fi
  sanitize racecheck || true
  cat "$work/sanitizer.log"
  grep -q 'RACECHECK SUMMARY' "$work/sanitizer.log" || {
    show "no summary: $(tail -n 1 "$work/sanitizer.log")"
    return 1
  }
  # hazards in kernels of NVIDIA's libraries are not ours to judge
  ours=$(grep -E '(Race reported|hazard)' "$work/sanitizer.log" | grep -cE "\b($(tr ' ' '|' <<<"${kernels% }"))\b" || true)
  show "$ours reports in kernels of Lockstep; $(sed -n 's/^=* *\(RACECHECK SUMMARY: .*\)/\1/p' "$work/sanitizer.log" | tail -n 1)"
  [ "$ours" -eq 0 ]
}

step_selftest() {
  local status=0
  run "$program" selftest --quick --share-devices --json "$work/selftest.jsonl" >"$work/selftest.log" 2>&1 || status=$?
  cat "$work/selftest.log"
  cat "$work/selftest.jsonl" >>"$results" 2>/dev/null || true
  show "$(sed -n 's/^\([0-9]* listed mutants: .*\); [0-9]* more wait.*/\1/p' "$work/selftest.log"); $(
    sed -n 's/^family: \(.*\), [0-9]* without effect.*/\1/p' "$work/selftest.log")$(
    grep -E 'SURVIVED|WRONG CHECK' "$work/selftest.log" | head -n 1 | sed 's/^/; /')"
  return $status
}

# step_seconds FILE: the median of the steps after the first 20, in microseconds.
step_seconds() {
  sed -n 's/.*"step_seconds": *\[\([^]]*\)\].*/\1/p' "$1" | tr ',' '\n' | tail -n +21 | sort -g |
    awk '{ x[NR] = $1 } END { if (NR) printf "%.1f", x[int((NR + 1) / 2)] * 1e6 }'
}

step_step-time() {
  local eager graph
  local timed=(train --impl single --devices 1 --steps 120 --time-steps --no-baseline --log-every 0 --data synthetic:8192 --batch 64)
  run "$program" "${timed[@]}" --json "$work/eager.json" || return 1
  eager=$(step_seconds "$work/eager.json")
  cat "$work/eager.json" >>"$results"
  if has_graph; then
    run "$program" "${timed[@]}" --graph --json "$work/graph.json" || return 1
    graph=$(step_seconds "$work/graph.json")
    cat "$work/graph.json" >>"$results"
  fi
  show "seed-cnn, batch 64: eager $eager us a step, ${graph:-no --graph here}${graph:+ us as a graph}"
  [ -n "$eager" ]
}

step_bandwidth() {
  local log=$work/bandwidth.log status=0 values=5898240
  [ "$platform" = cuda ] || values=368640
  run "$program" micro --benchmark_filter="^kernel/[^/]*/float32/n:$values/" --benchmark_min_time=0.01 \
    --benchmark_out="$work/bandwidth.json" >"$log" 2>&1 || status=$?
  cat "$log"
  ! grep -q 'Google Benchmark' "$log" || [ $status -eq 0 ] || skip "built without Google Benchmark"
  show "$(awk '/^kernel\// { for (i = 2; i <= NF; i++) if (sub(/^roofline=/, "", $i)) { f = $i ~ /m$/ ? 0.001 : 1; sub(/m$/, "", $i)
      split($1, name, "/"); print $i * f, name[2] } }' "$log" | sort -g |
    awk '{ r[NR] = $1; k[NR] = $2 } END { if (NR) printf "%d kernels, share of memory bandwidth: median %.2f, least %.2f (%s)",
      NR, r[int((NR + 1) / 2)], r[1], k[1] }')"
  return $status
}

step_allreduce() {
  local log=$work/allreduce.log status=0 devices=$((gpus < 8 ? gpus : 8))
  [ "$platform" != vgpu ] || devices=2
  run "$program" micro --allreduce --devices "$devices" --ranks threads -b 1M -e 16M -f 4 -n 5 -w 1 --json "$results" \
    >"$log" 2>&1 || status=$?
  cat "$log"
  show "$devices devices$([ "$devices" -gt 1 ] || echo " (nothing is sent)"), NCCL, 16 MiB: $(
    awk '$1 == 16777216 { print $(NF - 1) }' "$log") GB/s; $(grep -o 'Out of bounds.*' "$log")"
  return $status
}

step_pytorch() {
  local log=$work/pytorch.log
  python3 -c 'import torch' 2>/dev/null || skip "python3 has no torch"
  (cd "$scripts" && run env PYTHONDONTWRITEBYTECODE=1 python3 -m pytorch.step_time) >"$log" 2>&1 || {
    tail -n 5 "$log"
    show "$(tail -n 1 "$log")"
    return 1
  }
  cat "$log"
  grep '^{' "$log" >>"$results"
  show "$(sed -n 's/.*"torch": "\([^"]*\)", "device": "\([^"]*\)", "way": "\([^"]*\)".*"seconds": \([0-9.e-]*\).*/\1 \2 \3 \4/p' "$log" |
    awk '{ printf "%s%s, %s: %s %.1f us", sep, "torch " $1, $2, $3, $4 * 1e6; sep = "; " }')"
}
