"""Objects that stay with their shards, with numbered steps that are repeated if a worker is lost."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

from sklearn_crf._threads import limit_blas_threads
from sklearn_crf.distributed._executors import Shard
from sklearn_crf.distributed._shards import Shards


class KeptObjects:
    """An object for each shard, which is created and stays where the shard is, and changes step by step.

    The state that an object carries from step to step is a function of the steps. If a worker is lost, another worker
    creates the object again and repeats the steps, so that results do not change. Executors may call a function twice
    on a shard.
    """

    # make: callable(Shard) -> object

    def __init__(self, shards: Shards, make: Callable[[Shard], Any], *, stays: bool = False, slot: str | None = None):
        key = uuid4().hex
        self._shards = shards
        self._plan = _Plan(key, make, stays, key if slot is None else slot)
        self._steps: list[_Step] = []
        self._is_known = False
        self._n_calls = 0
        self.n_steps = 0

    def each(self, function: Callable, *arguments: Any, changes: bool = True) -> list:
        """Return the results of a function called on each object."""
        # function: callable(object, *arguments) -> object
        return [result for (result,) in self._call_each(self._shards.map, function, arguments, changes)]

    def total(
        self,
        function: Callable,
        *arguments: Any,
        changes: bool = True,
        is_lasting: bool = True,
        known: tuple | None = None,
    ) -> Any:
        """Return the sum of the results of a function called on each object."""
        # function: callable(object, *arguments) -> object
        (found,) = self._call_each(self._shards.sum, function, arguments, changes, is_lasting, known)
        return found

    def shorten(self) -> None:
        """Forget all steps except lasting steps and the last step, so that they are not repeated after a worker is
        lost.
        """
        self._steps = [step for step in self._steps[:-1] if step.is_lasting] + self._steps[-1:]

    def drop(self) -> None:
        """Release all objects."""
        self._shards.map(_drop, self._plan)

    def _call_each(self, engine, function, arguments, changes, is_lasting=True, known=None):
        self._n_calls += 1
        step, found = _Step(self._n_calls, self.n_steps, function, arguments, changes, is_lasting), None
        if self._is_known:
            brief = step if known is None else step._replace(arguments=known)
            found = engine(_call, _Request(self._plan.key, brief))
        if found is None or (isinstance(found, list) and None in found):
            # No shard has the objects yet, or a shard has moved to another worker since the last step.
            found = engine(_call, _Request(self._plan.key, step, (self._plan, self._steps)))
            self._is_known = True
        if changes:
            self._steps.append(step)
            self.n_steps += 1
        return found


class _Plan(NamedTuple):
    """How to create the object of a shard, and the keys under which the shard keeps its state and the object."""

    key: str
    make: Callable
    stays: bool
    slot: str


class _Step(NamedTuple):
    """A function to call on an object, with its further arguments."""

    call: int  # number of the call, so that an interrupted step is not mistaken for its successor
    number: int  # number of earlier steps
    function: Callable
    arguments: tuple
    changes: bool
    is_lasting: bool


class _Request(NamedTuple):
    key: str
    step: _Step
    past: tuple | None = None  # plan and steps to repeat, for shards without the object


class _Kept:
    """State of an object, which stays with the shard, and the object itself while it is in memory."""

    def __init__(self, plan):
        self.plan = plan
        self.n_steps = self.last_call = 0
        self.carried = self.last = self.object = None

    def call(self, shard, step):
        """Return the result of a step's function called on the object."""
        with limit_blas_threads(), shard.named_in_errors():
            kept = self._object_of(shard)
            found = step.function(kept, *step.arguments)
        if step.changes:
            self.carried, self.last = kept.carried, found
            self.n_steps, self.last_call = step.number + 1, step.call
        return found

    def _object_of(self, shard):
        """Return the object, created again if it was dropped."""
        key, found = (self.plan.key, self.object) if self.plan.stays else shard.cache.get(self.plan.slot, (None, None))
        if found is None or key != self.plan.key:
            found = self.plan.make(shard)
            if self.n_steps:
                found.carried = self.carried
            if self.plan.stays:
                self.object = found
            else:
                shard.cache[self.plan.slot] = self.plan.key, found
        return found


def _call(shard, request):
    """Return a tuple of the step's result, or None if the shard has not made all earlier steps."""
    kept, step = shard.memory.get(request.key), request.step
    # A step that was the last one made is not made again.
    if kept is None or not (step.number == kept.n_steps or step.call == kept.last_call):
        if request.past is None:
            return None
        kept = _repeat(shard, *request.past)
    return (kept.last if step.call == kept.last_call else kept.call(shard, step),)


def _repeat(shard, plan, steps):
    """Create the object again, repeat all steps, and return its state."""
    kept = shard.memory[plan.key] = _Kept(plan)
    shard.cache.pop(plan.slot, None)
    for step in steps:
        kept.call(shard, step)
    return kept


def _drop(shard, plan):
    shard.memory.pop(plan.key, None)
    if shard.cache.get(plan.slot, (None, None))[0] == plan.key:
        shard.cache.pop(plan.slot)
