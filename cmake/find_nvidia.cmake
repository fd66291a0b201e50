# lockstep_cuda_library: where a library of NVIDIA's lies.

# pip's folders: <packages>/nvidia/<library>/{include,lib}, where a library has its soname alone.
find_program(LOCKSTEP_PYTHON3 python3)
set(python_packages "")
if(LOCKSTEP_PYTHON3)
  execute_process(COMMAND ${LOCKSTEP_PYTHON3} -c "import site, sys
print(';'.join(site.getsitepackages() + [site.getusersitepackages()] + [p for p in sys.path if p.endswith('-packages')]))"
    OUTPUT_VARIABLE python_packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

# lockstep_cuda_library(<name> <header> <soname's number>): looks for a library of NVIDIA's; the target lockstep::<name> where it
# is found.
function(lockstep_cuda_library name header number)
  string(TOUPPER ${name} upper)
  set(pip "")
  foreach(folder ${python_packages})
    list(APPEND pip ${folder}/nvidia/${name})
  endforeach()
  set(places HINTS ${${upper}_ROOT} ENV ${upper}_ROOT ${CUDAToolkit_INCLUDE_DIRS}/.. ${CUDAToolkit_LIBRARY_DIR}/..
      PATHS /usr/local/cuda /usr/local /usr ${pip})
  find_path(${upper}_INCLUDE_DIR ${header} ${places} PATH_SUFFIXES include)
  find_library(${upper}_LIBRARY NAMES ${name} lib${name}.so.${number} NAMES_PER_DIR ${places}
    PATH_SUFFIXES lib64 lib lib/x86_64-linux-gnu lib/aarch64-linux-gnu)
  if(${upper}_INCLUDE_DIR AND ${upper}_LIBRARY)
    add_library(lockstep::${name} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(lockstep::${name} PROPERTIES IMPORTED_LOCATION ${${upper}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${${upper}_INCLUDE_DIR})
  endif()
endfunction()
