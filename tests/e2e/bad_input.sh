#!/usr/bin/env bash
# Bad input: one line on stderr that says what is wrong, exit 2, and nothing half-written.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fashion=/usr/share/datasets/fashion-mnist

# Words and numbers.
expect_exit 2 "$LOCKSTEP"
expect_error 2 "unknown command 'trian'" "$LOCKSTEP" trian
expect_error 2 "unknown option '--device'" "$LOCKSTEP" train --device 2
expect_error 2 "'0' is not a whole number from 1" "$LOCKSTEP" train --devices 0
expect_error 2 "'many'" "$LOCKSTEP" verify --devices 1,many
expect_error 2 "not an implementation" "$LOCKSTEP" sweep --impl dp,foo

# Devices.
expect_error 2 "17.*16|16.*17" "$LOCKSTEP" train --impl ddp --devices 17
expect_error 2 "4.*3|3.*4" env LOCKSTEP_VGPU_COUNT=3 "$LOCKSTEP" verify --devices 4
expect_error 2 "single trains on one device, --devices says 2" "$LOCKSTEP" train --impl single --devices 2
expect_exit 0 "$LOCKSTEP" train --impl single --data synthetic:64 --steps 1

# Batches.
expect_error 2 "^lockstep: --batch 51: ddp on 2 devices .* a rank's shard 50 \(100 samples over 2 ranks\)" \
  "$LOCKSTEP" sweep --impl ddp --devices 2 --scaling weak --data synthetic:100 --batch 51 -o "$work/short.jsonl"
expect_error 2 "^lockstep: --drop-last: synthetic:3 has 3 training samples, fewer than the 4 ranks" \
  "$LOCKSTEP" train --impl ddp --devices 4 --data synthetic:3 --drop-last
expect_error 2 "global" "$LOCKSTEP" train --impl ddp --devices 2 --global-batch 65

# Data files, as a user meets them.
data=$work/data
fresh() {
  rm -rf "$data"
  mkdir "$data"
  cp "$fashion"/*.gz "$data/"
}
# refused PATTERN: training on the folder is refused with one line that matches.
refused() { expect_error 2 "$1" "$LOCKSTEP" train --impl ddp --devices 2 --steps 1 --data "mnist:$data"; }
expect_error 2 "/nonexistent" "$LOCKSTEP" train --data mnist:/nonexistent
fresh && rm "$data/train-images-idx3-ubyte.gz"
refused "train-images-idx3-ubyte"
fresh && : >"$data/train-labels-idx1-ubyte.gz"
refused "train-labels-idx1-ubyte.gz.*empty"
fresh && echo '<!DOCTYPE html><html>404</html>' >"$data/train-images-idx3-ubyte.gz"
refused "train-images-idx3-ubyte.gz.*HTML"
fresh && truncate -s 1000000 "$data/train-images-idx3-ubyte.gz"
refused "train-images-idx3-ubyte.gz"
fresh && printf 'x' | dd of="$data/train-images-idx3-ubyte.gz" bs=1 seek=5000000 conv=notrunc status=none
refused "train-images-idx3-ubyte.gz"
fresh && cp "$data/t10k-labels-idx1-ubyte.gz" "$data/train-labels-idx1-ubyte.gz"
refused "10000.*60000|60000.*10000"
fresh && { printf '\0\0\10\1\0\0\352\140' && head -c 60000 /dev/zero | tr '\0' '\12'; } | gzip -1 >"$data/train-labels-idx1-ubyte.gz"
refused "label"
fresh && { printf '\0\0\10\3\377\377\377\377\377\377\377\377\377\377\377\377' | gzip; } >"$data/train-images-idx3-ubyte.gz"
refused "train-images-idx3-ubyte.gz"

# Output that cannot be written is refused before any training.
expect_error 2 "safetensors" "$LOCKSTEP" train --steps 1 --save "$work/model.bin"
expect_error 2 "/nonexistent" "$LOCKSTEP" train --steps 1 --save /nonexistent/model.safetensors
expect_error 2 "/nonexistent" "$LOCKSTEP" train --steps 1 --json /nonexistent/run.json
expect_error 2 "'-'" "$LOCKSTEP" train --steps 1 --json -
expect_error 2 "/nonexistent" "$LOCKSTEP" sweep -o /nonexistent/results.jsonl
expect_error 2 "/nonexistent" "$LOCKSTEP" verify --devices 1 --json /nonexistent/verify.jsonl
expect_error 2 "missing.jsonl" "$LOCKSTEP" report "$work/missing.jsonl"
[ -z "$(find "$work" -name 'model*' -o -name 'results*')" ] || fail "something half-written is left"

expect_error 2 "baseline and --no-baseline contradict each other" "$LOCKSTEP" train --data synthetic:640 --baseline --no-baseline

# Neither is output lost unnoticed: on a full disk, or with stdout closed, a command that did all else well says so.
full() {
  local code=0
  "$LOCKSTEP" "$@" >/dev/full 2>"$work/err" || code=$?
  [ "$code" -eq 2 ] || fail "exit $code instead of 2 with a full disk: $* $(cat "$work/err")"
  [ "$(wc -l <"$work/err")" -eq 1 ] || fail "not one line with a full disk: $* $(cat "$work/err")"
  grep -qE '^lockstep: .*cannot write to standard output: No space left on device$' "$work/err" ||
    fail "a full disk is not named: $* $(cat "$work/err")"
}
full --help
full train --help
full info
full sampler --n 10000 --world 2
full data show synthetic:10
for impl in single ddp mpi; do
  full train --impl $impl --data synthetic:640 --steps 5 --model "flatten; linear 10; log-softmax"
done
full selftest --list
full verify --steps 1 --devices 1 --impl single
full micro --allreduce --ranks threads -b 64 -e 64 -n 1 -w 0
"$LOCKSTEP" micro --benchmark_list_tests >/dev/null 2>&1 && # built with Google Benchmark
  full micro --benchmark_filter='^kernel/scale/float64/n:36[0-9]+/' --benchmark_min_time=0.001 --benchmark_format=json
for impl in "single --devices 1" "ddp --devices 2" "ddp --devices 2 --ranks threads"; do
  # shellcheck disable=SC2086 # options as words
  full train --impl $impl --data synthetic:1000 --batch 50 --steps 2 --log-every 1
done
code=0
"$LOCKSTEP" info >&- 2>"$work/err" || code=$?
[ "$code" -eq 2 ] || fail "exit $code instead of 2 with stdout closed"
grep -q 'cannot write to standard output: Bad file descriptor' "$work/err" || fail "stdout closed: $(cat "$work/err")"

# mpirun missing: an error when asked for by name.
mkdir "$work/bin"
expect_error 2 "openmpi-bin" env PATH="$work/bin" "$LOCKSTEP" train --impl mpi --devices 2 --steps 1

# Harnesses are not rank programs.
for command in verify sweep; do
  expect_error 2 "mpirun" env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$LOCKSTEP" $command
done
echo "all refused in one line"
