#!/usr/bin/env bash
# Data sets as a user makes, checks and trains on them: import, check, show, every source, and training on what does not come
# as MNIST does.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$work"

# said PATTERN: the last command's output has a line that matches.
said() { grep -qE "$1" out || fail "not said: $1: $(cat out)"; }

# bytes COUNT VALUE...: the values (octal) over and over, COUNT bytes in all.
bytes() {
  local count=$1 pattern
  shift
  printf -v pattern '\\%s' "$@"
  # shellcheck disable=SC2059 # the values are the format
  printf "$pattern" >unit
  while [ "$(stat -c %s unit)" -lt "$count" ]; do
    cat unit unit >twice
    mv twice unit
  done
  head -c "$count" unit
}

# IDX files of two channels of 2x3 and 12 classes: 4 training and 2 test samples.
mkdir idx
{ printf '\0\0\10\4\0\0\0\4\0\0\0\2\0\0\0\2\0\0\0\3' && bytes 48 0 377; } >idx/train-images-idx4-ubyte
printf '\0\0\10\1\0\0\0\4\0\1\13\1' >idx/train-labels-idx1-ubyte
{ printf '\0\0\10\4\0\0\0\2\0\0\0\2\0\0\0\2\0\0\0\3' && bytes 24 377 0; } | gzip >idx/t10k-images-idx4-ubyte.gz
printf '\0\0\10\1\0\0\0\2\3\12' >idx/t10k-labels-idx1-ubyte
expect_exit 0 "$LOCKSTEP" data check idx:idx
said '^train: 4 samples of 2x2x3 bytes, 12 classes of 1/2/0/0/0/0/0/0/0/0/0/1, mean,std 0.500000/0.500000,0.500000/0.500000$'
said '^test: 2 samples of 2x2x3 bytes, 12 classes of 0/0/0/1/'
expect_exit 0 "$LOCKSTEP" data show idx:idx --split test --index 1
said '^test sample 1 of 2: 2x2x3, label 10$'
expect_exit 0 "$LOCKSTEP" data import idx.raw --from idx:idx
said '4 training and 2 test samples of 2x2x3'
expect_exit 0 "$LOCKSTEP" data check idx:idx && mv out of-idx
expect_exit 0 "$LOCKSTEP" data check raw:idx.raw
cmp of-idx out || fail "the container is not what it was made from"
expect_error 2 "samples of 2x2x3 in 12 classes, model seed-cnn takes 1x28x28 and tells 10" \
  "$LOCKSTEP" train --data idx:idx --devices 2

# CIFAR-10: records of label 7, but for the first one's.
mkdir cifar
bytes 3073 7 20 >record
for _ in 1 2 3 4 5 6 7 8 9 10; do cat record; done >ten
for _ in $(seq 1000); do cat ten; done >cifar/test_batch.bin
for i in 1 2 3 4 5; do ln cifar/test_batch.bin "cifar/data_batch_$i.bin"; done
expect_exit 0 "$LOCKSTEP" data check cifar10:cifar
said '^train: 50000 samples of 3x32x32 bytes, 10 classes of '
said '^test: 10000 samples of 3x32x32 bytes'
expect_error 2 "samples of 3x32x32 in 10 classes, model seed-conv takes 1x28x28" \
  "$LOCKSTEP" train --data cifar10:cifar --model seed-conv
rm cifar/test_batch.bin
head -c 30740000 /dev/zero >cifar/test_batch.bin
expect_error 2 "test_batch.bin.*found 30740000.*CIFAR-100" "$LOCKSTEP" data check cifar10:cifar
rm cifar/test_batch.bin
head -c 30729999 /dev/zero >cifar/test_batch.bin
expect_error 2 "expected 30730000 bytes.*found 30729999.*cut" "$LOCKSTEP" data check cifar10:cifar

