#!/usr/bin/env bash
# A small sweep: its rows say what docs/result-format.md promises, and the report draws them.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# sweep OPTIONS...: appends to the result file.
sweep() {
  "$LOCKSTEP" sweep --data synthetic:2000 --steps 10 --warmup 1 -o "$work/results.jsonl" "$@" >"$work/table"
  cat "$work/table"
  grep -q "^12 steps a point, 2 in each of 6 rounds after a warm-up of 1, " "$work/table" || fail "the steps are not told"
  grep -q " 0 failed, 0 skipped" "$work/table" || fail "not all points passed"
}
sweep --impl single,ddp --devices 2,4 --scaling weak
sweep --impl mpi --devices 2 --scaling weak
sweep --impl dp --devices 2,4 --scaling strong

# single at 1, ddp at 2 and 4, mpi at 2; dp at 2 and 4: each row one JSON object with verified steps.
[ "$(wc -l <"$work/results.jsonl")" -eq 6 ] || fail "expected 6 rows"
jq -es 'all(.schema == 1 and .kind == "sweep" and .status == "PASSED" and .verification == "PASSED"
  and .step_seconds.low <= .step_seconds.median and .step_seconds.median <= .step_seconds.high
  and .timed_steps == 12 and (.step_seconds.samples | length) == 12 and (.base_step_seconds.samples | length) == 12
  and .step_seconds.confidence == 0.96875 and .base_step_seconds.confidence == 0.96875
  and (.param_hash | test("^[0-9a-f]{16}$")) and (.command | startswith("lockstep sweep --impl ")))' \
  "$work/results.jsonl" >"$work/checked" || fail "a row is not as promised"
# A reader can take every figure again: samples stand round by round, and a round counts by its median.
jq -es 'def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
  def rounds: . as $all | [range(6) | $all[2 * .:2 * . + 2] | median];
  def is($seconds): .median == ($seconds | median) and .low == ($seconds | min) and .high == ($seconds | max);
  all((.step_seconds.samples | rounds) as $point | (.base_step_seconds.samples | rounds) as $base
    | (if .scaling == "weak" then .devices else 1 end) as $work
    | (.step_seconds | is($point)) and (.base_step_seconds | is($base))
      and (.speedup | is([range(6) | $work * $base[.] / $point[.]])))' "$work/results.jsonl" >/dev/null ||
  fail "figures are not those of the samples, round by round"
jq -es 'all((.step_seconds.samples | sort) != .step_seconds.samples)' "$work/results.jsonl" >/dev/null ||
  fail "samples are sorted: nobody can tell the rounds"
# The first step is that of the warm-up; counters are of a round, with the warm-up, and name the plan's buckets once.
jq -es 'all((.first_step_seconds as $first | .step_seconds.samples | index($first)) == null and .counters.steps == 3)
  and (map(select(.impl == "ddp" or .impl == "mpi")) | all(.counters.allreduces == .world * 3 * .counters.buckets))' \
  "$work/results.jsonl" >/dev/null || fail "first step or counters are not those of the rounds"
"$LOCKSTEP" info --json "$work/info.jsonl" >/dev/null
jq -es --arg mpi "$(jq -r .libraries.mpi "$work/info.jsonl")" 'all(.environment.mpi == $mpi)' \
  "$work/results.jsonl" >/dev/null || fail "rows do not say which MPI"
"$LOCKSTEP" sweep --impl single --scaling weak --data synthetic:2000 --steps 1 --warmup 0 -o "$work/cold.jsonl"
jq -e '.timed_steps == 6 and .first_step_seconds == .step_seconds.samples[0]' "$work/cold.jsonl" >/dev/null ||
  fail "without a warm-up the first step is the first sample"
# Throughput is global batch / median step; efficiency is speed-up / devices.
jq -es 'all(((.samples_per_second.median * .step_seconds.median / .global_batch) - 1 | fabs) < 1e-9
  and ((.speedup.median / .devices / .efficiency.median) - 1 | fabs) < 1e-9)' "$work/results.jsonl" >/dev/null ||
  fail "figures of a row contradict each other"
# Weak keeps the local batch, strong the global batch.
jq -es 'all(if .scaling == "weak" then .local_batch == 64 and .global_batch == 64 * .devices
  else .global_batch == 256 and .local_batch == 256 / .devices end)' "$work/results.jsonl" >/dev/null ||
  fail "batch sizes are not those of the scaling mode"
# Oversubscribed exactly where more devices than cores take part.
jq -es --argjson cores "$(nproc)" 'all(.oversubscribed == (.devices > $cores))' "$work/results.jsonl" >/dev/null ||
  fail "oversubscribed points are not marked"
# Equal work gives equal bits: ddp and mpi at 2 devices (a sum of two commutes).
jq -es 'map(select(.devices == 2 and .scaling == "weak" and (.impl == "ddp" or .impl == "mpi")).param_hash) | unique | length == 1' \
  "$work/results.jsonl" >/dev/null || fail "ddp and mpi end with different parameters"

index=$("$LOCKSTEP" report "$work/results.jsonl" -o "$work/report")
[ "$index" = "$(realpath "$work/report/index.html")" ] || fail "the path of index.html is not printed"
for plot in throughput efficiency; do
  for scaling in weak-b64 strong-b256; do
    for ending in svg png dat gp; do
      [ -s "$work/report/$plot-seed-cnn-float32-$scaling-synthetic-2000-vgpu.$ending" ] ||
        fail "missing: $plot, $scaling, .$ending"
    done
  done
done
grep -q "Oversubscribed points are left out" "$index" || [ "$(nproc)" -ge 4 ] || fail "the caption does not say why"
echo "sweep and report are as promised"
