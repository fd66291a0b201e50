#!/usr/bin/env bash
# Runs a compile command of nvcc (a compiler launcher) with ptxas' report of registers, shared memory and spills switched on,
# and leaves that in OBJECT.ptxas instead of on the screen.
set -euo pipefail
object=
previous=
for argument in "$@"; do
  [ "$previous" != -o ] || object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@" # nothing is compiled
code=0
"$@" -Xptxas=-v 2>"$object.stderr" || code=$?
report='^ptxas info|^ +[0-9]+ bytes stack frame'
grep -E "$report" "$object.stderr" >"$object.ptxas" || true
grep -vE "$report" "$object.stderr" >&2 || true
rm "$object.stderr"
exit "$code"
