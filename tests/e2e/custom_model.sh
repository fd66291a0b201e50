#!/usr/bin/env bash
# A network of one's own: as text and from a file, in every implementation, verified, and refused where it cannot be.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cat >"$work/net.txt" <<'EOF'
# the network of this test
input 1x28x28
conv1: conv 6 k5 nobias
norm1: batchnorm      # each rank normalises its own shard
relu; maxpool 2
flatten
dropout 0.25
fc: linear 10
EOF
spec='input 1x28x28; conv1: conv 6 k5 nobias; norm1: batchnorm; relu; maxpool 2; flatten; dropout 0.25; fc: linear 10'

# train FILE OPTION...: two epochs; the result as JSON.
train() {
  local file=$1
  shift
  expect_exit 0 "$LOCKSTEP" train --data synthetic:600 --batch 20 --epochs 2 --json "$work/$file" "$@"
}

# hash FILE
hash() {
  jq -r '.param_hash' "$work/$1" | head -n 1
}

# From a file, or the same text in one line: the same network, the same bits; the row carries the text.
train file.json --impl ddp --devices 2 --model "$work/net.txt"
grep -q 'accuracy: ' "$work/out" || fail "no accuracy"
jq -e --arg spec "$spec" '.model == $spec and (.command | contains("'"'"'" + $spec + "'"'"'"))' "$work/file.json" >/dev/null ||
  fail "the row does not carry the network's text"
train text.json --impl ddp --devices 2 --model "$spec"
[ "$(hash file.json)" = "$(hash text.json)" ] || fail "file and text differ"

# Two devices: ddp's processes and threads, and mpi, give the same bits; a sum of two terms has no order.
train threads.json --impl ddp --ranks threads --devices 2 --model "$spec"
train mpi.json --impl mpi --devices 2 --model "$spec"
[ "$(hash threads.json)" = "$(hash file.json)" ] || fail "ddp with threads has other bits than with processes"
[ "$(hash mpi.json)" = "$(hash file.json)" ] || fail "mpi has other bits than ddp"
train seed.json --impl ddp --devices 2 --model "$spec" --seed 1
[ "$(hash seed.json)" != "$(hash file.json)" ] || fail "the seed changes nothing"

# The row's command runs the same network again.
words=()
eval "words=($(jq -r .command "$work/file.json" | head -n 1))"
expect_exit 0 "$LOCKSTEP" "${words[@]:1}" --json "$work/again.json"
[ "$(hash again.json)" = "$(hash file.json)" ] || fail "the row's command gives other bits"

# Verified: without batchnorm, with it, with dropout.
for model in 'conv 6 k3 p1; relu; avgpool 2; conv 8 k3 s2 nobias; relu; maxpool 2; flatten; linear 10' \
  'conv 6 k3 p1; batchnorm; relu; avgpool 2; flatten; linear 12; batchnorm; relu; linear 10' \
  'conv 4 k5; relu; dropout 0.3; maxpool 2; flatten; linear 10'; do
  expect_exit 0 "$LOCKSTEP" verify --impl single,dp,ddp,mpi --devices 1,3 --model "$model" --batch 6 --data synthetic:600 \
    --bucket-bytes 4KiB --json "$work/rows.jsonl"
  grep -qE '^20 passed, 0 failed, 0 skipped, 0 mistrusted' "$work/out" || fail "$(tail -n 2 "$work/out")"
done
jq -s -e '[.[] | select(.model | contains("batchnorm")) | .verification.layers[] | select(.name == "buffers of batchnorm")]
  | length == 20 and all(.status == "PASSED" and .observed <= .bound)' "$work/rows.jsonl" >/dev/null ||
  fail "the buffers were not compared"
jq -s -e '[.[] | select(.model | contains("dropout")) | .verification.layers[] | select(.name == "masks of dropout")]
  | length == 20 and all(.status == "PASSED")' "$work/rows.jsonl" >/dev/null || fail "the masks were not judged"

# Refused, with the place.
expect_error 2 'line 1, column 13: expected .*found .conf.' "$LOCKSTEP" train --model 'conv 10 k5; conf 3'
expect_error 2 'line 1, column 19: layer 2 \(avgpool 2\): .*found 40 .*input 10x24x24' "$LOCKSTEP" train --impl single \
  --devices 1 --data synthetic:600 --model 'conv 10 k5; relu; avgpool 40; flatten; linear 10'
printf 'conv 10 k5\nrelu\n  linear 10\n' >"$work/bad.txt"
expect_error 2 'bad.txt: line 3, column 3: layer 2 \(linear 2\): .*24.*input 10x24x24' "$LOCKSTEP" verify --devices 1 \
  --data synthetic:600 --model "$work/bad.txt"
expect_error 2 'one value for each of 10 classes, found 9' "$LOCKSTEP" train --data synthetic:600 --model 'flatten; linear 9'
expect_error 2 'no-such-file' "$LOCKSTEP" train --model "$work/no-such-file"
expect_error 2 'samples of 1x28x28 in 10 classes, model custom takes 3x32x32' "$LOCKSTEP" train --impl single --devices 1 --data synthetic:600 \
  --model 'input 3x32x32; flatten; linear 10'
