#!/usr/bin/env bash
# Makes one file for a machine with GPUs and without a network: the program and its mutant build, the conformance suite of gpu/,
# the libraries that they need (NVIDIA's apart, which that machine has), Open MPI, a part of Fashion-MNIST and check_gpu.sh. It runs
# from any folder:
#   tar xzf lockstep-gpu.tar.gz && lockstep-gpu/check_gpu.sh
# usage: scripts/bundle_gpu.sh [-o FILE] [--architectures '80;90'] [--platform cuda|vgpu] [--build DIR] [--images N]
#   -o FILE          out/lockstep-gpu.tar.gz
#   --architectures  compute capabilities (default: all that nvcc knows from 75 to 120)
#   --platform vgpu  the same with virtual GPUs, which needs no GPU
#   --build DIR      a build folder that is configured, in place of build/bundle-PLATFORM
#   --images N       training images that go along (default 10000)
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage='usage: bundle_gpu.sh [-o FILE] [--architectures LIST] [--platform cuda|vgpu] [--build DIR] [--images N]'
output=$root/out/lockstep-gpu.tar.gz platform=cuda architectures="" build="" images=10000
most_bytes=$((40 * 1024 * 1024))
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || die 2 "$usage"
  case $1 in
    -o) output=$2 ;;
    --architectures) architectures=$2 ;;
    --platform) platform=$2 ;;
    --build) build=$2 ;;
    --images) images=$2 ;;
    *) die 2 "unknown option '$1'; $usage" ;;
  esac
  shift 2
done
case $platform in cuda | vgpu) ;; *) die 2 "--platform: expected cuda or vgpu, found '$platform'" ;; esac
[[ $images =~ ^([1-9][0-9]{1,3}|[1-5][0-9]{4}|60000)$ ]] || die 2 "--images: expected a number from 10 to 60000, found '$images'"
mkdir -p "$(dirname "$output")" 2>/dev/null || true
[ -w "$(dirname "$output")" ] || die 2 "-o $output: cannot write in its folder"
output=$(cd "$(dirname "$output")" && pwd)/$(basename "$output")

work=$(mktemp -d)
trap 'rm -rf "$work" "$output.part"' EXIT
stage=$work/lockstep-gpu
mkdir "$stage"

say "build for $platform"
if [ -n "$build" ]; then
  [ -f "$build/CMakeCache.txt" ] || die 2 "--build $build: expected a configured build folder, found no CMakeCache.txt"
  build=$(cd "$build" && pwd)
  grep -q "^LOCKSTEP_PLATFORM:.*=$platform\$" "$build/CMakeCache.txt" || die 2 "--build $build: not configured for $platform"
  cmake --build "$build" -j "$(nproc)" --target gpu_box >"$work/build.log" 2>&1 || {
    tail -n 20 "$work/build.log" >&2
    die 1 "building $build failed"
  }
else
  build=$root/build/bundle-$platform
  build_folder "build/bundle-$platform" --preset "$platform" -B "$build" "-DLOCKSTEP_CUDA_ARCHITECTURES=$architectures" -- gpu_box
fi
cmake --install "$build" --component gpu_box --prefix "$stage" --strip >"$work/install.log" 2>&1 || {
  cat "$work/install.log" >&2
  die 1 "the programs cannot be copied"
}

# What every machine brings itself: the libraries of C and C++, which cuDNN needs too; and what belongs to NVIDIA.
is_system() {
  case $1 in
    ld-linux* | libc.so.* | libm.so.* | libmvec.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | libutil.so.* | \
      libnss_* | libanl.so.* | linux-vdso.so.* | libstdc++.so.* | libgcc_s.so.*) return 0 ;;
    *) return 1 ;;
  esac
}
is_nvidia() {
  case $1 in
    libcuda.so* | libcudart.so* | libcublas* | libcudnn* | libnccl* | libnv* | libcusparse* | libcusolver* | libcufft* | libcurand* | \
      libcupti*) return 0 ;;
    *) return 1 ;;
  esac
}

