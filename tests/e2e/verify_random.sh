#!/usr/bin/env bash
# Drawn cases pass, each is reproduced by its line and by seed and number, and nothing is left behind.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

expect_exit 0 "$LOCKSTEP" verify --random 16 --seed 2 --json "$work/rows.jsonl"
grep -qE '^16 passed, 0 failed, 0 skipped, 0 mistrusted .*seed 2' "$work/out" || fail "$(tail -n 4 "$work/out")"
grep -qE '^implementations: .* dp [0-9]+ .* mpi [0-9]+' "$work/out" || fail "no counts: $(tail -n 4 "$work/out")"
[ "$(grep -cE '^ +[0-9]+ [a-z][a-z0-9_-]* .* PASSED' "$work/out")" -eq 16 ] || fail "not a line a case"
# in their order, whatever order they ended in
grep -oE '^ +[0-9]+ ' "$work/out" | sort -nc || fail "the cases are not in order"
jq -s -e '(map(.random.case) | unique) == [range(16)] and all(.status == "PASSED" and .random.seed == 2)' \
  "$work/rows.jsonl" >/dev/null || fail "rows are not as documented"

# One of them again: by number, and by the line that it prints.
expect_exit 0 "$LOCKSTEP" verify --random 1 --seed 2 --case 7 --json "$work/again.jsonl"
hash=$(jq -r 'select(.random.case == 7) | .param_hash' "$work/rows.jsonl" | tail -n 1)
[ "$(jq -r .param_hash "$work/again.jsonl" | tail -n 1)" = "$hash" ] || fail "case 7 of seed 2 has other bits"
line=$(sed -n 's/^ *alone: lockstep //p' "$work/out")
eval "expect_exit 0 \"\$LOCKSTEP\" $line --json \"\$work/line.jsonl\""
[ "$(jq -r .param_hash "$work/line.jsonl" | tail -n 1)" = "$hash" ] || fail "not reproduced: $line"

# Correct runs that were once taken for wrong: a batchnorm behind a batchnorm, whose bias has a gradient of nothing but the
# rounding of sums in the order of an image; RMSprop whose square average has underflowed where its mean has not.
for drawn in "7 189" "11 794"; do
  read -r seed number <<<"$drawn"
  expect_exit 0 "$LOCKSTEP" verify --random 1 --seed "$seed" --case "$number"
  grep -q '^1 passed, 0 failed' "$work/out" || fail "case $number of seed $seed: $(cat "$work/out")"
done

# A run that comes to no end is a failure, with all that it takes to see it again.
mkdir "$work/bin"
printf '#!/bin/sh\nexit 7\n' >"$work/bin/mpirun"
chmod +x "$work/bin/mpirun"
mpi=$(jq -r 'select(.impl == "mpi") | .random.case' "$work/rows.jsonl" | head -n 1)
expect_exit 1 env PATH="$work/bin:$PATH" "$LOCKSTEP" verify --random 1 --seed 2 --case "$mpi"
grep -q '^0 passed, 1 failed' "$work/out" || fail "$(tail -n 4 "$work/out")"
grep -q "case:  lockstep verify --random 1 --seed 2 --case $mpi" "$work/out" || fail "no line that reproduces"
# Without mpirun such a case cannot run here.
rm "$work/bin/mpirun"
expect_exit 1 env PATH="$work/bin" "$LOCKSTEP" verify --random 1 --seed 2 --case "$mpi"
grep -q 'SKIPPED(mpi cannot run here' "$work/out" || fail "$(cat "$work/out")"

expect_error 2 "'--random'" "$LOCKSTEP" verify --random 0
expect_error 2 "'--impl' does not go with --random" "$LOCKSTEP" verify --random 3 --impl ddp
expect_error 2 'two verifications' "$LOCKSTEP" verify --random 3 --determinism

[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls "$TMPDIR")"
await 10 no_shm_left || fail "shared memory was left behind: $(shm_unmapped)"
