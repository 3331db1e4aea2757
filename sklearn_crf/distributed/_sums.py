"""Sums over shards in a fixed order, which does not depend on where the shards are."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np


def sum_in_tree_order(parts: Sequence) -> Any:
    r"""Sum the results of shards in a fixed order, which does not depend on the number of workers.

    .. math::
        S(a_0, a_1, \dots) = S(a_0, a_2, a_4, \dots) + S(a_1, a_3, a_5, \dots), \qquad S(a) = a

    If shards are assigned in turn to two workers, or to four, eight and so on, the shards of a worker form a subtree.
    The worker then returns a single sum. The result is bit-identical for any number of workers.
    """
    return sum_leaves((parts[k] for k in compute_tree_order(range(len(parts)))), len(parts))


def compute_tree_order(numbers: Sequence[int]) -> list[int]:
    """Return the numbers in the order of the tree's leaves: recursively, even positions come before odd positions."""
    if len(numbers) < 2:
        return list(numbers)
    return compute_tree_order(numbers[::2]) + compute_tree_order(numbers[1::2])


def split_into_even_blocks(low: int, high: int, n_blocks: int) -> list[tuple[int, int]]:
    """Split leaves into blocks of similar size, which are subtrees if ``n_blocks`` is a power of two."""
    if n_blocks > 1 and n_blocks % 2 == 0:
        middle = (low + high + 1) // 2
        return split_into_even_blocks(low, middle, n_blocks // 2) + split_into_even_blocks(middle, high, n_blocks // 2)
    return list(pairwise(low + -(-k * (high - low) // n_blocks) for k in range(n_blocks + 1)))


def find_whole_subtrees(start: int, stop: int, low: int, high: int) -> list[tuple[int, int]]:
    """Return the largest subtrees of the tree over ``low`` to ``high`` with all leaves within ``start`` to ``stop``."""
    if start <= low and high <= stop:
        return [(low, high)]
    if high <= start or stop <= low:
        return []
    middle = (low + high + 1) // 2
    return find_whole_subtrees(start, stop, low, middle) + find_whole_subtrees(start, stop, middle, high)


def sum_leaves(parts: Iterable, n_leaves: int, summed: Collection[tuple[int, int]] = ()) -> Any:
    """Sum the leaves of the tree; ``parts`` contains leaves, or the sums of the subtrees listed in ``summed``."""
    # Two parts are added as soon as both are available. If parts are computed lazily, few are then in memory.
    return _sum(iter(parts), 0, n_leaves, summed)


def _sum(parts: Iterator, low, high, summed):
    if high - low == 1 or (low, high) in summed:
        return next(parts)
    middle = (low + high + 1) // 2
    first = _sum(parts, low, middle, summed)
    return _add(first, _sum(parts, middle, high, summed))


def _add(first, second):
    if first is None or second is None:
        return None
    if isinstance(first, bool | np.bool_):
        return bool(first and second)
    if isinstance(first, tuple | list):
        items = [_add(*pair) for pair in zip(first, second, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    if is_dataclass(first) and not isinstance(first, type):
        added = {field.name: _add(getattr(first, field.name), getattr(second, field.name)) for field in fields(first)}
        return replace(first, **added)
    return first + second
