#!/usr/bin/env bash
# From a fresh Debian 12 to a first result: installs what is missing, builds, proves that the implementations train alike,
# trains one epoch on real images, measures throughput over device counts and plots it. Output goes to out/quickstart, or to
# the folder given. It can be run again.
# usage: scripts/quickstart.sh [DIR]
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -le 1 ] || die 2 "usage: quickstart.sh [DIR]"
case ${1:-} in -*) die 2 "usage: quickstart.sh [DIR]" ;; esac
out=${1:-$root/out/quickstart}
mkdir -p "$out" 2>/dev/null || die 2 "cannot make the folder $out"
out=$(cd "$out" && pwd)
started=$SECONDS

say "1/6 packages"
install_packages build

preset=vgpu
if [ -e /dev/nvidiactl ] && { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }; then
  preset=cuda
fi
say "2/6 build for $preset (build/$preset)"
build_preset "$preset" lockstep || exit 1
lockstep=$root/build/$preset/lockstep
"$lockstep" info

say "3/6 verify: do 2 devices compute the gradients of one?"
"$lockstep" verify --impl all --devices 1,2 --model seed-cnn --bucket-bytes 16KiB --json "$out/verify.jsonl"

say "4/6 train: one epoch of seed-cnn on Fashion-MNIST, ddp on 2 devices"
"$lockstep" train --impl ddp --devices 2 --model seed-cnn --data fashion-mnist --epochs 1 \
  --save "$out/seed-cnn.safetensors" --json "$out/train.json" | tee "$out/train.log"

say "5/6 sweep: throughput over device counts"
rm -f "$out/results.jsonl"
"$lockstep" sweep --impl all --devices 1,2,4 --scaling weak,strong --model seed-cnn --data fashion-mnist -o "$out/results.jsonl"

say "6/6 report"
"$lockstep" report "$out/results.jsonl" -o "$out/report"
say "done in $((SECONDS - started)) s; open $out/report/index.html"
