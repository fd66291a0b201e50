# What was found and what is missing, told together at the end of configure; and how a build does without.

set(LOCKSTEP_WITHOUT "" CACHE STRING
  "optional libraries to build without although they may be there: mpi;cudnn;nvtx;benchmark")
foreach(name ${LOCKSTEP_WITHOUT})
  if(NOT name MATCHES "^(mpi|cudnn|nvtx|benchmark)$")
    message(FATAL_ERROR "LOCKSTEP_WITHOUT: '${name}' is not one of mpi, cudnn, nvtx, benchmark")
  endif()
endforeach()

# lockstep_wanted(<name> <variable>): whether an optional library is to be looked for.
function(lockstep_wanted name variable)
  if(name IN_LIST LOCKSTEP_WITHOUT)
    set(${variable} OFF PARENT_SCOPE)
  else()
    set(${variable} ON PARENT_SCOPE)
  endif()
endfunction()

function(lockstep_found name detail)
  set_property(GLOBAL APPEND_STRING PROPERTY LOCKSTEP_SUMMARY "--   ${name}: ${detail}\n")
endfunction()

# lockstep_missing(<name> <what that means> <what brings it>)
function(lockstep_missing name loss package)
  set_property(GLOBAL APPEND_STRING PROPERTY LOCKSTEP_SUMMARY "--   ${name}: none, so ${loss}; it comes with ${package}\n")
endfunction()

# lockstep_required(<name> <what brings it>): is missing, and nothing goes without it.
function(lockstep_required name package)
  set_property(GLOBAL APPEND_STRING PROPERTY LOCKSTEP_REQUIRED "  ${name} not found; it comes with ${package}\n")
endfunction()

# lockstep_leave_out(<source>...): sources, named from the root, that no library takes.
function(lockstep_leave_out)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LEFT_OUT ${ARGN})
endfunction()

# lockstep_filter(<list variable>): without what is left out; of paths from the root or absolute ones.
function(lockstep_filter variable)
  get_property(left_out GLOBAL PROPERTY LOCKSTEP_LEFT_OUT)
  foreach(source ${left_out})
    list(REMOVE_ITEM ${variable} ${source} ${CMAKE_SOURCE_DIR}/${source})
  endforeach()
  set(${variable} ${${variable}} PARENT_SCOPE)
endfunction()

# Ends configure with everything that is missing at once.
function(lockstep_check_required)
  get_property(required GLOBAL PROPERTY LOCKSTEP_REQUIRED)
  if(required)
    message(FATAL_ERROR "what the build needs:\n${required}")
  endif()
endfunction()

function(lockstep_summary)
  get_property(summary GLOBAL PROPERTY LOCKSTEP_SUMMARY)
  message(STATUS "Platform ${LOCKSTEP_PLATFORM_CHOSEN}, with\n${summary}")
endfunction()
