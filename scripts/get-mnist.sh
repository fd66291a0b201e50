#!/usr/bin/env bash
# Downloads MNIST into a folder (default: out/mnist) for `lockstep ... --data mnist:DIR`. Files that are there and right are
# kept. LOCKSTEP_MNIST_MIRRORS (URLs of folders, separated by blanks) replaces the list of mirrors.
# usage: scripts/get-mnist.sh [DIR]
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mirrors=${LOCKSTEP_MNIST_MIRRORS:-https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist http://yann.lecun.com/exdb/mnist}

# md5 of each file, as torchvision publishes them.
files="f68b3c2dcbeaaa9fbdd348bbdeb94873 train-images-idx3-ubyte.gz
d53e105ee54ea40749a09fcbcd1e9432 train-labels-idx1-ubyte.gz
9fb629c4189551a2d022fa330f9573f3 t10k-images-idx3-ubyte.gz
ec29112dd5afa0611ce80d1b7f02629c t10k-labels-idx1-ubyte.gz"

[ $# -le 1 ] || die 2 "usage: get-mnist.sh [DIR]"
folder=${1:-$root/out/mnist}
command -v curl >/dev/null || die 2 "curl is missing; run: apt-get install -y curl"
mkdir -p "$folder" 2>/dev/null || die 2 "cannot make the folder $folder"
[ -w "$folder" ] || die 2 "cannot write to $folder"

while read -r md5 name; do
  if [ -f "$folder/$name" ] && [ "$(md5sum <"$folder/$name" | cut -d ' ' -f 1)" = "$md5" ]; then
    say "$name is there"
    continue
  fi
  urls=()
  for mirror in $mirrors; do
    urls+=("$mirror/$name")
  done
  say "downloading $name"
  fetch_checked "$md5" "$folder/$name" "${urls[@]}" || exit 2
done <<<"$files"
say "MNIST is in $folder; use it with --data mnist:$folder"