# Plain arrays. Floats: 0.5 = 3f000000 and -2 = c0000000, little-endian; targets 1 = 3f800000.
bytes $((28 * 28 * 40 * 4)) 0 0 0 77 0 0 0 300 >x.f32
bytes 40 0 1 2 3 4 5 6 7 10 11 >y.u8
expect_exit 0 "$LOCKSTEP" data import floats.raw --train-x x.f32 --train-y y.u8 --test-x x.f32 --test-y y.u8 \
  --shape 1x28x28 --dtype float32
expect_exit 0 "$LOCKSTEP" data check raw:floats.raw
said '^train: 40 samples of 1x28x28 floats, 10 classes of 4/4/4/4/4/4/4/4/4/4, mean,std -0.750000,1.250000$'
expect_exit 0 "$LOCKSTEP" data show raw:floats.raw --index 3
said '^train sample 3 of 40: 1x28x28, label 3$'
said '^0.5 -2 0.5 -2 '
bytes 320 0 0 200 77 >targets.f32
expect_exit 0 "$LOCKSTEP" data import targets.raw --train-x x.f32 --train-y targets.f32 --targets 2 --shape 28x28 \
  --dtype float32
expect_exit 0 "$LOCKSTEP" data show raw:targets.raw
said '^train sample 0 of 40: 1x28x28, targets 1 1$'
expect_error 2 "at least 1 test sample, found 0" "$LOCKSTEP" data check raw:targets.raw
expect_error 2 "targets a sample, --loss cross-entropy needs labels" "$LOCKSTEP" train --data raw:targets.raw
expect_error 2 "with 2 float targets each, model seed-cnn .* gives 10 outputs" "$LOCKSTEP" train --data raw:targets.raw \
  --loss mse

# Float targets reach every implementation's loss, and the oracle's.
expect_exit 0 "$LOCKSTEP" data import whole.raw --train-x x.f32 --train-y targets.f32 --test-x x.f32 --test-y targets.f32 \
  --targets 2 --shape 28x28 --dtype float32
expect_exit 0 "$LOCKSTEP" verify --impl single,dp,ddp,mpi --devices 1,2 --data raw:whole.raw --model 'flatten; linear 2' --loss mse \
  --batch 5 --bucket-bytes 25MiB --lr 0.0001
said ' 0 failed, 0 skipped, 0 mistrusted'
expect_exit 0 "$LOCKSTEP" train --impl ddp --devices 2 --data raw:whole.raw --model 'flatten; linear 2' --loss mse --batch 5 \
  --lr 0.0001 --epochs 1 --save targets.safetensors
said '^Test set: average loss [0-9.]*$'
trained=$(grep '^Test set' "$work/out")
# ... and of parameters that were saved: what is said of them is the same line.
expect_exit 0 "$LOCKSTEP" eval --impl ddp --devices 3 --data raw:whole.raw --model 'flatten; linear 2' --loss mse \
  --load targets.safetensors --json eval.json
[ "$(grep '^Test set' "$work/out")" = "$trained" ] || fail "eval says $(cat "$work/out"), training said $trained"
grep -q '"test_accuracy":null,"correct":null,"samples":40' eval.json || fail "accuracy of float targets: $(cat eval.json)"

# What import refuses, and that it leaves nothing.
refused() { expect_error 2 "$1" "$LOCKSTEP" data import bad.raw "${@:2}"; }
refused "expected --from SPEC, or" --train-x x.f32
refused "found both" --from idx:idx --train-x x.f32
refused "'28x' is not CxHxW" --train-x x.f32 --train-y y.u8 --shape 28x
refused "'1x2x3x4' is not CxHxW" --train-x x.f32 --train-y y.u8 --shape 1x2x3x4
refused "'0x28' is not CxHxW" --train-x x.f32 --train-y y.u8 --shape 0x28
refused "at most 2147483648 numbers" --train-x x.f32 --train-y y.u8 --shape 65536x65536x2
refused "'float16' is not uint8" --train-x x.f32 --train-y y.u8 --shape 28x28 --dtype float16
refused "x.f32: expected a multiple of 3000 bytes" --train-x x.f32 --train-y y.u8 --shape 3000
refused "y.u8: expected 160 bytes, 4 for each of the 40 samples in x.f32, found 40" --train-x x.f32 --train-y y.u8 \
  --shape 28x28 --dtype float32 --label-dtype int32
