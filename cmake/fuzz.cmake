# libFuzzer targets of the parsers: tests/fuzz/fuzz_<target>.c with the seeds tests/fuzz/corpus/<target>/. Each is built from
# the parsers' sources alone, under AddressSanitizer and UBSan. A short run of each is a test (label fuzz); scripts/fuzz.sh
# runs one for longer.
if(NOT CMAKE_C_COMPILER_ID STREQUAL Clang)
  message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang: cmake -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++")
endif()

set(fuzz_flags -g -O1 -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
file(GLOB fuzz_parsers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/reference/checkpoint/*.c ${CMAKE_SOURCE_DIR}/reference/data/*.c)
# no parsers: they compare with a model and a run, whose loss needs the kernels
list(FILTER fuzz_parsers EXCLUDE REGEX "/(model_state|training)\\.c$")
list(APPEND fuzz_parsers ${CMAKE_SOURCE_DIR}/reference/idx.c ${CMAKE_SOURCE_DIR}/reference/dataset.c
  ${CMAKE_SOURCE_DIR}/reference/file.c ${CMAKE_SOURCE_DIR}/reference/hash.c ${CMAKE_SOURCE_DIR}/gpu/base/error.c
  ${CMAKE_SOURCE_DIR}/gpu/base/path.c)
add_library(fuzz_parsers OBJECT ${fuzz_parsers})
target_link_libraries(fuzz_parsers PUBLIC lockstep_flags PkgConfig::ZLIB PkgConfig::JANSSON PkgConfig::LIBZIP)
target_compile_options(fuzz_parsers PRIVATE -g -O1 -fno-omit-frame-pointer
  -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)

file(GLOB fuzz_targets CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
add_custom_target(fuzz_tests)
foreach(source ${fuzz_targets})
  get_filename_component(target ${source} NAME_WE)
  string(REPLACE "fuzz_" "" name ${target})
  add_executable(${target} ${source})
  add_dependencies(fuzz_tests ${target})
  target_link_libraries(${target} PRIVATE fuzz_parsers)
  target_compile_options(${target} PRIVATE ${fuzz_flags})
  target_link_options(${target} PRIVATE -fsanitize=fuzzer,address,undefined)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  add_test(NAME fuzz.${name}
    COMMAND bash ${CMAKE_SOURCE_DIR}/scripts/fuzz.sh -b ${CMAKE_BINARY_DIR} ${name} 1s)
  set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 120 LABELS fuzz)
endforeach()
