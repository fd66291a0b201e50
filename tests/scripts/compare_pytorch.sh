#!/usr/bin/env bash
# What scripts/compare_pytorch.py does without PyTorch: it says so in one line, and its orders and intervals are right.
# The comparison itself takes minutes and is a command of its own; its golden values are checked by e2e/goldens.sh.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"
scripts=$LOCKSTEP_SOURCE/scripts
command -v python3 >/dev/null || {
  echo "SKIPPED(no python3)"
  exit 0
}
bare=(env -u PYTHONPATH PYTHONDONTWRITEBYTECODE=1 python3 -S) # without the folder of packages

expect_error 3 "has no torch.*apt-get install -y python3-torch" "${bare[@]}" "$scripts/compare_pytorch.py"
expect_exit 2 "${bare[@]}" "$scripts/compare_pytorch.py" --rounds 5
grep -q "expected 6 or more, found 5" "$work/err" || fail "--rounds 5: $(cat "$work/err")"
expect_exit 2 "${bare[@]}" "$scripts/compare_pytorch.py" --speed --goldens "$work"

# Ranks of the order statistics for a median at 95 %, from the binomial table: all of 6, 2nd of 9, 6th of 20, 10th of 30.
cat >"$work/rounds.py" <<'PYTHON'
import random, sys
sys.path.insert(0, sys.argv[1])
from pytorch.rounds import latin_orders, sign_test_interval

for n, rank in ((6, 1), (7, 1), (8, 1), (9, 2), (12, 3), (20, 6), (30, 10)):
    values = random.Random(n).sample(range(1, n + 1), n)
    assert sign_test_interval(values) == (rank, n + 1 - rank), (n, sign_test_interval(values))
for seed in range(20):
    orders = list(latin_orders(3, 6, random.Random(seed)))
    for square in (orders[:3], orders[3:]):  # each contender once in each round and once in each place
        assert all(sorted(line) == [0, 1, 2] for line in square) and all(len(set(place)) == 3 for place in zip(*square))
assert len({str(list(latin_orders(3, 3, random.Random(seed)))) for seed in range(20)}) > 5
PYTHON
expect_exit 0 "${bare[@]}" "$work/rounds.py" "$scripts"
