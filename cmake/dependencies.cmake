# Every package that the build needs. What is missing stops with the Debian package that brings it.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

function(lockstep_need name module package)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${module} not found; it comes with Debian's package ${package}: apt-get install ${package}")
  endif()
  message(STATUS "Found ${module} ${${name}_VERSION}")
endfunction()

lockstep_need(ZLIB zlib zlib1g-dev)
lockstep_need(LIBZIP libzip libzip-dev)
lockstep_need(JANSSON jansson libjansson-dev)
lockstep_need(CMOCKA cmocka libcmocka-dev)

# Without it all but the benchmarks of `lockstep micro` is there, and that says what is missing.
option(LOCKSTEP_GBENCH "use Google Benchmark where it is installed" ON)
if(LOCKSTEP_GBENCH)
  pkg_check_modules(BENCHMARK QUIET IMPORTED_TARGET benchmark)
endif()
if(LOCKSTEP_GBENCH AND BENCHMARK_FOUND)
  message(STATUS "Found benchmark ${BENCHMARK_VERSION}")
else()
  message(STATUS "No Google Benchmark (Debian's libbenchmark-dev): lockstep micro has its tables only")
endif()

find_package(MPI COMPONENTS C)
if(NOT MPI_C_FOUND)
  message(FATAL_ERROR "Open MPI not found; it comes with Debian's packages: apt-get install libopenmpi-dev openmpi-bin")
endif()

if(LOCKSTEP_PLATFORM_CHOSEN STREQUAL cuda)
  include(toolkit_cuda)
endif()
