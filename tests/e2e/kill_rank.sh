#!/usr/bin/env bash
# A rank that is killed or stopped: exit 3 within the time limit with the rank named in one line. A launcher that is killed, or
# interrupted with its ranks, or whose reader is gone: it ends by that signal. No process, shared-memory object or file is left.
# shellcheck disable=SC2086 # options as words
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

limit=3
when='(at step [0-9]+|while evaluating)' # after each of its short epochs a run evaluates
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

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
  [ -z "$(processes)" ] && [ -z "$(ls "$TMPDIR")" ] && no_shm_left
}

# Commands in the background of a script ignore SIGINT; a session of its own is a process group of its own.
start() {
  : >"$work/out"
  setsid env --default-signal=INT "$LOCKSTEP" train --data synthetic:6000 --epochs 100000 --timeout "$limit" "$@" >"$work/out" 2>"$work/err" &
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
  nothing_left || fail "left behind: $(processes) $(ls "$TMPDIR") $(shm_unmapped)"
}

# As in `lockstep train | head -1`: the end is that of any program, without a line.
unread() {
  local codes
  "$LOCKSTEP" train --data synthetic:6000 --epochs 100000 --log-every 1 "$@" 2>"$work/err" | head -1 >"$work/out" ||
    codes=${PIPESTATUS[0]}
  [ "${codes:-0}" -eq 141 ] || fail "exit ${codes:-0} instead of 141 without a reader: $* $(cat "$work/err")"
  grep -q '^Train Epoch: 1 \[0/' "$work/out" || fail "the first line was not read: $(cat "$work/out")"
  [ ! -s "$work/err" ] || fail "a run without a reader says: $(cat "$work/err")"
  left_at_once
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
  await 15 nothing_left || fail "left behind by a killed launcher: $(processes) $(ls "$TMPDIR") $(shm_unmapped)"

  start --impl $impl --devices 3
  kill -TERM "$launcher"
  ends 143 8
  one_line '^lockstep: the run was interrupted by signal 15 \(Terminated\)$'
  left_at_once

  # Ctrl-C, which the ranks get too.
  start --impl $impl --devices 3
  kill -INT -- "-$launcher"
  ends 130 8
  one_line '^lockstep: the run was interrupted by signal 2 \(Interrupt\)$'
  left_at_once

  unread --impl $impl --devices 3
done

# A signal that one rank alone gets is named as it came.
start --impl ddp --devices 3
victim=$(rank_pid)
kill -INT "$victim"
ends 3 $((limit + 5))
one_line "^lockstep: rank 1 \(pid $victim\) was killed by signal 2 \(Interrupt\) $when; the run was ended$"
left_at_once

# What the launcher ignores, its ranks ignore.
(trap '' INT && exec setsid "$LOCKSTEP" train --data synthetic:6000 --steps 100000 --impl ddp --devices 3 >"$work/out" 2>"$work/err") &
launcher=$!
await 60 trains || fail "no training: $(cat "$work/err")"
kill -INT -- "-$launcher"
lines=$(wc -l <"$work/out")
goes_on() { [ "$(wc -l <"$work/out")" -gt $((lines + 10)) ]; }
await 30 goes_on || fail "SIGINT ended a run that ignores it: $(cat "$work/err")"
kill -TERM "$launcher"
ends 143 8
left_at_once

unread --impl ddp --ranks threads --devices 3

# A rank that fails on its own says so, and nothing else is said: not that mpirun ended its peers, or it.
for impl in ddp mpi; do
  expect_error 3 'cudaMalloc.* failed: cudaErrorMemoryAllocation' env LOCKSTEP_VGPU_MEMORY=16777216 "$LOCKSTEP" train --impl $impl --devices 2 \
    --data synthetic:8000 --batch 2048 --epochs 1 --no-baseline
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
