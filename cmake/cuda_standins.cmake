# The layer math of the cuda platform over stand-ins for NVIDIA's libraries (tests/cuda/standin.h): needs no GPU. The shared kernels
# are compiled in serial mode, as on vgpu.
set(standin_kernels "")
foreach(kernel im2col channels layout)
  list(APPEND standin_kernels ${CMAKE_SOURCE_DIR}/gpu/kernels/${kernel}.cu)
endforeach()
set_source_files_properties(${standin_kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-fno-trapping-math")

set(standin_gpu ${CMAKE_SOURCE_DIR}/gpu)
file(GLOB standin_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/standin_*.c)
foreach(name math notes gemm measure linear conv conv_fastest)
  list(APPEND standin_sources ${standin_gpu}/cuda/${name}.c)
endforeach()
add_library(cuda_standins STATIC ${standin_sources} ${standin_kernels} ${standin_gpu}/layer_shape.c ${standin_gpu}/layer_math.c
  ${standin_gpu}/im2col.c)
target_include_directories(cuda_standins SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR} ${NCCL_INCLUDE_DIR})
target_link_libraries(cuda_standins PUBLIC lockstep_base PkgConfig::CMOCKA Threads::Threads m)

add_executable(test_cuda_layer_math gpu/test_layer_math.c)
add_executable(test_cuda_layer_steps cuda/layer_steps.c)
foreach(name layer_math layer_steps)
  target_link_libraries(test_cuda_${name} PRIVATE cuda_standins)
  add_test(NAME cuda.${name} COMMAND test_cuda_${name})
  set_tests_properties(cuda.${name} PROPERTIES TIMEOUT 120 LABELS cuda ENVIRONMENT "${test_environment}")
endforeach()
