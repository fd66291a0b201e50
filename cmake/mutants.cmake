# The program lockstep-mutants, made beside lockstep: the same program with faults that LOCKSTEP_MUTANT switches on
# (gpu/base/mutant.h). Only sources that hold a site are compiled again, as objects that stand in front of the libraries: what
# they define is found there, so the libraries' own copies are left out.
function(lockstep_mutants)
  file(GLOB_RECURSE candidates CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
    gpu/*.c reference/*.c impls/*.c)
  list(FILTER candidates EXCLUDE REGEX "^gpu/(cuda|vgpu)/|^reference/oracle/|/main\\.c$")
  lockstep_filter(candidates)
  set(sources "")
  foreach(candidate ${candidates})
    file(STRINGS ${candidate} site LIMIT_COUNT 1
      REGEX "LS_MUTANT\\(|cuda(EventRecord|StreamWaitEvent|StreamSynchronize|EventSynchronize)\\(")
    if(site OR candidate MATCHES "/mutant_[a-z_]*\\.c$")
      list(APPEND sources ${candidate})
    endif()
  endforeach()
  add_executable(lockstep-mutants bench/main.c ${sources})
  target_compile_definitions(lockstep-mutants PRIVATE LOCKSTEP_MUTANTS)
  target_link_libraries(lockstep-mutants PRIVATE lockstep_bench)
  set_target_properties(lockstep-mutants PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()
