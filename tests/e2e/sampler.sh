#!/usr/bin/env bash
# lockstep sampler prints DistributedSampler's lists: PyTorch's own values, and PyTorch itself where it is installed.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# prints LINE... -- ARGUMENTS: the command prints exactly these lines.
prints() {
  local lines=()
  while [ "$1" != -- ]; do
    lines+=("$1")
    shift
  done
  shift
  expect_exit 0 "$LOCKSTEP" sampler "$@"
  printf '%s\n' "${lines[@]}" | cmp - "$work/out" || fail "sampler $*: $(cat "$work/out")"
}

# From PyTorch 1.13, seed 0.
prints 'rank 0: 0 3 6 9' 'rank 1: 1 4 7 0' 'rank 2: 2 5 8 1' -- --n 10 --world 3 --no-shuffle
prints 'rank 0: 0 3 6' 'rank 1: 1 4 7' 'rank 2: 2 5 8' -- --n 10 --world 3 --no-shuffle --drop-last
prints 'rank 0: 4 5 0 2' 'rank 1: 1 3 8 4' 'rank 2: 7 9 6 1' -- --n 10 --world 3 --epoch 0
prints 'rank 0: 5 2 9 4' 'rank 1: 6 0 3 5' 'rank 2: 1 8 7 6' -- --n 10 --world 3 --epoch 1
prints 'rank 0: 5 2 9 4' 'rank 1: 6 0 3 5' 'rank 2: 1 8 7 6' -- --n 10 --world 3 --seed 1
prints 'rank 0: 0 4 8' 'rank 1: 1 5 9' 'rank 2: 2 6 10' 'rank 3: 3 7 0' -- --n 11 --world 4 --no-shuffle
prints 'rank 0: 0' 'rank 1: 1' 'rank 2: 2' 'rank 3: 0' 'rank 4: 1' 'rank 5: 2' 'rank 6: 0' 'rank 7: 1' \
  -- --n 3 --world 8 --no-shuffle
prints 'rank 0:' 'rank 1:' 'rank 2:' 'rank 3:' 'rank 4:' 'rank 5:' 'rank 6:' 'rank 7:' \
  -- --n 3 --world 8 --no-shuffle --drop-last
prints 'rank 0:' 'rank 1:' 'rank 2:' 'rank 3:' -- --n 0 --world 4
prints 'rank 0: 0' 'rank 1: 0' 'rank 2: 0' 'rank 3: 0' -- --n 1 --world 4 --no-shuffle
prints 'rank 0: 36044 10678 57327 55074 21567 15479 9481 43095 26145 7479' -- --n 60000 --world 1 --head 10
prints 'rank 2: 7 9' -- --n 10 --world 3 --rank 2 --head 2

# The hash of what sampler_pytorch.py prints with PyTorch 1.13.
expect_exit 0 "$LOCKSTEP" sampler --n 60000 --world 7 --epoch 3
[ "$(sha256sum <"$work/out")" = "2e68cf59811169880914cd23e61f88dbb487d9458a86a4853828132d38f99cf2  -" ] || fail "another order than PyTorch's"

# PyTorch itself, for other sizes and rules.
cat >"$work/list" <<LIST
60000 7 3 0 1 0
10000 3 0 7 1 0
1000 7 2 41 1 1
17 5 1 0 0 0
2 9 4 3 1 0
5 8 0 0 1 1
LIST
python=/usr/bin/python3
if [ -x "$python" ] && "$python" -c 'import torch' 2>"$work/torch"; then
  awk -v folder="$work" '{print folder "/expected" NR, $0}' "$work/list" |
    "$python" "$LOCKSTEP_SOURCE/tests/e2e/sampler_pytorch.py"
  number=0
  while read -r n world epoch seed shuffle drop; do
    options=(--n "$n" --world "$world" --epoch "$epoch" --seed "$seed")
    [ "$shuffle" = 1 ] || options+=(--no-shuffle)
    [ "$drop" = 0 ] || options+=(--drop-last)
    number=$((number + 1))
    expect_exit 0 "$LOCKSTEP" sampler "${options[@]}"
    cmp "$work/expected$number" "$work/out" || fail "not PyTorch's order: ${options[*]}"
  done <"$work/list"
  [ "$number" -eq 6 ] || fail "$number comparisons instead of 6"
else
  echo "no PyTorch here: compared with its stored values only"
fi

expect_error 2 "needs the samples and the ranks" "$LOCKSTEP" sampler --n 10
expect_error 2 "'0' is not a whole number from 1" "$LOCKSTEP" sampler --n 10 --world 0
expect_error 2 "expected 0 to 2 with --world 3, found 3" "$LOCKSTEP" sampler --n 10 --world 3 --rank 3
expect_error 2 "unknown option '--word'" "$LOCKSTEP" sampler --n 10 --word 3
expect_error 2 "'--epoch' needs a value" "$LOCKSTEP" sampler --n 10 --world 3 --epoch
expect_error 2 "unexpected word '7'" "$LOCKSTEP" sampler --n 10 --world 3 7
