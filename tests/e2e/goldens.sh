#!/usr/bin/env bash
# Training in float64 gives PyTorch's values: those that scripts/compare_pytorch.py --goldens wrote to tests/golden/pytorch.
# The files have 200 losses; the first 30 are enough to see momentum, every layer and a new batch in each step.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
goldens=$LOCKSTEP_SOURCE/tests/golden/pytorch
fashion=/usr/share/datasets/fashion-mnist
steps=30

# Fashion-MNIST with a test set of one black image: training is what counts.
mkdir "$work/data"
for name in train-images-idx3-ubyte train-labels-idx1-ubyte; do
  gzip -dc "$fashion/$name.gz" >"$work/data/$name"
done
{
  printf '\0\0\10\3\0\0\0\1\0\0\0\34\0\0\0\34'
  head -c 784 /dev/zero
} >"$work/data/t10k-images-idx3-ubyte"
printf '\0\0\10\1\0\0\0\1\0' >"$work/data/t10k-labels-idx1-ubyte"

# check_order GOLDEN: the start of each rank's order, epoch by epoch.
check_order() {
  local samples world seed head epoch
  read -r samples world seed head < <(jq -r '"\(.samples) \(.world) \(.seed) \(.order_head)"' "$1")
  for epoch in $(jq -r '.order | keys[]' "$1"); do
    jq -r --arg epoch "$epoch" '.order[$epoch][]' "$1" >"$work/order"
    expect_exit 0 "$LOCKSTEP" sampler --n "$samples" --world "$world" --seed "$seed" --epoch "$epoch" --head "$head"
    cmp "$work/order" "$work/out" || fail "$1: another order in epoch $epoch"
  done
}

# check_losses GOLDEN RUN: within 1e-10. Sums in another order differ by 1e-15 here, and 200 steps do not amplify that.
check_losses() {
  jq -r --slurpfile run "$2" --argjson steps "$steps" '.losses[:$steps] as $golden |
    [$run[0].log[].loss] as $ours | if ($ours | length) != $steps then "\($ours | length) losses" else
    (range($steps) | select(($golden[.] - $ours[.]) | fabs <= 1e-10 | not) | "step \(.): \($ours[.]), PyTorch \($golden[.])")
    end' "$1" >"$work/differ"
  [ ! -s "$work/differ" ] || fail "$1: $(head -n 1 "$work/differ")"
}

# check_gradients GOLDEN FILE.safetensors: norms and some elements of every tensor. A gradient is within a few 1e-15 of its
# norm; a norm that awk sums over n elements is off by n / 2 roundings of 1.1e-16 at most, 0.9e-12 for the largest tensor.
check_gradients() {
  local length name begin end norm elements
  length=$(od -A n -t u8 -N 8 "$2" | tr -d ' ')
  head -c $((8 + length)) "$2" | tail -c +9 >"$work/header" # in this order: nobody is left writing
  [ "$(jq -c '.gradients | keys' "$1")" = "$(jq -c 'del(.__metadata__) | keys' "$work/header")" ] || fail "$2: other tensors"
  jq -r --slurpfile header "$work/header" '.gradients | to_entries[] | .key as $name | $header[0][$name] as $tensor |
    "\($name) \($tensor.data_offsets[0]) \($tensor.data_offsets[1]) \(.value.norm) \([.value.elements | to_entries[] |
    "\(.key):\(.value)"] | join(" "))"' "$1" >"$work/tensors"
  while read -r name begin end norm elements; do
    od -A n -v -t f8 -w8 -j $((8 + length + begin)) -N $((end - begin)) "$2" | awk -v norm="$norm" -v elements="$elements" '
      function off(a, b) { return !(a - b <= 1e-12 * norm && b - a <= 1e-12 * norm) }
      { value[NR - 1] = $1 + 0; sum += $1 * $1 }
      END {
        if (off(sqrt(sum), norm)) { print "norm " sqrt(sum) ", PyTorch " norm }
        count = split(elements, list, " ")
        if (count == 0) { print "no elements" }
        for (i = 1; i <= count; i++) {
          split(list[i], pair, ":")
          if (off(value[pair[1]], pair[2] + 0)) { print "element " pair[1] ": " value[pair[1]] ", PyTorch " pair[2] }
        }
      }' >"$work/differ"
    [ ! -s "$work/differ" ] || fail "$1: gradient of $name: $(head -n 1 "$work/differ")"
  done <"$work/tensors"
}

checked=0
for golden in "$goldens"/*.json; do
  read -r network world batch lr momentum seed < <(
    jq -r '"\(.network) \(.world) \(.batch) \(.lr) \(.momentum) \(.seed)"' "$golden")
  impl=$([ "$world" -eq 1 ] && echo single || echo ddp)
  options=(--impl "$impl" --devices "$world" --model "$network" --data "mnist:$work/data" --dtype float64 --batch "$batch"
    --lr "$lr" --momentum "$momentum" --seed "$seed" --no-baseline)
  run=$work/$(basename "$golden")
  check_order "$golden"
  expect_exit 0 "$LOCKSTEP" train "${options[@]}" --steps "$steps" --log-every 1 --json "$run"
  check_losses "$golden" "$run"
  expect_exit 0 "$LOCKSTEP" train "${options[@]}" --steps 1 --log-every 0 --save-grads "$run.safetensors"
  check_gradients "$golden" "$run.safetensors"
  checked=$((checked + 1))
done
[ "$checked" -eq 4 ] || fail "$checked golden files instead of 4"
