"""Rounds of a measurement: in which order, and what their median is known to. No package but Python's own."""
import math
import random
from typing import Iterator, List, Sequence, Tuple

LEAST_ROUNDS, ROUNDS = 6, 9  # six are the fewest whose extremes enclose a median at 95 %


def sign_test_interval(values: Sequence[float], confidence: float = 0.95) -> Tuple[float, float]:
    """Order statistics that enclose the median with at least this confidence; the extremes when there are too few."""
    ordered, n = sorted(values), len(values)
    rank, outside = 0, 0.0  # outside: probability of a median below ordered[rank] or above its mirror image
    for k in range(n // 2):
        outside += 2 * math.comb(n, k) / 2**n
        if outside > 1 - confidence:
            break
        rank = k
    return ordered[rank], ordered[n - 1 - rank]


def latin_orders(count: int, rounds: int, draw: random.Random) -> Iterator[List[int]]:
    """An order of the contenders for each round: lines of a random cyclic Latin square, shuffled anew when used up."""
    lines: List[List[int]] = []
    for _ in range(rounds):
        if not lines:
            first = draw.sample(range(count), count)
            lines = [first[shift:] + first[:shift] for shift in range(count)]
            draw.shuffle(lines)
        yield lines.pop()
