# The cuda platform: the shared kernels by nvcc, layer math by cuDNN and cuBLASLt, collectives by NCCL (found by
# toolkit_cuda.cmake).
file(GLOB platform_sources CONFIGURE_DEPENDS cuda/*.c)
lockstep_filter(platform_sources)
lockstep_filter(gpu_sources)

add_library(lockstep_gpu STATIC ${gpu_sources} ${kernel_sources} ${platform_sources})
# No contraction of a*b+c into one rounding: kernels then round as the virtual GPUs do. They are bound by memory, so it costs
# no time.
target_compile_options(lockstep_gpu PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false --Werror=all-warnings -Xcompiler=-Wall,-Wextra>)
target_link_libraries(lockstep_gpu PUBLIC lockstep_base CUDA::cudart CUDA::cublas CUDA::cublasLt lockstep::nccl
  $<TARGET_NAME_IF_EXISTS:lockstep::cudnn> $<TARGET_NAME_IF_EXISTS:lockstep::nvtx> Threads::Threads m)
# What each kernel takes of a device stands in OBJECT.ptxas, for tests/cuda/resources.sh.
set_property(TARGET lockstep_gpu PROPERTY CUDA_COMPILER_LAUNCHER bash ${CMAKE_SOURCE_DIR}/cmake/ptxas_log.sh
  ${CMAKE_CUDA_COMPILER_LAUNCHER})
