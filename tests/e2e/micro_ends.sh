#!/usr/bin/env bash
# A measurement ends with the rank that dies or is stopped, and names it.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

# Ranks that measure: processes of this program that have joined, in the order of their pids.
ranks() { pgrep -f "^$LOCKSTEP micro-rank $TMPDIR/" || true; }
mpiruns() { pgrep -f "^mpirun .*$TMPDIR/" || true; }
two_ranks() { ! kill -0 "$program" 2>/dev/null || { [ "$(ranks | wc -l)" -eq 2 ] && [ -s "$work/out" ]; }; }

# start KIND: two ranks that measure for long.
start() {
  "$LOCKSTEP" micro --allreduce --ranks "$1" --devices 2 -b 1M -e 1M -n 1000000 >"$work/out" 2>"$work/err" &
  program=$!
  await 60 two_ranks || fail "no ranks ($1): $(cat "$work/out" "$work/err")"
}

# ends LINE: with exit code 3 and that line alone, nothing left.
ends() {
  local code=0
  wait "$program" || code=$?
  [ "$code" -eq 3 ] || fail "exit $code instead of 3: $(cat "$work/err")"
  [ "$(wc -l <"$work/err")" -eq 1 ] && grep -qE "^lockstep: $1$" "$work/err" || fail "no '$1' alone in: $(cat "$work/err")"
  [ -z "$(ranks)$(ls "$TMPDIR")" ] || fail "left behind: $(ranks) $(ls "$TMPDIR")"
}

for kind in processes mpi; do
  start $kind
  victim=$(ranks | tail -1)
  kill -KILL "$victim"
  ends "rank [01] \(pid $victim\) of the measurement \($kind\) was killed by signal 9 \(Killed\)"
done

start mpi
victim=$(mpiruns)
kill -KILL "$victim"
ends "mpirun \(pid $victim\) of the measurement \(mpi\) was killed by signal 9 \(Killed\)"

start mpi
victim=$(ranks | tail -1)
kill -STOP "$victim"
ends "rank [01] \(pid $victim\) of the measurement \(mpi\) is stopped"
