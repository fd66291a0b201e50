# Shared by the end-to-end tests: source it first.
# shellcheck shell=bash
set -euo pipefail
: "${LOCKSTEP:?the path of the program}" "${LOCKSTEP_SOURCE:?the source tree}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAIL: $*" >&2
  exit 1
}

# expect_exit CODE COMMAND...: runs it, keeps stdout in $work/out and stderr in $work/err.
expect_exit() {
  local expected=$1 code=0
  shift
  "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" -eq "$expected" ] || {
    cat "$work/out" "$work/err" >&2
    fail "exit $code instead of $expected: $*"
  }
}

# expect_error CODE PATTERN COMMAND...: exit CODE with exactly one line on stderr, matching PATTERN (grep -E).
expect_error() {
  local code=$1 pattern=$2
  shift 2
  expect_exit "$code" "$@"
  [ "$(wc -l <"$work/err")" -eq 1 ] || {
    cat "$work/err" >&2
    fail "not one line on stderr: $*"
  }
  grep -qE -e "$pattern" "$work/err" || {
    cat "$work/err" >&2
    fail "stderr does not match '$pattern': $*"
  }
}

# await SECONDS COMMAND...: until the command succeeds.
await() {
  local end=$(($(date +%s) + $1))
  shift
  until "$@"; do
    [ "$(date +%s)" -lt "$end" ] || return 1
    sleep 0.05
  done
}

# shm_unmapped: the files in /dev/shm that no process maps. Those of tests that run beside this one are mapped but for the moment in
# which they are made.
shm_unmapped() {
  local file
  for file in /dev/shm/*; do
    [ ! -e "$file" ] || grep -qsF -- "$file" /proc/[0-9]*/maps || echo "$file"
  done
}
shm_before=$(shm_unmapped)

# no_shm_left: whether there are none but those that were there when this test began; to be awaited.
no_shm_left() {
  [ -z "$(comm -13 <(echo "$shm_before") <(shm_unmapped))" ]
}
