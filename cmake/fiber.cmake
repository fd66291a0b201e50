# lockstep_fiber: the kernels in fiber mode (gpu/vgpu/fiber/fiber.h) beside those of lockstep_gpu, each launcher ls_kernel_X of
# kernels.h under the name fiber_ls_kernel_X; and the kernels of tests/gpu/fiber/. Built for the tests only.
# fiber_kernels.h, made here, declares them.
set(fiber_root ${CMAKE_SOURCE_DIR}/gpu)
file(GLOB fiber_sources CONFIGURE_DEPENDS ${fiber_root}/vgpu/fiber/*.c ${fiber_root}/kernels/*.cu
  ${CMAKE_CURRENT_SOURCE_DIR}/gpu/fiber/*.cu)
set(fiber_kernels ${fiber_sources})
list(FILTER fiber_kernels INCLUDE REGEX "\\.cu$")
# Plain code: it is compiled fast, and every line of a kernel is there to be instrumented.
set_source_files_properties(${fiber_kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-O1")

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${fiber_root}/kernels/kernels.h)
file(STRINGS ${fiber_root}/kernels/kernels.h fiber_lines REGEX "^cudaError_t ls_kernel_[a-z0-9_]+\\(")
set(fiber_names "")
set(fiber_declarations "/* Made by cmake/fiber.cmake from gpu/kernels/kernels.h. */\n")
foreach(line ${fiber_lines})
  string(REGEX REPLACE "^cudaError_t (ls_kernel_[a-z0-9_]+).*" "\\1" name "${line}")
  list(APPEND fiber_names ${name}=fiber_${name})
  string(APPEND fiber_declarations "extern __typeof__(${name}) fiber_${name};\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/fiber/fiber_kernels.h CONTENT "${fiber_declarations}" @ONLY)

add_library(lockstep_fiber STATIC EXCLUDE_FROM_ALL ${fiber_sources})
target_link_libraries(lockstep_fiber PUBLIC lockstep_gpu)
target_compile_definitions(lockstep_fiber PRIVATE LS_FIBER ${fiber_names})
target_include_directories(lockstep_fiber INTERFACE ${CMAKE_CURRENT_BINARY_DIR}/fiber)

# What the tests of kernels in fiber mode share.
add_library(lockstep_fiber_case STATIC EXCLUDE_FROM_ALL gpu/fiber/case.c)
target_link_libraries(lockstep_fiber_case PUBLIC lockstep_fiber PkgConfig::CMOCKA)
