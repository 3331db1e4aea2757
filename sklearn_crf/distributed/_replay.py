"""Objects that are stored with shards and change in numbered steps. If a worker is lost, the steps are repeated."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

from sklearn_crf._threads import limit_blas_threads
from sklearn_crf.distributed._executors import Shard
from sklearn_crf.distributed._shards import Shards


class KeptObjects:
    """Collection of one object per shard. Each object exists in the process of its shard, and changes in steps.

    The state of an object between steps only depends on its earlier steps. If a worker is lost, another worker creates
    the object again and repeats the steps, so that results do not change. If an executor calls a function twice on a
    shard, the function takes effect only once.
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
        """Call a function on each object, and return the results."""
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
        """Call a function on each object, and return the sum of the results."""
        # function: callable(object, *arguments) -> object
        (found,) = self._call_each(self._shards.sum, function, arguments, changes, is_lasting, known)
        return found

    def shorten(self) -> None:
        """Forget steps that need not be repeated after a worker is lost.

        Lasting steps and the last step are not forgotten.
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
            # Objects do not exist yet, or a shard has moved to another worker since the last step.
            found = engine(_call, _Request(self._plan.key, step, (self._plan, self._steps)))
            self._is_known = True
        if changes:
            self._steps.append(step)
            self.n_steps += 1
        return found


class _Plan(NamedTuple):
    """Function that creates the object of a shard, and the keys under which the shard stores object and state."""

    key: str
    make: Callable
    stays: bool
    slot: str


class _Step(NamedTuple):
    """One step: a function that is called on an object, and the function's further arguments."""

    call: int  # number of the call, which distinguishes an interrupted step from the next step
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
        """Make a step: call its function on the object, and return the result."""
        with limit_blas_threads(), shard.named_in_errors():
            kept = self._get_object(shard)
            found = step.function(kept, *step.arguments)
        if step.changes:
            self.carried, self.last = kept.carried, found
            self.n_steps, self.last_call = step.number + 1, step.call
        return found

    def _get_object(self, shard):
        """Return the object; if it was dropped, create it again."""
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
    """Make a step; return its result in a tuple, or None if the shard has not made all earlier steps."""
    kept, step = shard.memory.get(request.key), request.step
    # Do not repeat a step that was the last step of this shard.
    if kept is None or not (step.number == kept.n_steps or step.call == kept.last_call):
        if request.past is None:
            return None
        kept = _repeat(shard, *request.past)
    return (kept.last if step.call == kept.last_call else kept.call(shard, step),)


def _repeat(shard, plan, steps):
    """Create an object again, repeat all its steps, and return its state."""
    kept = shard.memory[plan.key] = _Kept(plan)
    shard.cache.pop(plan.slot, None)
    for step in steps:
        kept.call(shard, step)
    return kept


def _drop(shard, plan):
    shard.memory.pop(plan.key, None)
    if shard.cache.get(plan.slot, (None, None))[0] == plan.key:
        shard.cache.pop(plan.slot)
