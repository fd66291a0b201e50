#!/usr/bin/env bash
# The source tree keeps every rule of rules.sh.
# shellcheck source=tests/structure/rules.sh
source "$(dirname "${BASH_SOURCE[0]}")/rules.sh"
cd "${LOCKSTEP_SOURCE:?the source tree}"

status=0
for rule in $rules; do
  found=$("rule_$rule")
  if [ -n "$found" ]; then
    printf 'rule %s:\n%s\n' "$rule" "$found" >&2
    status=1
  fi
done
exit $status
