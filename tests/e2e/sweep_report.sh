#!/usr/bin/env bash
# A small sweep: its rows say what docs/result-format.md promises, and the report draws them.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# sweep OPTIONS...: appends to the result file.
sweep() {
  "$LOCKSTEP" sweep --data synthetic:2000 --steps 12 --warmup 1 -o "$work/results.jsonl" "$@" >"$work/table"
  cat "$work/table"
  grep -q " 0 failed, 0 skipped" "$work/table" || fail "not all points passed"
}
sweep --impl single,ddp --devices 2,4 --scaling weak
sweep --impl mpi --devices 2 --scaling weak
sweep --impl dp --devices 2,4 --scaling strong

# single at 1, ddp at 2 and 4, mpi at 2; dp at 2 and 4: each row one JSON object with verified steps.
[ "$(wc -l <"$work/results.jsonl")" -eq 6 ] || fail "expected 6 rows"
jq -es 'all(.schema == 1 and .kind == "sweep" and .status == "PASSED" and .verification == "PASSED"
  and .step_seconds.low <= .step_seconds.median and .step_seconds.median <= .step_seconds.high
  and (.step_seconds.samples | length) == 12 and .step_seconds.confidence >= 0.95
  and (.param_hash | test("^[0-9a-f]{16}$")) and (.command | startswith("lockstep sweep --impl ")))' \
  "$work/results.jsonl" >"$work/checked" || fail "a row is not as promised"
# Counters are of a round, with the warm-up, and name the plan's buckets once.
jq -es 'all(.counters.steps == 3)
  and (map(select(.impl == "ddp" or .impl == "mpi")) | all(.counters.allreduces == .world * 3 * .counters.buckets))' \
  "$work/results.jsonl" >/dev/null || fail "counters are not those of a round"
"$LOCKSTEP" info --json "$work/info.jsonl" >/dev/null
jq -es --arg mpi "$(jq -r .libraries.mpi "$work/info.jsonl")" 'all(.environment.mpi == $mpi)' \
  "$work/results.jsonl" >/dev/null || fail "rows do not say which MPI"
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
