#!/usr/bin/env bash
# Configuring tells what was found and what is missing, with the package that brings it; optional libraries can be left out, and all
# that is required and missing is told at once. scripts/check_variants.sh builds such variants.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"
configure() {
  cmake -G Ninja -S "$LOCKSTEP_SOURCE" -B "$work/build" -DLOCKSTEP_PLATFORM=vgpu "$@"
}

expect_exit 0 configure "-DLOCKSTEP_WITHOUT=mpi;benchmark"
grep -q "^--   MPI: none, so the implementation mpi is SKIPPED; .*libopenmpi-dev" "$work/out" || fail "MPI: $(cat "$work/out")"
grep -q "^--   Google Benchmark: none, .*libbenchmark-dev" "$work/out" || fail "benchmark: $(cat "$work/out")"
grep -qE "^--   zlib: [0-9]" "$work/out" || fail "zlib: $(cat "$work/out")"
ninja -C "$work/build" -t targets all >"$work/targets"
grep -q "lockstep_impls.dir/mpi_absent\.c\.o" "$work/targets" || fail "mpi_absent.c is not built without MPI"
grep -qE "lockstep_impls.dir/mpi(_check)?\.c\.o|micro_op_mpi\.c\.o|gbench_shim" "$work/targets" && fail "a source that needs MPI or Google Benchmark is built"

# Where pkg-config finds nothing, all of it is told in one go.
rm -rf "$work/build"
expect_exit 1 env PKG_CONFIG_LIBDIR="$work/none" cmake -G Ninja -S "$LOCKSTEP_SOURCE" -B "$work/build" -DLOCKSTEP_PLATFORM=vgpu
for package in zlib1g-dev libzip-dev libjansson-dev libcmocka-dev; do
  grep -q "Debian's package $package: apt-get install $package" "$work/err" || fail "$package is not named: $(cat "$work/err")"
done

rm -rf "$work/build"
expect_exit 1 configure -DLOCKSTEP_WITHOUT=zlib
grep -q "'zlib' is not one of mpi, cudnn, nvtx, benchmark" "$work/err" || fail "$(cat "$work/err")"