# needs FILE: the names of the libraries that it names itself.
needs() {
  LC_ALL=C readelf -d "$1" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'
}

# carry_libraries FILE...: copies what they need, and what that needs, to lib/.
carry_libraries() {
  local name path
  mkdir -p "$stage/lib"
  while read -r name path; do
    if is_system "$name" || is_nvidia "$name" || [ -e "$stage/lib/$name" ]; then
      continue
    fi
    [ "$path" != missing ] || die 1 "library $name is not found here"
    cp -L "$path" "$stage/lib/$name" || die 1 "library $path cannot be copied"
  done < <(for file in "$@"; do LC_ALL=C ldd "$file"; done | awk '$2 == "=>" { print $1, $3 == "not" ? "missing" : $3 }' | sort -u)
}

# carry_tree FROM FILE...: copies files below Open MPI's prefix to the same places below openmpi/.
carry_tree() {
  local from=$1 file
  shift
  for file in "$@"; do
    mkdir -p "$stage/openmpi/$(dirname "${file#"$from"/}")"
    cp -L "$file" "$stage/openmpi/${file#"$from"/}" || die 1 "$file cannot be copied"
  done
}

# Open MPI goes along where it can be moved (OPAL_PREFIX): mpirun, its plug-ins that need nothing but what is carried (those for
# fabrics need drivers), its messages, and PMIx' plug-ins.
carry_openmpi() {
  local prefix plugins plugin name bin pmix=""
  prefix=$(ompi_info --path prefix --parsable | sed -n 's/^path:prefix://p')
  plugins=$(ompi_info --path pkglibdir --parsable | sed -n 's/^path:pkglibdir://p' | head -n 1)
  bin=$(ompi_info --path bindir --parsable | sed -n 's/^path:bindir://p')
  [ -n "$prefix" ] && [ -d "$plugins" ] && [ -x "$bin/orterun" ] || return 1
  carry_libraries "$bin/orterun"
  carry_tree "$prefix" "$bin/orterun" "$bin/orted" "$(ompi_info --path pkgdatadir --parsable | sed -n 's/^path:pkgdatadir://p' |
    head -n 1)"/*.txt
  ln -s orterun "$stage/openmpi/${bin#"$prefix"/}/mpirun"
  # The one plug-in that may bring libraries of its own: how ranks find their mpirun.
  for plugin in "$plugins"/mca_pmix_*.so; do
    if [[ $(needs "$plugin") == *libpmix* ]]; then
      carry_libraries "$plugin"
      pmix=$(dirname "$(readlink -f "$(LC_ALL=C ldd "$plugin" | awk '$1 ~ /^libpmix/ { print $3 }')")")/pmix
    fi
  done
  for plugin in "$plugins"/*.so ${pmix:+"$pmix"/*.so}; do
    for name in $(needs "$plugin"); do
      is_system "$name" || [ -e "$stage/lib/$name" ] || continue 2
    done
    carry_tree "$prefix" "$plugin"
  done
}

say "libraries"
carry_libraries "$stage"/bin/* "$stage"/tests/*
if ! command -v ompi_info >/dev/null || ! carry_openmpi; then
  say "Open MPI is not carried: ompi_info does not say where it lies; mpi then needs the other machine's own mpirun"
fi
find "$stage/lib" "$stage/openmpi" -type f -name '*.so*' -exec strip --strip-unneeded {} + 2>/dev/null || true

# part_of FILE OUTPUT COUNT HEADER SIZE: an IDX file's first COUNT items of SIZE bytes, under a header with that count.
part_of() {
  { # head ends the pipe early
    zcat "$1" 2>/dev/null | head -c 4
    printf '%b' "$(printf '%08x' "$3" | sed 's/../\\x&/g')"
    zcat "$1" 2>/dev/null | tail -c +9 | head -c $(($4 - 8 + $3 * $5))
  } | gzip -9n >"$2"
}

say "images"
data=/usr/share/datasets/fashion-mnist
if [ -f $data/train-images-idx3-ubyte.gz ]; then
  mkdir "$stage/data"
  (
    set +o pipefail
    part_of $data/train-images-idx3-ubyte.gz "$stage/data/train-images-idx3-ubyte.gz" "$images" 16 784
    part_of $data/train-labels-idx1-ubyte.gz "$stage/data/train-labels-idx1-ubyte.gz" "$images" 8 1
  )
  cp $data/t10k-*-ubyte.gz "$stage/data/"
  "$build/lockstep" data check "fashion-mnist:$stage/data" >"$work/data.log" 2>&1 || {
    cat "$work/data.log" >&2
    die 1 "the part of Fashion-MNIST that was made is not sound"
  }
else
  say "none: Debian's dataset-fashion-mnist is not installed; runs take --data synthetic"
fi

say "scripts"
mkdir -p "$stage/scripts/pytorch"
cp "$root"/scripts/{lib.sh,gpu_box.sh,check_gpu.sh,check_gpu_steps.sh} "$stage/scripts/"
cp "$root"/scripts/pytorch/{__init__,networks,step_time}.py "$stage/scripts/pytorch/"
cp "$root/LICENSE" "$stage/"
[ -f "$root/docs/cuda.md" ] && cp "$root/docs/cuda.md" "$stage/README.md"
cat >"$stage/lockstep" <<'END'
#!/usr/bin/env bash
# The program with the libraries of this folder, and NVIDIA's from where they are on this machine.
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
source "$here/scripts/gpu_box.sh"
gpu_box_enter "$here"
exec "$here/bin/lockstep" "$@"
END
cat >"$stage/check_gpu.sh" <<'END'
#!/usr/bin/env bash
exec bash "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/scripts/check_gpu.sh" "$@"
END
chmod +x "$stage/lockstep" "$stage/check_gpu.sh" "$stage"/scripts/*.sh

# The newest symbol version of the C library that anything here asks for.
glibc=$(find "$stage" -type f \( -path '*/bin/*' -o -path '*/tests/*' -o -name '*.so*' \) -exec objdump -T {} + 2>/dev/null |
  grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -uV | tail -n 1)
cat >"$stage/BUNDLE" <<END
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
platform=$platform
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
architectures=$(sed -n 's/^LOCKSTEP_CUDA_ARCHITECTURES:[^=]*=//p' "$build/CMakeCache.txt" | grep . || echo all)
glibc=${glibc#GLIBC_}
nvidia=$(needs "$stage/bin/lockstep" | while read -r name; do is_nvidia "$name" && printf '%s ' "$name"; done || true)
kernels=$(grep -rhoE '\bLS_KERNEL [a-z_0-9]+' "$root"/gpu/kernels/*.cu | cut -d ' ' -f 2 | sort -u | tr '\n' ' ')
END

say "the file"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf - lockstep-gpu | gzip -9n >"$output.part"
bytes=$(stat -c %s "$output.part")
[ "$bytes" -lt $most_bytes ] ||
  die 1 "the bundle has $((bytes / 1024 / 1024)) MiB, expected less than $((most_bytes / 1024 / 1024)); give fewer --architectures or --images"

# It starts from another folder, or says in one line what it lacks here.
mkdir "$work/elsewhere"
tar -C "$work/elsewhere" -xzf "$output.part"
(cd / && "$work/elsewhere/lockstep-gpu/lockstep" --help >/dev/null) || die 1 "the program of the bundle does not start"
mv "$output.part" "$output"
awk -v bytes="$bytes" 'BEGIN { printf "== %.1f MiB: ", bytes / 1048576 }'
echo "$output"
echo "== on the GPU machine: tar xzf $(basename "$output") && lockstep-gpu/check_gpu.sh"
