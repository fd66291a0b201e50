#!/usr/bin/env bash
# lockstep micro as a user runs it: Google Benchmark's flags and JSON, tables that check what they time, ratios; bad input is
# refused and nothing is left behind.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

if "$LOCKSTEP" micro --benchmark_list_tests >"$work/list" 2>"$work/err"; then
  # Every kernel is there, by name, in both types.
  grep -o 'ls_kernel_[a-z_0-9]*' "$LOCKSTEP_SOURCE/gpu/kernels/kernels.h" | sed 's/ls_kernel_//' | sort -u >"$work/kernels"
  [ -s "$work/kernels" ] || fail "no kernels in kernels.h"
  while read -r kernel; do
    for dtype in float32 float64; do
      grep -q "^kernel/$kernel/$dtype/" "$work/list" || fail "no benchmark of $kernel in $dtype"
    done
  done <"$work/kernels"
  for name in layer/seed-cnn/conv.conv2/backward_input/float32 layer/cnn-20-50-500/linear.7/forward/float64 \
    step/seed-conv/whole/float32 allreduce/nccl/processes all-gather/mpi/mpi broadcast/nccl/threads; do
    grep -q "^$name/" "$work/list" || fail "no benchmark $name"
  done

  expect_exit 0 "$LOCKSTEP" micro --benchmark_filter='^kernel/(scale/float64|cross_entropy/float32)/n:36[0-9]+/|allreduce/nccl/threads.*/bytes:1024/' \
    --benchmark_min_time=0.001 --benchmark_format=json --benchmark_out="$work/out.json"
  jq -e '.context.platform == "vgpu" or .context.platform == "cuda"' "$work/out" >/dev/null || fail "no context"
  jq -e '[.benchmarks[] | select(.name | startswith("kernel/"))] | length == 4 and all(.real_time > 0 and .iterations > 0
    and .bytes_per_second > 0 and .flops > 0 and .roofline > 0 and .error_occurred != true)' "$work/out" >/dev/null ||
    fail "kernels were not measured"
  jq -e '[.benchmarks[] | select(.name | startswith("allreduce/"))] | length == 1 and all(.busbw > 0 and .real_time > 0)' \
    "$work/out" >/dev/null || fail "the allreduce was not measured"
  [ "$(jq '.benchmarks | length' "$work/out.json")" -gt 0 ] || fail "--benchmark_out has no benchmarks"
  # The library's own tool reads it, where both are installed.
  compare=/usr/share/benchmark/compare.py
  if [ -f "$compare" ] && python3 -c 'import scipy' 2>"$work/err"; then
    expect_exit 0 python3 "$compare" --no-color benchmarks "$work/out" "$work/out.json"
    grep -q '^allreduce/' "$work/out" || fail "compare.py does not show the allreduce"
  fi

  expect_exit 2 "$LOCKSTEP" micro --benchmark_filter=nothing-of-the-kind
  expect_error 2 "format.*'xml'" "$LOCKSTEP" micro --benchmark_format=xml
  expect_error 2 'no/such/folder' "$LOCKSTEP" micro --benchmark_out=/no/such/folder/out.json
  expect_error 2 'benchmark_no_such_flag' "$LOCKSTEP" micro --benchmark_no_such_flag
