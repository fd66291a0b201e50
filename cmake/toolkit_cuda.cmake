# What the cuda platform needs: nvcc, the CUDA runtime, cuBLAS and NCCL; cuDNN 9, without which convolutions go by im2col; and NVTX,
# without which profilers show no ranges.
# Included at the top level, since a language must be enabled above every target that links it. Hints: -DCUDAToolkit_ROOT=DIR,
# -DCUDNN_ROOT=DIR, -DNCCL_ROOT=DIR, -DNVTX_ROOT=DIR, or the environment variables CUDA_HOME and CUDA_PATH. Libraries that pip
# installed (nvidia-cudnn-cu12, nvidia-nccl-cu13, ...) are found in the folders of python3's packages.

find_program(LOCKSTEP_NVCC nvcc
  HINTS ${CUDAToolkit_ROOT}/bin ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /usr/lib/nvidia-cuda-toolkit /usr
  PATH_SUFFIXES bin)
if(NOT LOCKSTEP_NVCC)
  message(FATAL_ERROR "nvcc not found: the cuda platform needs the CUDA Toolkit 12 or 13 (looked in PATH, CUDA_HOME and "
    "/usr/local/cuda). Install it from NVIDIA, point to it with -DCUDAToolkit_ROOT=DIR, or build for virtual GPUs: "
    "cmake --preset vgpu")
endif()
set(CMAKE_CUDA_COMPILER ${LOCKSTEP_NVCC} CACHE FILEPATH "nvcc")

# Machine code for every generation that this nvcc knows between Turing (75) and Blackwell (120), and PTX of the newest for
# what comes after.
set(LOCKSTEP_CUDA_ARCHITECTURES "" CACHE STRING
  "compute capabilities to build kernels for, for instance 80;90, or native (this machine's GPUs); empty: every major one that nvcc knows from 75 to 120")
execute_process(COMMAND ${LOCKSTEP_NVCC} --list-gpu-arch OUTPUT_VARIABLE known RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${LOCKSTEP_NVCC} --list-gpu-arch failed (${status}): this is not a working nvcc")
endif()
if(LOCKSTEP_CUDA_ARCHITECTURES STREQUAL native)
  if(NOT EXISTS /dev/nvidiactl)
    message(FATAL_ERROR "LOCKSTEP_CUDA_ARCHITECTURES is native, and this machine has no GPU to ask; name compute capabilities "
      "(80;90) or leave it empty")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES native)
else()
  set(architectures ${LOCKSTEP_CUDA_ARCHITECTURES})
  foreach(architecture ${architectures})
    if(NOT architecture MATCHES "^[0-9]+$" OR NOT known MATCHES "compute_${architecture}\n")
      string(REGEX MATCHALL "[0-9]+" numbers "${known}")
      message(FATAL_ERROR "LOCKSTEP_CUDA_ARCHITECTURES: '${architecture}' is not a compute capability that ${LOCKSTEP_NVCC} "
        "knows: ${numbers}")
    endif()
  endforeach()
  if(NOT architectures)
    foreach(architecture 75 80 86 89 90 100 120)
      if(known MATCHES "compute_${architecture}\n")
        list(APPEND architectures ${architecture})
      endif()
    endforeach()
  endif()
  list(POP_BACK architectures newest)
  list(TRANSFORM architectures APPEND -real)
  set(CMAKE_CUDA_ARCHITECTURES ${architectures} ${newest}) # the last without a suffix: machine code and PTX
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
if(CUDAToolkit_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "${LOCKSTEP_NVCC} is of CUDA ${CUDAToolkit_VERSION}, expected 12 or 13")
endif()
string(REPLACE ";" " " architectures "${CMAKE_CUDA_ARCHITECTURES}")
lockstep_found("CUDA Toolkit" "${CUDAToolkit_VERSION}, ${LOCKSTEP_NVCC}, kernels for ${architectures}")

include(find_nvidia)
set(nccl_package "NVIDIA's libnccl-dev, or pip's nvidia-nccl-cu${CUDAToolkit_VERSION_MAJOR}")
lockstep_cuda_library(nccl nccl.h 2)
if(TARGET lockstep::nccl)
  lockstep_found(NCCL "${NCCL_LIBRARY}")
else()
  lockstep_required(NCCL "${nccl_package}, or -DNCCL_ROOT=DIR")
endif()

set(cudnn_package "NVIDIA's libcudnn9-dev-cuda-${CUDAToolkit_VERSION_MAJOR}, or pip's nvidia-cudnn-cu${CUDAToolkit_VERSION_MAJOR}")
set(LOCKSTEP_HAVE_CUDNN OFF)
lockstep_wanted(cudnn wanted)
if(wanted)
  lockstep_cuda_library(cudnn cudnn.h 9)
endif()
if(TARGET lockstep::cudnn)
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h cudnn_major REGEX "^#define CUDNN_MAJOR ")
  if(NOT cudnn_major MATCHES "CUDNN_MAJOR ([0-9]+)" OR CMAKE_MATCH_1 LESS 9)
    message(FATAL_ERROR "${CUDNN_INCLUDE_DIR}/cudnn_version.h says '${cudnn_major}', expected cuDNN 9 or newer; point to one with "
      "-DCUDNN_ROOT=DIR, or build without: -DLOCKSTEP_WITHOUT=cudnn")
  endif()
  set(LOCKSTEP_HAVE_CUDNN ON)
  lockstep_found(cuDNN "${CUDNN_LIBRARY}")
  lockstep_leave_out(gpu/cuda/conv_absent.c)
else()
  lockstep_missing(cuDNN "convolutions go by im2col and cuBLAS" "${cudnn_package}, or -DCUDNN_ROOT=DIR")
  lockstep_leave_out(gpu/cuda/conv.c gpu/cuda/conv_fastest.c)
endif()

lockstep_wanted(nvtx wanted)
if(wanted)
  lockstep_cuda_header(nvtx nvtx3/nvToolsExt.h)
endif()
if(wanted AND NVTX_INCLUDE_DIR)
  add_library(lockstep::nvtx INTERFACE IMPORTED GLOBAL)
  target_include_directories(lockstep::nvtx SYSTEM INTERFACE ${NVTX_INCLUDE_DIR})
  target_link_libraries(lockstep::nvtx INTERFACE ${CMAKE_DL_LIBS})
  lockstep_found(NVTX "${NVTX_INCLUDE_DIR}")
  lockstep_leave_out(gpu/range_absent.c)
else()
  lockstep_missing(NVTX "profilers show no ranges"
    "NVIDIA's cuda-nvtx-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR}, pip's nvidia-nvtx, or -DNVTX_ROOT=DIR")
  lockstep_leave_out(gpu/range.c)
endif()
