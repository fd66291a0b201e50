#!/usr/bin/env bash
# Every rule of rules.sh finds a violation that is planted in a copy of the tree, and names the file.
# shellcheck source=tests/structure/rules.sh
source "$(dirname "${BASH_SOURCE[0]}")/rules.sh"
source_tree=${LOCKSTEP_SOURCE:?the source tree}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

copy() {
  rm -rf "$work/tree"
  mkdir "$work/tree"
  tar -C "$source_tree" --exclude=./build --exclude=./out --exclude=./.git -cf - . | tar -C "$work/tree" -xf -
  cd "$work/tree"
}

# plant RULE FILE TEXT: appends TEXT to FILE of the copy; the rule must then report FILE, and must not have before.
plant() {
  local rule=$1 file=$2 text=$3 existed=1 found
  planted=$((planted + 1))
  [ -f "$file" ] || existed=0
  if [ $existed -eq 1 ]; then
    if "rule_$rule" | grep -F "$file:" >&2; then
      echo "FAIL: rule $rule reports $file without a planted violation" >&2
      exit 1
    fi
    cp "$file" "$work/kept"
  fi
  printf '%b' "$text" >>"$file"
  found=$("rule_$rule")
  if ! grep -qF "$file:" <<<"$found"; then
    echo "FAIL: rule $rule does not see in $file: $text" >&2
    exit 1
  fi
  if [ $existed -eq 1 ]; then
    cp "$work/kept" "$file"
  else
    rm "$file"
  fi
}

copy
planted=0
plant includes gpu/base/planted.c '#include "reference/model.h"\n'
plant includes reference/planted.c '#include "impls/run.h"\n'
plant includes impls/planted.c '  #  include "verify/verify.h"\n'
plant includes verify/planted.c '#include "bench/commands.h"\n'
plant includes reports/planted.c '#include "gpu/gpu.h"\n'
plant includes reports/planted.c '#include "bench/results.h"\n'
plant includes impls/planted.c '#include "run.h"\n'
plant includes reference/oracle/planted.c '#include "gpu/base/error.h"\n'
plant oracle reference/oracle/planted.c '#include <cuda_runtime.h>\n'
plant implementations impls/single.c '#include "impls/dp.h"\n'
plant launch_values gpu/kernels/planted.cu 'return LS_LAUNCH((k<T>), n, stream, n,\n    o->lr);\n'
plant launch_values gpu/kernels/planted.cu 'return LS_LAUNCH_ROWS(k<T>, n, stream, values[0]);\n'
plant implementations impls/planted.c 'extern int ls_impl_single;\n'
plant vgpu_internal impls/planted.c '#include "gpu/vgpu/internal.h"\n'
plant cuda_libraries reference/planted.c '#include <cudnn.h>\n'
plant platform bench/planted.c '#ifdef __CUDACC__\n#endif\n'
plant platform impls/planted.c '#if defined(LOCKSTEP_PLATFORM_CUDA)\n#endif\n'
plant fiber gpu/kernels/kernels.h 'cudaError_t ls_kernel_planted(cudaStream_t stream);\n'
plant length verify/planted.c "$(printf 'int x;\\n%.0s' {1..501})"
plant checked_calls impls/planted.c 'void f(void) {\n    cudaFree(NULL);\n}\n'
plant checked_calls impls/planted.c 'void f(void) {\n    ncclGroupEnd();\n}\n'
# The last rules look at every line of every file; a few files will do.
find tests gpu reference impls verify reports scripts -type f ! -name lib.sh -delete
plant format bench/planted.c 'int  main( ){return 0;}\n'
# shellcheck disable=SC2016
plant shellcheck scripts/planted.sh '#!/bin/bash\nrm -rf $1/*\n'

for rule in $rules; do
  grep -q "^plant $rule " "$source_tree/tests/structure/planted.sh" || {
    echo "FAIL: no violation of rule $rule is planted" >&2
    exit 1
  }
done
echo "$planted planted violations found"
