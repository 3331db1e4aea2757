"""Objects kept with shards: after the loss of a worker, the necessary steps are repeated, and no others."""

import pytest
from small_shards import Watching

from sklearn_crf import Shards
from sklearn_crf.distributed import KeptObjects, LocalExecutor, Shard

PARTS = [([[0.0]], [1]), ([[0.0]], [2]), ([[0.0]], [4])]


class Chain:
    """The numbers that were added so far. The class counts the created objects and the additions."""

    n_made = n_added = 0

    def __init__(self, shard):
        type(self).n_made += 1
        self.start, self.carried = shard.load()[1][0], ()

    def add(self, number):
        type(self).n_added += 1
        self.carried = (*self.carried, number)
        return self.ask()

    def ask(self):
        return self.start + sum(self.carried)

    def clear(self):
        self.carried = ()
        return self.ask()


@pytest.fixture(autouse=True)
def counts():
    Chain.n_made = Chain.n_added = 0


def part(k):
    return PARTS[k]


class Loses(Watching, LocalExecutor):
    """An engine that loses the state of the last shard before some or all calls."""

    n_calls, lost = 0, None

    def before(self, function, broadcast):
        self.n_calls += 1
        if self.lost is None or self.n_calls in self.lost:
            self.shards[-1].cache.clear()
            self.shards[-1].memory.clear()


def losing(*numbers):
    """Return shards whose engine loses the last shard before the calls with these numbers, or before every call."""

    def client(shards):
        engine = Loses(shards)
        engine.lost = numbers or None
        return engine

    return Shards.from_arrays(PARTS, client=client)


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize(
    "shards",
    [Shards.from_arrays(PARTS), Shards(range(3), part), losing(2, 4), losing()],
    ids=["kept", "anew", "lost", "always"],
)
def test_results_are_those_of_all_steps(shards, stays):
    objects = KeptObjects(shards, Chain, stays=stays)
    assert objects.total(Chain.ask, changes=False) == 7
    assert objects.each(Chain.add, 10) == [11, 12, 14]
    assert objects.total(Chain.add, 100) == 337
    assert objects.each(Chain.ask, changes=False) == [111, 112, 114]
    assert objects.n_steps == 2
    objects.drop()


def test_lost_shards_alone_repeat_their_steps():
    objects = KeptObjects(losing(3), Chain)
    for _ in range(2):
        objects.each(Chain.add, 1)
    assert (Chain.n_made, Chain.n_added) == (3, 6)
    assert objects.each(Chain.add, 1) == [4, 5, 7]
    # The lost shard repeats two additions before the third. Other shards return their stored results.
    assert (Chain.n_made, Chain.n_added) == (4, 6 + 2 + 3)


def test_steps_that_nothing_is_carried_of_are_not_repeated():
    objects = KeptObjects(losing(5), Chain)
    objects.each(Chain.add, 1)
    objects.total(Chain.add, 2, is_lasting=False)
    objects.total(Chain.clear, is_lasting=False)
    objects.shorten()
    assert objects.each(Chain.ask, changes=False) == [1, 2, 4]
    before = Chain.n_added
    assert objects.each(Chain.add, 8) == [9, 10, 12]
    # The lost shard repeats the one lasting addition, and all three shards make the new addition.
    assert Chain.n_added == before + 1 + 3


def test_what_is_known_is_sent_again_to_shards_that_lack_it():
    class Sum(Chain):
        def add(self, number=None):
            self.known = self.carried[0] if number is None else number
            return super().add(self.known)

    objects = KeptObjects(losing(3), Sum)
    objects.total(Sum.add, 5)
    objects.total(Sum.add, 5, known=())
    assert objects.total(Sum.add, 5, known=()) == 7 + 3 * 15


def test_objects_of_one_slot_take_turns_in_the_cache():
    shards = Shards.from_arrays(PARTS)
    first, second = (KeptObjects(shards, Chain, slot="chain") for _ in range(2))
    first.each(Chain.add, 1), second.each(Chain.add, 10)
    assert (first.total(Chain.ask, changes=False), second.total(Chain.ask, changes=False)) == (10, 37)
    assert Chain.n_made == 4 * 3
    assert [len(shard.cache) for shard in shards._shards] == [1, 1, 1]
    first.drop()
    assert [len(shard.cache) for shard in shards._shards] == [1, 1, 1]
    second.drop()
    assert not any(shard.cache or shard.memory for shard in shards._shards)


def test_steps_that_were_interrupted_are_not_taken_for_later_ones():
    class Interrupted(Chain):
        def fail(self, number):
            if self.start == 2:
                raise KeyboardInterrupt
            return self.add(number)

    objects = KeptObjects(Shards.from_arrays(PARTS), Interrupted)
    objects.each(Chain.add, 1)
    with pytest.raises(KeyboardInterrupt):
        objects.each(Interrupted.fail, 100)
    assert objects.each(Chain.ask, changes=False) == [2, 3, 5]
    assert objects.each(Chain.add, 10) == [12, 13, 15]


def test_errors_name_their_shard_once():
    shard = Shard(0, "first", None)
    with pytest.raises(ValueError, match=r"^In first: wrong$"), shard.named_in_errors(), shard.named_in_errors():
        raise ValueError("wrong")
