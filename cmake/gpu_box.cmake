# The target gpu_box and the install component of the same name: what scripts/bundle_gpu.sh carries to another machine. Programs
# look for libraries in ../lib first, wherever they lie.
add_custom_target(gpu_box)

# lockstep_carry(<target> <folder>): the target belongs to it, in this folder.
function(lockstep_carry target folder)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  install(TARGETS ${target} RUNTIME DESTINATION ${folder} COMPONENT gpu_box EXCLUDE_FROM_ALL)
  add_dependencies(gpu_box ${target})
endfunction()
