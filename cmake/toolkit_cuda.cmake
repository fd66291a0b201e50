# What the cuda platform needs: nvcc, the CUDA runtime, cuBLAS, cuDNN 9 and NCCL. Included at the top level, since a language
# must be enabled above every target that links it. Hints: -DCUDAToolkit_ROOT=DIR, -DCUDNN_ROOT=DIR, -DNCCL_ROOT=DIR, or the
# environment variables CUDA_HOME and CUDA_PATH.

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
  "compute capabilities to build kernels for, for instance 80;90; empty: every major one that nvcc knows from 75 to 120")
if(LOCKSTEP_CUDA_ARCHITECTURES)
  set(architectures ${LOCKSTEP_CUDA_ARCHITECTURES})
else()
  execute_process(COMMAND ${LOCKSTEP_NVCC} --list-gpu-arch OUTPUT_VARIABLE known RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${LOCKSTEP_NVCC} --list-gpu-arch failed (${status}): this is not a working nvcc")
  endif()
  set(architectures "")
  foreach(architecture 75 80 86 89 90 100 120)
    if(known MATCHES "compute_${architecture}\n")
      list(APPEND architectures ${architecture})
    endif()
  endforeach()
endif()
list(POP_BACK architectures newest)
list(TRANSFORM architectures APPEND -real)
set(CMAKE_CUDA_ARCHITECTURES ${architectures} ${newest}) # the last without a suffix: machine code and PTX
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
message(STATUS "CUDA Toolkit ${CUDAToolkit_VERSION} (${LOCKSTEP_NVCC}), kernels for ${CMAKE_CUDA_ARCHITECTURES}")

# lockstep_cuda_library(<name> <header> <library> <what brings it>): an imported target lockstep::<name>.
function(lockstep_cuda_library name header library package)
  string(TOUPPER ${name} upper)
  set(places HINTS ${${upper}_ROOT} ENV ${upper}_ROOT ${CUDAToolkit_INCLUDE_DIRS}/.. ${CUDAToolkit_LIBRARY_DIR}/..
      PATHS /usr/local/cuda /usr/local /usr)
  find_path(${upper}_INCLUDE_DIR ${header} ${places} PATH_SUFFIXES include)
  find_library(${upper}_LIBRARY ${library} ${places} PATH_SUFFIXES lib64 lib lib/x86_64-linux-gnu lib/aarch64-linux-gnu)
  if(NOT ${upper}_INCLUDE_DIR OR NOT ${upper}_LIBRARY)
    message(FATAL_ERROR "${header} or lib${library}.so not found; NVIDIA's package ${package} brings them, or point to their "
      "folder with -D${upper}_ROOT=DIR")
  endif()
  add_library(lockstep::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(lockstep::${name} PROPERTIES IMPORTED_LOCATION ${${upper}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${${upper}_INCLUDE_DIR})
  message(STATUS "Found ${name}: ${${upper}_LIBRARY}")
endfunction()
lockstep_cuda_library(cudnn cudnn.h cudnn libcudnn9-dev)
lockstep_cuda_library(nccl nccl.h nccl libnccl-dev)

file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h cudnn_major REGEX "^#define CUDNN_MAJOR ")
if(NOT cudnn_major MATCHES "CUDNN_MAJOR ([0-9]+)" OR CMAKE_MATCH_1 LESS 9)
  message(FATAL_ERROR "${CUDNN_INCLUDE_DIR}/cudnn_version.h says '${cudnn_major}', expected cuDNN 9 or newer")
endif()
