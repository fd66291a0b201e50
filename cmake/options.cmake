# Platform, warnings, sanitizers, and the one way to declare a folder's library.

set(LOCKSTEP_PLATFORM auto CACHE STRING "auto, cuda (real GPUs) or vgpu (virtual devices on CPU threads)")
set_property(CACHE LOCKSTEP_PLATFORM PROPERTY STRINGS auto cuda vgpu)
set(LOCKSTEP_SANITIZE "" CACHE STRING "sanitizers for the whole build: address,undefined or thread")

option(LOCKSTEP_FUZZ "build the fuzz targets of the parsers (clang)" OFF)

if(LOCKSTEP_PLATFORM STREQUAL auto)
  find_program(LOCKSTEP_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(LOCKSTEP_NVCC AND EXISTS /dev/nvidiactl)
    set(LOCKSTEP_PLATFORM_CHOSEN cuda)
  else()
    set(LOCKSTEP_PLATFORM_CHOSEN vgpu)
  endif()
elseif(LOCKSTEP_PLATFORM MATCHES "^(cuda|vgpu)$")
  set(LOCKSTEP_PLATFORM_CHOSEN ${LOCKSTEP_PLATFORM})
else()
  message(FATAL_ERROR "LOCKSTEP_PLATFORM is '${LOCKSTEP_PLATFORM}', expected auto, cuda or vgpu")
endif()
message(STATUS "Platform: ${LOCKSTEP_PLATFORM_CHOSEN}")

add_library(lockstep_flags INTERFACE)
target_compile_definitions(lockstep_flags INTERFACE _GNU_SOURCE)
target_include_directories(lockstep_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(lockstep_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla>
  $<$<AND:$<COMPILE_LANGUAGE:C>,$<C_COMPILER_ID:GNU>>:-Wno-format-truncation> # where it matters the length is checked
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror>
  $<$<COMPILE_LANGUAGE:C,CXX>:-fno-math-errno -ffp-contract=off>)
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE
    # -O1 -g1: half the time to compile; reports still have their lines. LOCKSTEP_LIGHT: of what computes little, a third.
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1
      $<IF:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_LIGHT>>,-O0,-O1>>)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()
find_program(LOCKSTEP_LLD ld.lld)
if(LOCKSTEP_LLD AND LOCKSTEP_PLATFORM_CHOSEN STREQUAL vgpu) # a hundred programs of tests: a third of the time to link
  target_link_options(lockstep_flags INTERFACE -fuse-ld=lld)
endif()

# lockstep_library(<folder> [libraries...]): every .c of the folder and its subfolders but main.c and mutant_*.c
# (cmake/mutants.cmake) is one static library. A new file needs no line here.
function(lockstep_library name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
  list(FILTER sources EXCLUDE REGEX "/main\\.c$|/mutant_[a-z_]*\\.c$")
  lockstep_filter(sources)
  add_library(lockstep_${name} STATIC ${sources})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags ${ARGN})
endfunction()
