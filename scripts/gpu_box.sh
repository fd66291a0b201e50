# What a machine with GPUs has: NVIDIA's libraries wherever they were installed. Sourced by the bundle's program `lockstep` and by
# check_gpu.sh; uses nothing but bash and what comes with glibc.
# shellcheck shell=bash

# gpu_box_folders: every folder in which NVIDIA's libraries may lie, a line each, the system's own first. A folder that an
# environment variable names comes before all others.
gpu_box_folders() {
  local folder pattern python
  printf '%s\n' ${LOCKSTEP_CUDA_LIBRARIES:+"${LOCKSTEP_CUDA_LIBRARIES//:/$'\n'}"}
  for folder in ${CUDA_HOME:+"$CUDA_HOME"} ${CUDA_PATH:+"$CUDA_PATH"} /usr/local/cuda /usr/local/cuda-*; do
    printf '%s\n' "$folder/lib64" "$folder/targets/$(uname -m)-linux/lib"
  done
  printf '%s\n' "/usr/lib/$(uname -m)-linux-gnu" /usr/lib64 /usr/lib/cuda/lib64 /usr/local/nvidia/lib64 /usr/lib/wsl/lib
  # pip's packages: site-packages/nvidia/cudnn/lib, nvidia/cu13/lib and so on
  for python in ${VIRTUAL_ENV:+"$VIRTUAL_ENV"} ${CONDA_PREFIX:+"$CONDA_PREFIX"} /usr /usr/local "$HOME/.local" /opt/conda /opt/venv /venv; do
    for pattern in "$python"/lib/python3*/site-packages "$python"/lib/python3*/dist-packages "$python"/lib/python3/dist-packages; do
      printf '%s\n' "$pattern"/nvidia/*/lib
    done
  done
  for folder in ${VIRTUAL_ENV:+"$VIRTUAL_ENV"} ${CONDA_PREFIX:+"$CONDA_PREFIX"} /opt/conda; do
    printf '%s\n' "$folder/lib" # conda's own packages
  done
}

# gpu_box_path NAME...: folders of the libraries with these names (libcudnn.so.9) that the loader does not find by itself, joined
# by colons. Names that are nowhere are left out.
gpu_box_path() {
  local name folder found="" known
  known=$(ldconfig -p 2>/dev/null || /sbin/ldconfig -p 2>/dev/null || true)
  for name in "$@"; do
    case $known in *"$name "*) continue ;; esac
    while IFS= read -r folder; do
      if [ -n "$folder" ] && [ -e "$folder/$name" ]; then
        case ":$found:" in *":$folder:"*) ;; *) found+=${found:+:}$folder ;; esac
        break
      fi
    done < <(gpu_box_folders)
  done
  printf '%s' "$found"
}

# gpu_box_missing PROGRAM: the libraries that the loader does not find for it, joined by blanks.
gpu_box_missing() {
  { LC_ALL=C ldd "$1" 2>/dev/null || true; } | awk '/not found/ { printf "%s%s", sep, $1; sep = " " }'
}

# gpu_box_brings NAME: the package that brings a library of NVIDIA's.
gpu_box_brings() {
  local major=${1##*.so.}
  case $1 in
    libcuda.so*) echo "NVIDIA's driver" ;;
    libcudnn*) echo "pip's nvidia-cudnn-cu${2:-13} or Debian-style libcudnn$major" ;;
    libnccl*) echo "pip's nvidia-nccl-cu${2:-13} or Debian-style libnccl2" ;;
    libcublas*) echo "pip's nvidia-cublas (CUDA $major) or the CUDA Toolkit $major" ;;
    *) echo "pip's nvidia-cuda-runtime (CUDA $major) or the CUDA Toolkit $major" ;;
  esac
}

# gpu_box_glibc_too_old NEEDED: whether this machine's glibc is older, by two numbers.
gpu_box_glibc_too_old() {
  local here
  here=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }')
  [ -n "$here" ] && [ "$(printf '%s\n%s\n' "$1" "$here" | sort -V | head -n 1)" != "$1" ]
}

# gpu_box_enter ROOT: sets up this shell for the programs of a bundle unpacked at ROOT: its libraries, its Open MPI, and NVIDIA's
# libraries from where they are here.
gpu_box_enter() {
  local root=$1
  export LD_LIBRARY_PATH=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  if [ -d "$root/openmpi" ]; then
    export PATH=$root/openmpi/bin:$PATH OPAL_PREFIX=$root/openmpi PMIX_INSTALL_PREFIX=$root/openmpi
  fi
  gpu_box_find_libraries "$root/bin/lockstep"
}

# gpu_box_find_libraries PROGRAM: adds to LD_LIBRARY_PATH where the libraries are that the loader does not find for it, and the
# driver's. Twice, since a library that is found may need others.
gpu_box_find_libraries() {
  local found
  for _ in 1 2; do
    # shellcheck disable=SC2046 # names without blanks
    found=$(gpu_box_path $(gpu_box_missing "$1") libcuda.so.1)
    [ -n "$found" ] || break
    case ":${LD_LIBRARY_PATH:-}:" in *":$found:"*) break ;; esac
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found
  done
}
