#!/usr/bin/env bash
# Builds Lockstep without its optional libraries and looks that what is left works and says what is missing: vgpu without MPI and
# Google Benchmark; cuda without cuDNN and NVTX, where nvcc is. Takes some minutes.
# usage: scripts/check_variants.sh
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
[ $# -eq 0 ] || die 2 "usage: check_variants.sh"

say "vgpu without MPI and Google Benchmark"
build_folder build/variant-vgpu -B build/variant-vgpu --preset vgpu "-DLOCKSTEP_WITHOUT=mpi;benchmark" -- lockstep
program=build/variant-vgpu/lockstep
libraries=$(ldd "$program")
if grep -qE "libmpi|libbenchmark" <<<"$libraries"; then
  die 1 "$program needs a library that it was built without"
fi
info=$("$program" info)
grep -q "mpi .* not here: built without MPI" <<<"$info" || die 1 "info does not say that MPI is missing"
cases=$("$program" verify --impl all --devices 1,2 --model seed-conv --data synthetic:128 --dtype float32 --batch 4 --steps 1 \
  --bucket-bytes 25MiB)
grep -q "^mpi .*SKIPPED(built without MPI" <<<"$cases" || die 1 "verify does not skip mpi with its reason"
grep -qE "^[1-9][0-9]* passed, 0 failed" <<<"$cases" || die 1 "verify: $(tail -n 1 <<<"$cases")"
if line=$("$program" train --impl mpi --devices 2 --data synthetic:64 --steps 1 2>&1); then
  die 1 "train --impl mpi went through without MPI"
fi
[ "$(wc -l <<<"$line")" -eq 1 ] || die 1 "train --impl mpi: $line"

if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  say "cuda without cuDNN and NVTX"
  build_folder build/variant-cuda -B build/variant-cuda --preset cuda -DLOCKSTEP_CUDA_ARCHITECTURES=80 \
    "-DLOCKSTEP_WITHOUT=cudnn;nvtx" -- lockstep
  libraries=$(ldd build/variant-cuda/lockstep)
  if grep -q libcudnn <<<"$libraries"; then
    die 1 "build/variant-cuda/lockstep needs cuDNN"
  fi
else
  say "no nvcc: cuda without cuDNN and NVTX is not built"
fi
say "done in $SECONDS s"
