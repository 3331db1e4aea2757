"""Objects that shards make and keep, and steps that change them."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

from sklearn_crf.distributed._executors import Shard
from sklearn_crf.distributed._shards import Shards


class KeptObjects:
    """An object for each shard, which is made and stays where the shard is, and is changed step by step.

    What an object carries from step to step is a function of the steps: where a worker is lost, another one makes the
    object again and repeats them, so that the results are the same. Engines may call a function twice on a shard.

    Parameters
    ----------
    shards : Shards
    make : callable(Shard) -> object
        One of a module, or of such with arguments given, which workers can import. The object has an attribute
        ``carried``, which may be set to that of another one that has made the same steps.
    stays : bool, default=False
        Whether the whole object stays in memory, also where shards are loaded for each call.

    Examples
    --------
    >>> from sklearn_crf import Shards
    >>> from sklearn_crf.distributed import KeptObjects
    >>> class Total:
    ...     def __init__(self, shard):
    ...         self.carried = sum(shard.load()[1])
    ...
    ...     def add(self, number):
    ...         self.carried += number
    ...         return self.carried
    >>> totals = KeptObjects(Shards.from_arrays([([[1.0]], [1]), ([[1.0]], [2])]), Total)
    >>> totals.step(Total.add, 10), totals.step(Total.add, 10)
    ([11, 12], [21, 22])
    """

    def __init__(self, shards: Shards, make: Callable[[Shard], Any], stays: bool = False):
        self._shards = shards
        self._plan = _Plan(uuid4().hex, make, stays)
        self._steps: list[_Step] = []
        shards.map(_catch_up, (self._plan, self._steps))

    def step(self, function: Callable, *arguments: Any) -> list:
        """Results of a function that changes what the objects carry.

        Parameters
        ----------
        function : callable(object, *arguments) -> object
            One of a module. It depends on the object and the arguments alone.
        *arguments : object

        Returns
        -------
        list
            In the order of the shards.
        """
        return [result for (result,) in self._changed(self._shards.map, function, arguments)]

    def total(self, function: Callable, *arguments: Any) -> Any:
        """Sum of the results of a function that changes what the objects carry.

        Parameters
        ----------
        function : callable(object, *arguments) -> object
            As of :meth:`step`. Its results are numbers, arrays, or tuples, lists or data classes of these.
        *arguments : object

        Returns
        -------
        object
            The :func:`~sklearn_crf.distributed.tree_sum` of the shards.
        """
        (found,) = self._changed(self._shards.sum, function, arguments)
        return found

    def drop(self) -> None:
        """Release the objects."""
        self._shards.map(_drop, self._plan.key)

    def _changed(self, engine, function, arguments):
        asked = _Step(len(self._steps), function, arguments)
        for _ in range(_MOST_REPAIRS):
            found = engine(_call, (self._plan.key, asked))
            if not (found is None or (isinstance(found, list) and None in found)):
                self._steps.append(asked)
                return found
            # Another worker has loaded the shard since the step before.
            self._shards.map(_catch_up, (self._plan, self._steps))
        raise RuntimeError(f"Workers were lost {_MOST_REPAIRS} times in one pass over the shards.")


_MOST_REPAIRS = 10


class _Plan(NamedTuple):
    key: str
    make: Callable
    stays: bool


class _Step(NamedTuple):
    """A function that changes an object: the number of steps before it, and its further arguments."""

    number: int
    function: Callable
    arguments: tuple


class _Kept:
    """State of an object, which stays with the shard, and the object itself as long as that is in memory."""

    def __init__(self, plan):
        self.plan = plan
        self.n_steps = 0
        self.carried = self.last = self.object = None

    def object_of(self, shard):
        """The object, made again if it was dropped."""
        found = self.object if self.plan.stays else shard.cache.get(self.plan.key)
        if found is None:
            with shard.named_in_errors():
                found = self.plan.make(shard)
            if self.n_steps:
                found.carried = self.carried
            if self.plan.stays:
                self.object = found
            else:
                shard.cache[self.plan.key] = found
        return found

    def call(self, shard, asked):
        """The result of a function of the object."""
        kept = self.object_of(shard)
        with shard.named_in_errors():
            found = asked.function(kept, *asked.arguments)
        self.carried, self.last, self.n_steps = kept.carried, found, asked.number + 1
        return found


def _call(shard, request):
    """The result of a function, in a tuple; None if the shard has not made all steps before."""
    key, asked = request
    kept = shard.memory.get(key)
    if kept is not None and asked.number == kept.n_steps - 1:
        return (kept.last,)
    if kept is None or asked.number != kept.n_steps:
        return None
    return (kept.call(shard, asked),)


def _catch_up(shard, request):
    plan, steps = request
    kept = shard.memory.get(plan.key)
    if kept is None or kept.n_steps not in (len(steps), len(steps) + 1):
        kept = shard.memory[plan.key] = _Kept(plan)
        shard.cache.pop(plan.key, None)
        for asked in steps:
            kept.call(shard, asked)


def _drop(shard, key):
    shard.memory.pop(key, None)
    shard.cache.pop(key, None)
