# The rules of the source tree, one function each. Called with the tree as the current folder; each prints a line for every
# violation (file:line: what). Run by tree.sh on the tree and by planted.sh on copies with a planted violation.
# shellcheck shell=bash
set -euo pipefail

folders=(gpu reference impls verify bench reports)

# sources FOLDER...: every source file, sorted.
sources() {
  find "$@" -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cc' -o -name '*.cpp' \) | sort
}

# search PATTERN FOLDER...: file:line:text of every match in the source files.
search() {
  local pattern=$1
  shift
  sources "$@" | xargs -d '\n' grep -nHE "$pattern" || [ $? -eq 123 ] # 123: grep found nothing somewhere
}

# Includes run one way: gpu <- reference <- impls <- verify <- bench; reports/ sees only gpu/base besides itself; the oracle
# sees reference/model.h and its own folder only. Quoted includes name the path from the root.
rule_includes() {
  search '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "${folders[@]}" | awk '
    BEGIN {
      may["gpu"] = "gpu"
      may["reference"] = "gpu reference"
      may["impls"] = "gpu reference impls"
      may["verify"] = "gpu reference impls verify"
      may["bench"] = "gpu reference impls verify bench reports"
      may["reports"] = "reports"
    }
    {
      split($0, part, ":")
      place = part[1] ":" part[2]
      split($0, quoted, "\"")
      header = quoted[2]
      folder = part[1]
      sub(/\/.*/, "", folder)
      from = header
      sub(/\/.*/, "", from)
      if (part[1] ~ /^reference\/oracle\//) {
        if (header != "reference/model.h" && header !~ /^reference\/oracle\//) {
          print place ": the oracle includes " header "; it may include reference/model.h and reference/oracle/ only"
        }
      } else if (index(" " may[folder] " ", " " from " ") == 0 && !(folder == "reports" && header ~ /^gpu\/base\//)) {
        print place ": includes \"" header "\"; allowed here: " may[folder]
      }
    }'
}

# The oracle is plain C: no header of CUDA, NCCL or MPI.
rule_oracle() {
  search '#[[:space:]]*include[[:space:]]*<(cuda|nccl|cudnn|cublas|mpi|jansson)' reference/oracle |
    sed 's/$/: the oracle includes libc only/'
}

# A launch takes local values: on virtual GPUs its arguments are evaluated later (gpu/kernels/kernel.h). A call may span lines.
rule_launch_values() {
  sources gpu/kernels | grep '\.cu$' | xargs -d '\n' awk '
    FNR == 1 { depth = 0 }
    {
      text = $0
      while (length(text) > 0) {
        if (depth == 0) {
          at = match(text, /LS_LAUNCH(_ROWS|_BLOCK)?\(/)
          if (at == 0) {
            break
          }
          text = substr(text, at + RLENGTH)
          depth = 1
        }
        c = substr(text, 1, 1)
        if (substr(text, 1, 2) == "->" || c == "[") {
          print FILENAME ":" FNR ": a launch looks behind a pointer; copy the value into a local one"
        }
        depth += c == "(" ? 1 : c == ")" ? -1 : 0
        text = substr(text, 2)
      }
    }' | sort -u
}

# The names in impls/table.c.
implementations() {
  grep -oE 'ls_impl_[a-z0-9]+' impls/table.c impls/*.h | sed 's/.*ls_impl_//' | grep -vx find | sort -u
}

# No implementation knows another: the headers and the table entry of NAME belong to impls/NAME.c and impls/NAME_*.
rule_implementations() {
  local name
  for name in $(implementations); do
    [ -f "impls/$name.c" ] || continue
    search "#[[:space:]]*include[[:space:]]*\"impls/$name(_[a-z0-9_]*)?\.h\"|\bls_impl_$name\b" impls |
      grep -vE "^impls/($name|${name}_[a-z0-9_]*|table)\.[ch]:" |
      sed "s/\$/: implementation $name is not to be known here/" || true
  done
}

# vgpu's inside stays inside; the header by which kernels are launched is its one user elsewhere.
rule_vgpu_internal() {
  search '#[[:space:]]*include[[:space:]]*"gpu/vgpu/[a-z_/]*\.h"' "${folders[@]}" |
    grep -vE '^gpu/vgpu/|^gpu/kernels/kernel\.h:' | sed 's/$/: only gpu\/vgpu includes its headers/' || true
}

# cuDNN and cuBLAS are gpu/cuda's.
rule_cuda_libraries() {
  search '#[[:space:]]*include[[:space:]]*[<"](gpu/cuda/|cudnn|cublas)' "${folders[@]}" |
    grep -v '^gpu/cuda/' | sed 's/$/: only gpu\/cuda uses cuDNN and cuBLAS/' || true
}

# One API, two platforms: nothing outside gpu/ asks which.
rule_platform() {
  search '#[[:space:]]*(if|ifdef|ifndef|elif).*(LOCKSTEP_PLATFORM|__CUDACC__|__NVCC__|CUDART_VERSION|NCCL_VERSION|VGPU|vgpu)' \
    reference impls verify bench reports | sed 's/$/: the platform is chosen inside gpu\/ only/'
}

# Every launcher of a kernel has a test at real block sizes.
rule_fiber() {
  local line name
  grep -noE '^cudaError_t ls_kernel_[a-z0-9_]+' gpu/kernels/kernels.h | sed 's/cudaError_t //' | while IFS=: read -r line name; do
    grep -qF "KERNEL($name)" tests/gpu/test_fiber_*.c ||
      echo "gpu/kernels/kernels.h:$line: no tests/gpu/test_fiber_*.c runs $name in fiber mode"
  done
}

# One subject a file.
rule_length() {
  local lines file
  sources "${folders[@]}" tests | xargs -d '\n' wc -l | while read -r lines file; do
    if [ "$file" != total ] && [ "$lines" -gt 500 ]; then
      echo "$file:$lines: more than 500 lines"
    fi
  done
}

# Style, by clang-format 14 (another version formats otherwise).
rule_format() {
  sources "${folders[@]}" tests | xargs -d '\n' clang-format --dry-run 2>&1 |
    sed -n 's/^\([^:]*:[0-9]*\):.*code should be clang-formatted.*/\1: run clang-format -i/p' | awk -F: '!seen[$1]++'
}

# Every failure of CUDA, NCCL and MPI is looked at: through LS_CUDA and LS_NCCL, or with a (void) where a clean-up can do no
# more about it.
rule_checked_calls() {
  search '^[[:space:]]*(cuda|nccl|MPI_)[A-Z][A-Za-z_]*\(.*\);' reference impls verify bench |
    sed 's/$/: the result is dropped; use LS_CUDA, LS_NCCL or the check of MPI/'
}

# No lines that a shell script's reader would trip over.
rule_shellcheck() {
  shellcheck -x -f gcc scripts/*.sh .ci/run || true
}

# shellcheck disable=SC2034 # for who sources this
rules="includes oracle launch_values implementations vgpu_internal cuda_libraries platform fiber length format checked_calls shellcheck"