else
  # built without the library: one line says what brings it
  [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q libbenchmark-dev "$work/err" || fail "$(cat "$work/err")"
fi

# Tables: right values by NCCL and by MPI, out of place and in place.
expect_exit 0 "$LOCKSTEP" micro --allreduce --ranks threads -b 8 -e 4K -f 8 -n 3 -w 1 -o all --json "$work/rows.jsonl"
grep -q '^# Out of bounds values : 0 OK' "$work/out" || fail "$(cat "$work/out")"
grep -qE '^ +8 +2 +float +sum +-1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0$' "$work/out" ||
  fail "no row of 8 bytes as nccl-tests prints it"
jq -s -e 'length == 40 and all(.kind == "micro" and .wrong == 0 and .seconds > 0 and .world == 2)' "$work/rows.jsonl" \
  >/dev/null || fail "rows are not as documented"
expect_exit 0 "$LOCKSTEP" micro --reduce-scatter --ranks processes,mpi -b 64 -e 64 -n 2 -w 0
[ "$(grep -c '^# Out of bounds values : 0 OK' "$work/out")" -eq 2 ] || fail "$(cat "$work/out")"

# Two turns carry no verdict, six do.
expect_exit 0 "$LOCKSTEP" micro --peers --only 'ddp, 1 device' --restarts 1 --rounds 2 --json "$work/peers.jsonl"
jq -s -e 'length == 1 and .[0].kind == "peer" and .[0].low <= .[0].ratio and .[0].ratio <= .[0].high and .[0].low > 0
  and .[0].target == 0.99 and .[0].samples == 2 and .[0].confidence == 0.5 and .[0].met == null' "$work/peers.jsonl" >/dev/null ||
  fail "$(cat "$work/peers.jsonl")"
grep -q 'interval of 50.0 % confidence' "$work/out" && grep -q '^# -: no verdict.* 6 or more' "$work/out" &&
  grep -qE '^seed-cnn, ddp, 1 device .* 0\.99  -$' "$work/out" || fail "a verdict of two turns: $(cat "$work/out")"
expect_exit 0 "$LOCKSTEP" micro --peers --only 'ddp, 1 device' --restarts 1 --rounds 6 --json "$work/six.jsonl"
jq -s -e '.[0].confidence == 0.96875 and (.[0].met | type) == "boolean"' "$work/six.jsonl" >/dev/null || fail "$(cat "$work/six.jsonl")"
grep -qE '^seed-cnn, ddp, 1 device .* 0\.99  (met|below)$' "$work/out" || fail "no verdict of six turns: $(cat "$work/out")"

expect_error 2 "unknown option '--frobnicate'" "$LOCKSTEP" micro --frobnicate
expect_error 2 "'-d'.*'float8'" "$LOCKSTEP" micro --allreduce -d float8
expect_error 2 "'-b'.*'8X'" "$LOCKSTEP" micro --allreduce -b 8X
expect_error 2 "'--ranks'.*'fibers'" "$LOCKSTEP" micro --allreduce --ranks threads,fibers
expect_error 2 'two runs' "$LOCKSTEP" micro --allreduce --broadcast
expect_error 2 'two runs' "$LOCKSTEP" micro --allreduce --peers

# An option of one mode is refused in another, before a file is touched.
tables='the tables \(--allreduce and its like\)'
for option in '-b 8' '-e 8' '-i 8' '-f 2' '-n 1' '-w 0' '-d float' '-o sum' '-r 0' '-c 0'; do
  # shellcheck disable=SC2086 # two words
  expect_error 2 "^lockstep: option '${option% *}' belongs to $tables, not to benchmarks$" "$LOCKSTEP" micro $option
  # shellcheck disable=SC2086 # two words
  expect_error 2 "option '${option% *}' belongs to $tables, not to --peers$" "$LOCKSTEP" micro --peers $option
done
for option in '--only x' '--rounds 2' '--restarts 2'; do
  # shellcheck disable=SC2086 # two words
  expect_error 2 "option '${option% *}' belongs to --peers, not to $tables$" "$LOCKSTEP" micro --allreduce $option
  # shellcheck disable=SC2086 # two words
  expect_error 2 "option '${option% *}' belongs to --peers, not to benchmarks$" "$LOCKSTEP" micro $option
done
expect_error 2 "option '--json' belongs to $tables and --peers, not to benchmarks$" \
  "$LOCKSTEP" micro --benchmark_filter=x --json "$work/none.jsonl"
[ ! -e "$work/none.jsonl" ] || fail "a refused --json left a file"
expect_error 2 "option '--benchmark_filter' belongs to benchmarks, not to --peers$" "$LOCKSTEP" micro --peers --benchmark_filter=x
expect_error 2 'has this in its name' "$LOCKSTEP" micro --peers --only nothing-of-the-kind
expect_error 2 'root|-r 2' "$LOCKSTEP" micro --broadcast -r 2

# A rank that dies ends the measurement, named by one line.
"$LOCKSTEP" micro --allreduce --ranks processes -b 1M -e 1M -n 1000000 >"$work/out" 2>"$work/err" &
pid=$!
measures() { grep -q 'in-place' "$work/out" && pgrep -P $pid -f 'micro-rank .* processes 1 ' >/dev/null; }
await 60 measures || fail "no rank 1 among the children of $pid: $(cat "$work/out" "$work/err")"
victim=$(pgrep -P $pid -f 'micro-rank .* processes 1 ')
kill -KILL "$victim"
code=0
wait $pid || code=$?
[ $code -eq 3 ] || fail "exit $code after the death of a rank"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "not one line: $(cat "$work/err")"

[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls "$TMPDIR")"
