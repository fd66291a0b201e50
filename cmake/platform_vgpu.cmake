# The vgpu platform: the CUDA runtime and NCCL on CPU threads; kernels compiled by the C++ compiler.
file(GLOB platform_sources CONFIGURE_DEPENDS vgpu/*.c vgpu/*.cc)
file(GLOB math_sources CONFIGURE_DEPENDS vgpu/math/*.c)
lockstep_leave_out(gpu/range_absent.c) # it brings nvtx3/nvToolsExt.h
lockstep_filter(gpu_sources)
list(FILTER math_sources EXCLUDE REGEX "/direct\\.c$")

# lockstep_direct(<variable> <table> <name> [options...]): the loops of vgpu/math/direct.c compiled for one instruction set;
# isa.c chooses among the tables when the program runs. Here alone products and sums may fuse.
function(lockstep_direct variable table name)
  add_library(${table} OBJECT vgpu/math/direct.c)
  add_library(${table}_options INTERFACE) # as a library's they come after lockstep_flags' own
  target_compile_options(${table}_options INTERFACE ${direct_options} ${ARGN})
  target_link_libraries(${table} PRIVATE lockstep_flags ${table}_options)
  target_compile_definitions(${table} PRIVATE DIRECT_ISA=${table} DIRECT_ISA_NAME="${name}")
  set(${variable} ${${variable}} $<TARGET_OBJECTS:${table}> PARENT_SCOPE)
endfunction()
# Sanitizers' checks in unrolled loops take minutes to optimise: -O1 there, gcc without UBSan, and clang without that of wrapping
# pointers, which doubles the time (AddressSanitizer sees where they point).
set(kernel_level -O3)
# Where a loop of a hundred bytes begins within a cache line decides about a fifth of its speed.
set(direct_options -O3 -ffp-contract=fast -falign-loops=64)
if(LOCKSTEP_SANITIZE)
  set(kernel_level -O1)
  set(direct_options -O1 -ffp-contract=fast)
  if(LOCKSTEP_SANITIZE MATCHES undefined AND CMAKE_C_COMPILER_ID STREQUAL GNU)
    list(APPEND direct_options -fno-sanitize=undefined)
  elseif(LOCKSTEP_SANITIZE MATCHES undefined)
    list(APPEND direct_options -fno-sanitize=pointer-overflow)
  endif()
endif()
set(direct_objects "")
lockstep_direct(direct_objects direct_baseline baseline)
# Under ThreadSanitizer these loops once, and under any sanitizer each kernel: they take it longest to compile. What the wider
# ones do but read and write is the baseline's, which UBSan sees.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" AND NOT LOCKSTEP_SANITIZE MATCHES thread)
  if(LOCKSTEP_SANITIZE MATCHES undefined)
    set(direct_options ${direct_options} -fno-sanitize=undefined)
  endif()
  set_source_files_properties(vgpu/math/isa.c PROPERTIES COMPILE_DEFINITIONS DIRECT_X86)
  lockstep_direct(direct_objects direct_avx2 AVX2 -mavx2 -mfma)
  lockstep_direct(direct_objects direct_avx512 AVX-512 -mavx2 -mfma -mavx512f -mavx512vl -mavx512dq -mavx512bw)
endif()

add_library(lockstep_gpu STATIC ${gpu_sources} ${kernel_sources} ${platform_sources} ${math_sources} ${direct_objects})
set_source_files_properties(${kernel_sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;${kernel_level};-fno-trapping-math")
if(LOCKSTEP_SANITIZE)
  set_source_files_properties(${kernel_sources} PROPERTIES COMPILE_DEFINITIONS LS_ONE_ISA)
endif()
target_include_directories(lockstep_gpu BEFORE PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/vgpu/include)
target_link_libraries(lockstep_gpu PUBLIC lockstep_base Threads::Threads m)
# At -O2 gcc leaves loops of unknown length scalar.
set_source_files_properties(vgpu/nccl_reduce.c vgpu/math/gemm.c PROPERTIES COMPILE_OPTIONS -O3)
