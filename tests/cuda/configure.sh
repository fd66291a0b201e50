#!/usr/bin/env bash
# Configuring the cuda platform: without cuDNN and NVTX, with libraries by hint and in pip's folders, with architectures that nvcc
# does not know.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"
configure() {
  cmake -G Ninja -S "$LOCKSTEP_SOURCE" -B "$work/build" -DLOCKSTEP_PLATFORM=cuda "$@"
}

expect_exit 1 configure -DLOCKSTEP_CUDA_ARCHITECTURES=999
grep -q "'999' is not a compute capability" "$work/err" || fail "$(cat "$work/err")"
if [ ! -e /dev/nvidiactl ]; then
  expect_exit 1 configure -DLOCKSTEP_CUDA_ARCHITECTURES=native
  grep -q "no GPU to ask" "$work/err" || fail "$(cat "$work/err")"
fi

# The hint counts before everything else; and what cuDNN leaves when it is left out.
library=$(sed -n 's/^NCCL_LIBRARY:FILEPATH=//p' "$(dirname "$LOCKSTEP")/CMakeCache.txt")
header=$(sed -n 's/^NCCL_INCLUDE_DIR:PATH=//p' "$(dirname "$LOCKSTEP")/CMakeCache.txt")
mkdir -p "$work/hint/include" "$work/hint/lib"
ln -s "$header/nccl.h" "$work/hint/include"
ln -s "$library" "$work/hint/lib/libnccl.so.2"
rm -rf "$work/build"
expect_exit 0 configure "-DLOCKSTEP_CUDA_ARCHITECTURES=80;90" "-DLOCKSTEP_WITHOUT=cudnn;nvtx" "-DNCCL_ROOT=$work/hint"
grep -q "^--   cuDNN: none, so convolutions go by im2col and cuBLAS; .*libcudnn9-dev.*nvidia-cudnn-cu.*CUDNN_ROOT" "$work/out" ||
  fail "cuDNN: $(cat "$work/out")"
grep -q "^--   NCCL: $work/hint/lib/libnccl.so.2" "$work/out" || fail "NCCL: $(cat "$work/out")"
grep -q "^--   CUDA Toolkit: .* kernels for 80-real 90$" "$work/out" || fail "architectures: $(cat "$work/out")"
ninja -C "$work/build" -t targets all >"$work/targets"
grep -q "lockstep_gpu.dir/cuda/conv_absent\.c\.o" "$work/targets" ||
  fail "conv_absent.c is not built without cuDNN"
grep -qE "cuda/conv(_fastest)?\.c\.o" "$work/targets" && fail "a source that needs cuDNN is built"
grep -q "^--   NVTX: none, so profilers show no ranges; .*cuda-nvtx-.*nvidia-nvtx.*NVTX_ROOT" "$work/out" ||
  fail "NVTX: $(cat "$work/out")"
grep -q "lockstep_gpu.dir/range_absent\.c\.o" "$work/targets" || fail "range_absent.c is not built without NVTX"
grep -q "lockstep_gpu.dir/range\.c\.o" "$work/targets" && fail "a source that needs NVTX is built"

# NVTX is a header alone, and by hint it may lie anywhere.
mkdir -p "$work/nvtx/include/nvtx3"
touch "$work/nvtx/include/nvtx3/nvToolsExt.h"
rm -rf "$work/build"
expect_exit 0 configure -DLOCKSTEP_CUDA_ARCHITECTURES=90 "-DNVTX_ROOT=$work/nvtx"
grep -q "^--   NVTX: $work/nvtx/include$" "$work/out" || fail "NVTX: $(cat "$work/out")"

# Where pip puts a library: headers and a library without a name for the linker.
packages=$(PYTHONUSERBASE=$work/user python3 -c 'import site; print(site.getusersitepackages())')
mkdir -p "$packages/nvidia/planted/include" "$packages/nvidia/planted/lib" "$work/pip"
touch "$packages/nvidia/planted/include/planted.h" "$packages/nvidia/planted/lib/libplanted.so.9"
mkdir -p "$packages/nvidia/cu77/include/alone"
touch "$packages/nvidia/cu77/include/alone/alone.h"
cat >"$work/pip/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(pip LANGUAGES C)
include($LOCKSTEP_SOURCE/cmake/find_nvidia.cmake)
lockstep_cuda_library(planted planted.h 9)
get_target_property(where lockstep::planted IMPORTED_LOCATION)
message(STATUS "found \${where}")
set(CUDAToolkit_VERSION_MAJOR 77)
lockstep_cuda_header(alone alone/alone.h)
message(STATUS "found \${ALONE_INCLUDE_DIR}")
END
expect_exit 0 env PYTHONUSERBASE="$work/user" cmake -G Ninja -S "$work/pip" -B "$work/pip/build"
grep -q "found $packages/nvidia/planted/lib/libplanted.so.9" "$work/out" || fail "pip: $(cat "$work/out")"
grep -q "found $packages/nvidia/cu77/include$" "$work/out" || fail "pip, the folder that packages share: $(cat "$work/out")"
