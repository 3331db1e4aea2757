"""Sums over shards: the same bits for any number of workers, with the smallest messages possible."""

import pickle
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.base import clone
from small_shards import load, weights

from sklearn_crf import DRFClassifier, M3NClassifier, Shards
from sklearn_crf.distributed import ClusterExecutor, sum_in_tree_order
from sklearn_crf.distributed._clusters import Holder


def added_in_halves(parts):
    return parts[0] if len(parts) == 1 else added_in_halves(parts[::2]) + added_in_halves(parts[1::2])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12, 31])
def test_even_and_odd_shards_are_added_by_themselves(n):
    parts = np.random.default_rng(n).normal(size=n) * 10.0 ** np.arange(n)
    assert sum_in_tree_order(parts) == added_in_halves(parts)


class Pair(NamedTuple):
    value: float
    converged: bool


@dataclass
class Moments:
    total: np.ndarray
    rest: list


def test_items_are_added_one_by_one():
    found = sum_in_tree_order([(Pair(1.0, True), None), (Pair(2.0, np.True_), 1), (Pair(3.0, True), 2)])
    assert found == (Pair(6.0, True), None)
    assert sum_in_tree_order([True, False, True]) is False
    assert sum_in_tree_order([None, 1.0]) is None
    found = sum_in_tree_order([Moments(np.arange(3), [1]), Moments(np.ones(3), [2])])
    assert found.total.tolist() == [1.0, 2.0, 3.0]
    assert found.rest == [3]
    with pytest.raises(ValueError, match="zip"):
        sum_in_tree_order([(1, 2), (1, 2, 3)])


class InProcess(ClusterExecutor):
    """Actors that are objects of this process, and receive the serialised messages."""

    name = "small"

    def __init__(self, shards, n_actors):
        self.n_sent = 0
        super().__init__(shards, n_actors)

    def _dumps(self, data):
        buffers = []
        return [pickle.dumps(data, protocol=5, buffer_callback=buffers.append), *buffers]

    def _replace(self, k):
        self._actors[k] = Holder(*self._held(k), 1)

    def _start(self, k, request):
        method, *arguments = request
        return getattr(self._actors[k], method)(*arguments)

    def _result(self, k, call):
        self.n_sent += len(call) if isinstance(call, list) else 1
        return (pickle.loads(pickle.dumps(call)),)

    def _is_of_actor(self, error):
        return False

    _is_of_cluster = _is_of_actor


def drawn(shard, size):
    if shard.number == size:
        raise OSError("no such file")
    return 10.0 ** np.random.default_rng(shard.number).uniform(-8, 8, size)


def number_of(shard, broadcast):
    return shard.number


@pytest.mark.parametrize("n_shards", [8, 12, 13])
@pytest.mark.parametrize("n_actors", range(1, 9))
def test_any_number_of_workers_gives_the_same_bits(n_shards, n_actors):
    executors = []

    def make(shards):
        executors.append(InProcess(shards, n_actors))
        return executors[0]

    shards = Shards(range(n_shards), load, make)
    np.testing.assert_array_equal(shards.sum(drawn, 50), Shards(range(n_shards), load).sum(drawn, 50))
    np.testing.assert_array_equal(shards.sum(drawn, 50), sum_in_tree_order(shards.map(drawn, 50)))
    held = [len(numbers) for numbers in executors[0]._numbers]
    assert max(held) - min(held) <= 1
    assert shards.map(number_of) == list(executors[0].iterate(number_of, None)) == list(range(n_shards))
    executors[0].n_sent = 0
    shards.sum(drawn, 50)
    if n_actors in (1, 2, 4, 8):
        assert executors[0].n_sent == n_actors
    assert executors[0].n_sent <= n_actors * max(1, 2 * np.ceil(np.log2(max(held))))
    with pytest.raises(OSError, match="no such file"):
        shards.sum(drawn, 5)


@pytest.mark.parametrize("field", [DRFClassifier(max_iter=5), M3NClassifier(max_iter=5)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_do_not_depend_on_who_adds(field):
    here = clone(field).fit(Shards(range(5), load))
    for n_actors in (2, 3):
        there = clone(field).fit(Shards(range(5), load, lambda shards, n=n_actors: InProcess(shards, n)))
        np.testing.assert_array_equal(weights(there), weights(here))
