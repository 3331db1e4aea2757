"""Sums over shards in one order, wherever the shards are."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np


def tree_sum(parts: Sequence) -> Any:
    r"""Sum of the results of shards, in an order that suits any number of workers.

    .. math::
        S(a_0, a_1, \dots) = S(a_0, a_2, a_4, \dots) + S(a_1, a_3, a_5, \dots), \qquad S(a) = a

    Where shards are dealt to two workers in turn, or to four, eight and so on, those of each worker are a subtree, so
    that it sends back one sum. The result is the same bits for any number of them.
    """
    return sum_of_leaves((parts[k] for k in tree_order(range(len(parts)))), len(parts))


def tree_order(numbers: Sequence[int]) -> list[int]:
    """Numbers of shards in the order of the leaves of the tree: the even ones before the odd ones, and so on."""
    if len(numbers) < 2:
        return list(numbers)
    return tree_order(numbers[::2]) + tree_order(numbers[1::2])


def even_blocks(low: int, high: int, n_blocks: int) -> list[tuple[int, int]]:
    """Blocks of the leaves low to high, of nearly one size, which are subtrees if their number is a power of two."""
    if n_blocks > 1 and n_blocks % 2 == 0:
        middle = (low + high + 1) // 2
        return even_blocks(low, middle, n_blocks // 2) + even_blocks(middle, high, n_blocks // 2)
    return list(pairwise(low + -(-k * (high - low) // n_blocks) for k in range(n_blocks + 1)))


def whole_subtrees(start: int, stop: int, low: int, high: int) -> list[tuple[int, int]]:
    """Largest subtrees below the one of the leaves low to high that have no leaves but start to stop."""
    if start <= low and high <= stop:
        return [(low, high)]
    if high <= start or stop <= low:
        return []
    middle = (low + high + 1) // 2
    return whole_subtrees(start, stop, low, middle) + whole_subtrees(start, stop, middle, high)


def sum_of_leaves(parts: Iterable, n_leaves: int, summed: Collection[tuple[int, int]] = ()) -> Any:
    """Sum of the leaves of the tree; some subtrees come as their sums."""
    # Sums are formed as soon as their parts have come, so that few are in memory where parts are worked out one by one.
    return _sum(iter(parts), 0, n_leaves, summed)


def _sum(parts: Iterator, low, high, summed):
    if high - low == 1 or (low, high) in summed:
        return next(parts)
    middle = (low + high + 1) // 2
    first = _sum(parts, low, middle, summed)
    return _added(first, _sum(parts, middle, high, summed))


def _added(first, second):
    if first is None or second is None:
        return None
    if isinstance(first, bool | np.bool_):
        return bool(first and second)
    if isinstance(first, tuple | list):
        items = [_added(*pair) for pair in zip(first, second, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    if is_dataclass(first) and not isinstance(first, type):
        added = {field.name: _added(getattr(first, field.name), getattr(second, field.name)) for field in fields(first)}
        return replace(first, **added)
    return first + second
