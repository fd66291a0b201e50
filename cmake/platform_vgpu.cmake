# The vgpu platform: the CUDA runtime and NCCL on CPU threads; kernels compiled by the C++ compiler.
file(GLOB platform_sources CONFIGURE_DEPENDS vgpu/*.c vgpu/*.cc)
file(GLOB math_sources CONFIGURE_DEPENDS vgpu/math/*.c)

add_library(lockstep_gpu STATIC ${base_sources} ${kernel_sources} ${platform_sources} ${math_sources})
set_source_files_properties(${kernel_sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-O3;-fno-trapping-math")
target_include_directories(lockstep_gpu BEFORE PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/vgpu/include)
target_link_libraries(lockstep_gpu PUBLIC lockstep_flags Threads::Threads m)
