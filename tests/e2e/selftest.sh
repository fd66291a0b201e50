#!/usr/bin/env bash
# lockstep selftest: every planted fault is caught by the check named for it, a fault that is not makes it fail, and the ordinary
# program holds none.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

expect_exit 0 "$LOCKSTEP" selftest --quick --json "$work/rows.jsonl"
grep -qE '^Without a fault: .* all passed$' "$work/out" || fail "no run without a fault"
grep -qE '^([3-9][0-9]|[1-9][0-9]{2}) listed mutants: [0-9]+ caught, 0 survived, 0 skipped; 4 more wait' "$work/out" ||
  fail "$(grep listed "$work/out")"
grep -qE '^family: [0-9]{3,} generated faults, [0-9]{3,} caught, 0 survived' "$work/out" || fail "$(tail -n 2 "$work/out")"
grep -qE '^ddp  [0-9]+ calls .*: ([5-9]|[1-9][0-9]) left out are reported, .* 0 survived$' "$work/out" || fail "no call is missed"
[ ! -s "$work/err" ] || fail "stderr is not empty: $(head -n 1 "$work/err")"
jq -s -e 'length > 50 and all(.kind == "selftest" and .schema == 1 and (.status | test("^(CAUGHT|KEPT)$"))
  and (.mutant | length > 0))' "$work/rows.jsonl" >/dev/null || fail "a row is not as documented"
jq -s -e '[.[] | select(.mutant | test("^drop:reference/upload.c"))] | length == 8 and all(.status == "CAUGHT")' "$work/rows.jsonl" \
  >/dev/null || fail "a wait of the copies on their own stream is not missed"
jq -s -e '[.[] | select(.mutant == "count_differs") | .caught_by] | length >= 1 and all(. == "run")' "$work/rows.jsonl" \
  >/dev/null || fail "a run that fails is not told from a check that does"

expect_exit 0 "$LOCKSTEP" selftest --list
grep -qE '^no_division +M1 ' "$work/out" || fail "no list"
expect_error 2 'no-such' "$LOCKSTEP" selftest --only no-such

# The ordinary program ignores the variable.
expect_exit 0 env LOCKSTEP_MUTANT=no_division "$LOCKSTEP" verify --impl ddp --devices 2 --ranks threads --model seed-conv \
  --dtype float32 --batch 2 --data synthetic:96

# Where faults are not found the self-test fails: here a program that has none poses as the one that has them all.
mkdir "$work/bin"
cp "$LOCKSTEP" "$work/bin/lockstep"
expect_error 2 'lockstep-mutants' "$work/bin/lockstep" selftest
cp "$LOCKSTEP" "$work/bin/lockstep-mutants"
expect_exit 1 "$work/bin/lockstep" selftest --quick --only no_division
grep -qE '^no_division .* SURVIVED$' "$work/out" || fail "a survivor is not named"
grep -qE '^  SURVIVED: LOCKSTEP_MUTANT=no_division lockstep-mutants verify ' "$work/out" || fail "no line to see it again"

# A signal ends its verifications too.
"$LOCKSTEP" selftest >"$work/out" 2>"$work/err" &
selftest=$!
verifications() { pgrep -f "verify .*$TMPDIR/lockstep-" >/dev/null; }
await 60 verifications || fail "no verification was started"
kill -TERM $selftest
code=0
wait $selftest || code=$?
[ $code -eq 143 ] || fail "exit $code instead of 143: $(cat "$work/err")"
! verifications || fail "a verification is left"

[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls "$TMPDIR")"
