#!/usr/bin/env bash
# Installing packages: nothing is done twice; without root and sudo the exact line is printed, with exit 2; with sudo, sudo is
# used. Stand-ins for dpkg-query, id, sudo and apt-get come first in PATH, so nothing is installed here.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"

mkdir "$work/bin"
stand_in() {
  printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
install() {
  # shellcheck disable=SC2016
  env PATH="$work/bin:/usr/bin:/bin" bash -c '. "$1/scripts/lib.sh"; install_packages build' "$0" "$LOCKSTEP_SOURCE" </dev/null
}
# shellcheck disable=SC2016 # the stand-ins expand it themselves
# The last word of dpkg-query's command line is the package.
stand_in dpkg-query 'for last; do :; done; case $last in zlib1g-dev|gnuplot-nox) exit 1 ;; *) printf installed ;; esac'
stand_in apt-get "echo \"apt-get \$*\" >>'$work/log'"
stand_in sudo 'exit 1'
stand_in id 'echo 1000'

expect_error 2 'run: apt-get install -y --no-install-recommends zlib1g-dev gnuplot-nox$' install
[ ! -e "$work/log" ] || fail "apt-get was run without rights"

# shellcheck disable=SC2016
stand_in sudo '[ "$1" = -n ] && exit 0; echo "sudo $1" >>'"'$work/log'"'; exec "$@"'
expect_exit 0 install
grep -q '^sudo apt-get$' "$work/log" || fail "sudo was not used"
grep -q '^apt-get install .* zlib1g-dev gnuplot-nox$' "$work/log" || fail "not the missing packages: $(cat "$work/log")"

rm "$work/log"
stand_in id 'echo 0'
stand_in sudo 'exit 1'
expect_exit 0 install
grep -q '^apt-get install .* zlib1g-dev gnuplot-nox$' "$work/log" || fail "as root: $(cat "$work/log")"

rm "$work/log"
stand_in dpkg-query 'printf installed'
expect_exit 0 install
[ ! -e "$work/log" ] || fail "installed again: $(cat "$work/log")"
