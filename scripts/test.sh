#!/usr/bin/env bash
# All tests that need no GPU, from a clean clone: installs what is missing, builds with gcc and with clang, runs every test, and
# the unit tests again under AddressSanitizer, UBSan and ThreadSanitizer, then static analysis. Ends with a line
# "N passed, N failed"; exit 0 when nothing failed.
# usage: scripts/test.sh
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
[ $# -eq 0 ] || die 2 "usage: test.sh"

passed=0
failed=0

# check NAME COMMAND...: counts the command as one test.
check() {
  local name=$1 start=$SECONDS
  shift
  if "$@"; then
    passed=$((passed + 1))
    say "$name: passed ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    say "$name: FAILED ($((SECONDS - start)) s)"
  fi
}

# run_tests BUILD CTEST_ARGUMENT...: runs ctest and adds its counts. Two tests more than cores: some of them wait.
run_tests() {
  local build=$1 start=$SECONDS log=$1/ctest.log bad total
  shift
  ctest --test-dir "$build" -j $(($(nproc) + 2)) --output-on-failure --no-tests=error "$@" >"$log" 2>&1 || true
  read -r bad total < <(sed -nE 's/.*, ([0-9]+) tests? failed out of ([0-9]+).*/\1 \2/p' "$log") || true
  if [ -z "${total:-}" ]; then
    bad=1
    total=1 # ctest itself failed
  fi
  if [ "$bad" -gt 0 ]; then
    cat "$log"
  fi
  passed=$((passed + total - bad))
  failed=$((failed + bad))
  say "$build: $((total - bad)) of $total tests passed ($((SECONDS - start)) s)"
}

say "packages"
install_packages build test

check "gcc build" build_preset vgpu all
if [ $failed -eq 0 ]; then
  run_tests build/vgpu
fi

# The second compiler builds for one sanitizer, gcc for the other.
before=$failed
check "clang build, AddressSanitizer and UBSan" \
  build_folder build/vgpu-asan --preset vgpu-asan -DLOCKSTEP_FUZZ=ON -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -- \
    unit_tests fuzz_tests
if [ $failed -eq $before ]; then
  # Not again: processes and time limits (impls.launch), and what computes for long with code that other tests run too.
  run_tests build/vgpu-asan -L "unit|fuzz" -E "impls.launch|verify.(rounding|reduction|computation|training_options)"
fi
before=$failed
check "gcc build, ThreadSanitizer" build_preset vgpu-tsan thread_tests
if [ $failed -eq $before ]; then
  run_tests build/vgpu-tsan -L threads
fi

check "clang-tidy" scripts/check_tidy.sh

say "done in $SECONDS s"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
