#!/usr/bin/env bash
# A rank that is killed or stopped, and a launcher that is killed: exit 3 within the time limit with the rank named in one
# line, and no process, shared-memory object or file left.
# shellcheck disable=SC2086 # options as words
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

limit=3
when='(at step [0-9]+|while evaluating)' # after each of its short epochs a run evaluates
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
shm_before=$(ls /dev/shm)

# Processes of the runs under way: the private folder is in their command lines.
processes() {
  pgrep -f "$TMPDIR/lockstep-" || true
}

# The pid of rank 1, or of the only rank program.
rank_pid() {
  local pid found=
  for pid in $(pgrep -f "rank .*--run-dir $TMPDIR/lockstep-"); do
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = lockstep ] || continue
    if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qxE '(RANK|OMPI_COMM_WORLD_RANK)=1'; then
      found=$pid
    fi
  done
  [ -n "$found" ] || fail "rank 1 not found"
  echo "$found"
}

trains() {
  grep -qF 'Train Epoch: 1 [1' "$work/out"
}

nothing_left() {
  [ -z "$(processes)" ] && [ -z "$(ls "$TMPDIR")" ] && [ "$(ls /dev/shm)" = "$shm_before" ]
}

start() {
  : >"$work/out"
  "$LOCKSTEP" train --data synthetic:6000 --epochs 100000 --timeout "$limit" "$@" >"$work/out" 2>"$work/err" &
  launcher=$!
  await 60 trains || fail "no training: $* $(cat "$work/err")"
}

# ends CODE SECONDS: the launcher, within so many seconds.
ends() {
  local begin code=0
  begin=$(date +%s)
  wait "$launcher" || code=$?
  [ "$code" -eq "$1" ] || fail "exit $code instead of $1: $(cat "$work/err")"
  [ $(($(date +%s) - begin)) -le "$2" ] || fail "it took longer than $2 s"
}

one_line() {
  [ "$(wc -l <"$work/err")" -eq 1 ] || fail "not one line: $(cat "$work/err")"
  grep -qE "$1" "$work/err" || fail "no '$1' in: $(cat "$work/err")"
}

left_at_once() {
  nothing_left || fail "left behind: $(processes) $(ls "$TMPDIR") $(ls /dev/shm)"
}

for impl in ddp mpi; do
  start --impl $impl --devices 3
  victim=$(rank_pid)
  kill -KILL "$victim"
  ends 3 $((limit + 5))
  one_line "^lockstep: rank 1 \(pid $victim\) was killed by signal 9 \(Killed\) $when; the run was ended$"
  left_at_once

  start --impl $impl --devices 3
  victim=$(rank_pid)
  kill -STOP "$victim"
  ends 3 $((limit + 8))
  one_line "^lockstep: rank 1 \(pid $victim\) made no progress for $limit s $when \(stopped\); the run was ended$"
  left_at_once

  start --impl $impl --devices 3
  kill -KILL "$launcher"
  ends 137 5
  await 15 nothing_left || fail "left behind by a killed launcher: $(processes) $(ls "$TMPDIR") $(ls /dev/shm)"

  start --impl $impl --devices 3
  kill -TERM "$launcher"
  ends 143 8
  left_at_once
done

# The same where the survivors' gradients are registered with the communicator that they abort.
start --impl ddp --devices 3 --nccl-register
victim=$(rank_pid)
kill -KILL "$victim"
ends 3 $((limit + 5))
one_line "^lockstep: rank 1 \(pid $victim\) was killed by signal 9"
left_at_once

start --impl ddp --ranks threads --devices 3
kill -KILL "$(pgrep -f "rank .*--run-dir $TMPDIR/lockstep-")"
ends 3 $((limit + 5))
one_line "the process of all ranks \(pid [0-9]+\) was killed by signal 9"
left_at_once
