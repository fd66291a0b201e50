# lockstep_cuda_library, lockstep_cuda_header: where a library of NVIDIA's lies, or one that is a header alone.

# pip's folders: <packages>/nvidia/<library>/{include,lib}, where a library has its soname alone.
find_program(LOCKSTEP_PYTHON3 python3)
set(python_packages "")
if(LOCKSTEP_PYTHON3)
  execute_process(COMMAND ${LOCKSTEP_PYTHON3} -c "import site, sys
print(';'.join(site.getsitepackages() + [site.getusersitepackages()] + [p for p in sys.path if p.endswith('-packages')]))"
    OUTPUT_VARIABLE python_packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

# In the caller: upper, the name in capitals, and places, where to look for what it names. Many of pip's packages for CUDA 13 share
# one folder.
macro(lockstep_cuda_places name)
  string(TOUPPER ${name} upper)
  set(pip "")
  foreach(folder ${python_packages})
    list(APPEND pip ${folder}/nvidia/${name} ${folder}/nvidia/cu${CUDAToolkit_VERSION_MAJOR})
  endforeach()
  set(places HINTS ${${upper}_ROOT} ENV ${upper}_ROOT ${CUDAToolkit_INCLUDE_DIRS}/.. ${CUDAToolkit_LIBRARY_DIR}/..
      PATHS /usr/local/cuda /usr/local /usr ${pip})
endmacro()

# lockstep_cuda_header(<name> <header>): sets the cache variable <NAME>_INCLUDE_DIR.
function(lockstep_cuda_header name header)
  lockstep_cuda_places(${name})
  find_path(${upper}_INCLUDE_DIR ${header} ${places} PATH_SUFFIXES include)
endfunction()

# lockstep_cuda_library(<name> <header> <soname's number>): looks for a library of NVIDIA's; the target lockstep::<name> where it
# is found.
function(lockstep_cuda_library name header number)
  lockstep_cuda_places(${name})
  lockstep_cuda_header(${name} ${header})
  find_library(${upper}_LIBRARY NAMES ${name} lib${name}.so.${number} NAMES_PER_DIR ${places}
    PATH_SUFFIXES lib64 lib lib/x86_64-linux-gnu lib/aarch64-linux-gnu)
  if(${upper}_INCLUDE_DIR AND ${upper}_LIBRARY)
    add_library(lockstep::${name} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(lockstep::${name} PROPERTIES IMPORTED_LOCATION ${${upper}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${${upper}_INCLUDE_DIR})
  endif()
endfunction()
