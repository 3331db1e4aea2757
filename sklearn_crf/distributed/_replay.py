"""Objects that stay with their shards, and numbered steps that are repeated where a worker is lost."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

from sklearn_crf._threads import single_threaded_blas
from sklearn_crf.distributed._executors import Shard
from sklearn_crf.distributed._shards import Shards


class KeptObjects:
    """An object for each shard, which is made and stays where the shard is, and is changed step by step.

    What an object carries from step to step is a function of the steps. Where a worker is lost, another one makes the
    object again and repeats the steps, so that the results are the same. Engines may call a function twice on a shard.
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
        """Return the results of a function of the objects."""
        # function: callable(object, *arguments) -> object
        return [result for (result,) in self._called(self._shards.map, function, arguments, changes)]

    def total(
        self,
        function: Callable,
        *arguments: Any,
        changes: bool = True,
        is_lasting: bool = True,
        known: tuple | None = None,
    ) -> Any:
        """Return the sum of the results of a function of the objects."""
        # function: callable(object, *arguments) -> object
        (found,) = self._called(self._shards.sum, function, arguments, changes, is_lasting, known)
        return found

    def shorten(self) -> None:
        """Repeat no steps from now on but lasting ones and the last one: objects carry nothing of the others."""
        self._steps = [step for step in self._steps[:-1] if step.is_lasting] + self._steps[-1:]

    def drop(self) -> None:
        """Release the objects."""
        self._shards.map(_drop, self._plan)

    def _called(self, engine, function, arguments, changes, is_lasting=True, known=None):
        self._n_calls += 1
        step, found = _Step(self._n_calls, self.n_steps, function, arguments, changes, is_lasting), None
        if self._is_known:
            brief = step if known is None else step._replace(arguments=known)
            found = engine(_call, _Request(self._plan.key, brief))
        if found is None or (isinstance(found, list) and None in found):
            # No shard has the objects yet, or another worker has loaded a shard since the step before.
            found = engine(_call, _Request(self._plan.key, step, (self._plan, self._steps)))
            self._is_known = True
        if changes:
            self._steps.append(step)
            self.n_steps += 1
        return found


class _Plan(NamedTuple):
    """How shards make an object, and the names under which they keep its state and the object."""

    key: str
    make: Callable
    stays: bool
    slot: str


class _Step(NamedTuple):
    """A function of an object, and its further arguments."""

    call: int  # number of the call; a step that was interrupted is not taken for the one after it
    number: int  # of steps before
    function: Callable
    arguments: tuple
    changes: bool
    is_lasting: bool


class _Request(NamedTuple):
    key: str
    step: _Step
    past: tuple | None = None  # plan and steps to repeat, for shards that lack them


class _Kept:
    """State of an object, which stays with the shard, and the object itself as long as that is in memory."""

    def __init__(self, plan):
        self.plan = plan
        self.n_steps = self.last_call = 0
        self.carried = self.last = self.object = None

    def has_made(self, step):
        """Whether a step was the last one."""
        return step.call == self.last_call

    def call(self, shard, step):
        """Return the result of a function of the object."""
        with single_threaded_blas(), shard.named_in_errors():
            kept = self._object_of(shard)
            found = step.function(kept, *step.arguments)
        if step.changes:
            self.carried, self.last = kept.carried, found
            self.n_steps, self.last_call = step.number + 1, step.call
        return found

    def _object_of(self, shard):
        """Return the object, made again if it was dropped."""
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
    """Return the result of a function of the object in a tuple, or None if the shard has not made all steps before."""
    kept, step = shard.memory.get(request.key), request.step
    if kept is None or not (step.number == kept.n_steps or kept.has_made(step)):
        if request.past is None:
            return None
        kept = _repeated(shard, *request.past)
    return (kept.last if kept.has_made(step) else kept.call(shard, step),)


def _repeated(shard, plan, steps):
    """Return the state of an object that is made again and has made all steps."""
    kept = shard.memory[plan.key] = _Kept(plan)
    shard.cache.pop(plan.slot, None)
    for step in steps:
        kept.call(shard, step)
    return kept


def _drop(shard, plan):
    shard.memory.pop(plan.key, None)
    if shard.cache.get(plan.slot, (None, None))[0] == plan.key:
        shard.cache.pop(plan.slot)