refused "y.u8: byte 9 .sample 9.: expected a label of 0 to 8, found 9" --train-x x.f32 --train-y y.u8 --shape 28x28 \
  --dtype float32 --classes 9
refused "missing.bin: cannot be opened" --train-x missing.bin --train-y y.u8 --shape 28x28
expect_error 2 "/nonexistent/bad.raw: expected a folder that can be written" "$LOCKSTEP" data import /nonexistent/bad.raw --from idx:idx
expect_error 2 "needs the file to make" "$LOCKSTEP" data import --from idx:idx
expect_error 2 "expected import, check or show, found 'chekc'" "$LOCKSTEP" data chekc
expect_error 2 "expected 0 to 3, found 4" "$LOCKSTEP" data show idx:idx --index 4
expect_error 2 "'validation' is not train or test" "$LOCKSTEP" data show idx:idx --split validation
expect_error 2 "synthetic.*or exact.*, found 'imagenet'" "$LOCKSTEP" data check imagenet
[ -z "$(find . -name 'bad.raw*')" ] || fail "something half-written is left"

# A container damaged in its middle.
cp floats.raw damaged.raw
printf 'x' | dd of=damaged.raw bs=1 seek=70000 conv=notrunc status=none
expect_error 2 "damaged.raw: byte .*expected" "$LOCKSTEP" data check raw:damaged.raw
expect_error 2 "damaged.raw: byte .*expected" "$LOCKSTEP" train --data raw:damaged.raw --impl single --devices 1 --batch 8

# Training and verification on floats; shards that do not divide, with and without drop-last, in order; loaders change no bit.
expect_exit 0 "$LOCKSTEP" verify --impl dp,ddp --devices 2 --model seed-cnn --dtype float64 --bucket-bytes 16KiB --batch 4 \
  --data raw:floats.raw --normalize -0.75,1.25
said '^[0-9]+ passed, 0 failed, 0 skipped'
for options in "" "--drop-last" "--no-shuffle" "--drop-last --no-shuffle"; do
  # shellcheck disable=SC2086 # several options
  expect_exit 0 "$LOCKSTEP" verify --impl ddp --ranks threads --devices 3 --model seed-conv --dtype float32 \
    --bucket-bytes 16KiB --batch 5 --steps 4 --data raw:floats.raw $options
  said '^[0-9]+ passed, 0 failed, 0 skipped'
done
# A rate of 0 leaves the network as it was, so any number of ranks must find the same: each of the 40 test samples counts once.
for devices in 1 2 3; do
  expect_exit 0 "$LOCKSTEP" train --impl ddp --ranks threads --devices "$devices" --steps 1 --lr 0 --batch 5 \
    --data raw:floats.raw --model seed-conv --dtype float64
  said '^Test set: average loss [0-9.]+, accuracy: [0-9]+/40 '
  grep '^Test set' out >"tested-$devices"
  cmp tested-1 "tested-$devices" || fail "the test accuracy depends on the number of ranks"
done
for threads in 0 1 3; do
  expect_exit 0 "$LOCKSTEP" train --impl ddp --devices 2 --data synthetic:300 --model seed-conv --epochs 2 --batch 16 \
    --loader-threads "$threads" --json run.jsonl
  said '^Waited [0-9.]+ s for input'
done
jq -s -e 'length == 3 and all(.rank_results | length == 2 and all(.input_seconds >= 0))' run.jsonl >/dev/null ||
  fail "a rank does not say how long it waited for its input"
hashes=$(jq -r .param_hash run.jsonl | sort -u | wc -l)
[ "$hashes" -eq 1 ] || fail "loader threads change the result"
