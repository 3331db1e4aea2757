"""The empirical risk of examples in shards: every shard adds up its own, and their sums are added in a fixed order."""

import pickle
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from sklearn_crf._threads import single_threaded_blas
from sklearn_crf.distributed import Shard, Shards, tree_sum
from sklearn_crf.objectives._base import EmpiricalRisk, Objective, RiskValue


class ShardedRisk:
    r"""Sum of weighted losses over the examples of all shards.

    .. math:: R(w) = \sum_p R_p(w), \qquad \nabla R = \sum_p \nabla R_p

    with :math:`R_p` the :class:`EmpiricalRisk` of shard p, and the sums by :func:`~sklearn_crf.distributed.tree_sum`.
    For one evaluation the weights go out, and the sums over the shards of each worker come back.

    What inferences carry from pass to pass stays with the shard, and so does what an objective of examples has grown,
    such as sets of labelings. It is a function of the weights that the shard has seen: where a worker is lost, another
    one repeats its passes and changes, so that the result is the same.

    Parameters
    ----------
    shards : Shards
    make_risk : callable(Shard) -> EmpiricalRisk
        Called where the shard is, and again after its result was dropped.
    objective : Objective
        As of all these risks. One of examples stands for those that the shards make, each for its own examples.
    potentials : LinearPotentials
        As of all these risks.
    seed : int, default=0
        That the seeds of these risks are made of.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import Shards
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.objectives import EmpiricalRisk, Pseudolikelihood, ShardedRisk
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> potentials = LinearPotentials(1, 2, pairwise_form("potts", 2), fit_intercept=False)
    >>> def make_risk(shard):
    ...     X, y, _ = shard.load()
    ...     encoded = encode_X(X, edge_features="constant", edge_types="tied")
    ...     labels = encode_y(y, encoded, classes=[0, 1]).labels
    ...     return EmpiricalRisk(
    ...         Pseudolikelihood(), potentials, make_batches(encoded, labels)
    ...     )
    >>> parts = [([[[0.0], [0.2], [0.9]]], [[0, 0, 1]]), ([[[1.0], [0.8]]], [[1, 1]])]
    >>> risk = ShardedRisk(
    ...     Shards.from_arrays(parts), make_risk, Pseudolikelihood(), potentials
    ... )
    >>> round(risk.value_grad(np.zeros(2)).value, 3), risk.n_labelled
    (3.466, 5.0)
    """

    def __init__(
        self,
        shards: Shards,
        make_risk: Callable[[Shard], EmpiricalRisk],
        objective: Objective | None,
        potentials: Any,
        seed: int = 0,
    ):
        self.shards = shards
        self.make_risk = make_risk
        self.potentials = potentials
        self.seed = seed
        self._key = uuid4().hex
        self._n_passes = 0
        self._history: list[_Pass | _Call] = []
        self._keeps_passes = True
        self._state_of_objective = self._sent_objective = None
        known = shards.map(_describe, _Plan(self._key, make_risk))
        self.objective = known[0].objective if objective is None else objective
        self.n_labelled = float(tree_sum([part.n_labelled for part in known]))
        self.n_examples = sum(part.n_examples for part in known)
        self.n_nodes = sum(part.n_nodes for part in known)
        self.n_edges = sum(part.n_edges for part in known)
        self.has_unlabelled = any(part.has_unlabelled for part in known)
        self.is_forest = all(part.is_forest for part in known)
        self.is_exact = all(part.is_exact for part in known)
        self.label_counts = tree_sum([part.label_counts for part in known])
        self.curvature = tree_sum([part.curvature for part in known])

    edges_per_node = EmpiricalRisk.edges_per_node
    n_constant_errors = EmpiricalRisk.n_constant_errors

    @property
    def batches(self):
        """Examples in memory, which there are none of."""
        raise ValueError(
            "Examples in Shards are on disk or on workers, and this way of training goes through single examples in "
            "memory: take a solver that asks for sums over all examples, such as 'lbfgs'."
        )

    def value_grad(self, coef: np.ndarray, members: Sequence[int] | None = None) -> RiskValue:
        """Loss over all shards.

        Parameters
        ----------
        coef : ndarray of shape (n_coef,)
        members : None
            Batches are not known here.

        Returns
        -------
        RiskValue
        """
        if members is not None:
            return self.batches
        asked = _Pass(self._n_passes, np.array(coef), self._changed_objective())
        value, n_carrying = self._total(_evaluate, asked)
        self._n_passes += 1
        # Losses without memory need no passes repeated.
        self._keeps_passes = self._keeps_passes and n_carrying > 0
        done = asked._replace(objective=self._sent_objective)
        self._history = [*self._history, done] if self._keeps_passes else self._changes()
        return value

    def _changed_objective(self):
        """The objective if it is not as in the pass before, None if it is, or if shards have their own."""
        if self.objective.of_examples:
            return None
        try:
            state = pickle.dumps(self.objective)
        except (pickle.PicklingError, AttributeError, TypeError):
            state = None  # an objective of the user that cannot leave this process
        if state is not None and state == self._state_of_objective:
            return None
        self._state_of_objective, self._sent_objective = state, deepcopy(self.objective)
        return self._sent_objective

    def _changes(self):
        return [step for step in self._history if isinstance(step, _Call)]

    def summed(self, function: Callable, *arguments: Any, changes: bool = False) -> Any:
        """A sum over examples that a function of the risks gives, at the weights of the last pass.

        Parameters
        ----------
        function : callable(EmpiricalRisk, *arguments) -> float or ndarray
            One of a module, which workers can import.
        *arguments : object
        changes : bool, default=False
            Whether the function lets what the objectives have grown grow further. A worker that takes over a shard
            calls it again, so that it must depend on the risk and the arguments alone.

        Returns
        -------
        float or ndarray
        """
        asked = _Call(self._n_passes, function, arguments)
        if not changes:
            return self._total(_summed, asked)[0]
        found, _ = self._total(_evaluate, asked)
        self._n_passes += 1
        self._history = [*self._history, asked]
        return found

    def _total(self, function, asked):
        for _ in range(_MOST_REPAIRS):
            found = self.shards.sum(function, (self._key, asked))
            if found is not None:
                return found
            # Another worker has loaded the shard since the previous pass.
            repair = _Plan(self._key, self.make_risk), asked.number, self._history, self._sent_objective
            self.shards.map(_catch_up, repair)
        raise RuntimeError(f"Workers were lost {_MOST_REPAIRS} times in one pass over the shards.")

    def derived(self, function: Callable[[EmpiricalRisk], EmpiricalRisk]) -> "ShardedRisk":
        """The risk that a function makes of the risk of every shard.

        Parameters
        ----------
        function : callable(EmpiricalRisk) -> EmpiricalRisk
            One of a module, which workers can import.

        Returns
        -------
        ShardedRisk
        """
        return ShardedRisk(
            self.shards, partial(_derived_risk, self.make_risk, function), None, self.potentials, self.seed
        )

    def forget(self) -> None:
        """Drop what inferences carry from call to call: the next pass starts cold."""
        self._history, self._keeps_passes = self._changes(), True
        self.shards.map(_forget, self._key)


_MOST_REPAIRS = 10


def _derived_risk(make_risk, function, shard):
    return function(make_risk(shard))


class _Plan(NamedTuple):
    """How shards make a risk, and the name under which they keep it."""

    key: str
    make_risk: Callable


class _Pass(NamedTuple):
    """One evaluation: its number, the weights, and the objective, whose tolerances may change from pass to pass."""

    number: int
    coef: np.ndarray
    objective: Objective | None  # None where it is as in the pass before, or shards have their own


class _Call(NamedTuple):
    """A function of risks: the number of passes and changes before it, and its further arguments."""

    number: int
    function: Callable
    arguments: tuple


class _Description(NamedTuple):
    n_labelled: float
    n_examples: int
    n_nodes: int
    n_edges: int
    has_unlabelled: bool
    is_forest: bool
    is_exact: bool
    label_counts: np.ndarray
    curvature: np.ndarray | None
    objective: Objective | None


class _Kept:
    """State of a risk that a shard keeps besides its examples."""

    def __init__(self, make_risk):
        self.make_risk = make_risk
        self.n_passes = 0
        self.objective = None
        self.carried = None
        self.grown = None
        self.last = None


def _risk_of(shard, key):
    cached_key, risk = shard.cache.get("risk", (None, None))
    if cached_key != key:
        # One at a time: several training problems of one fit share the examples, and each may have a form of its own.
        kept = shard.memory[key]
        risk = kept.make_risk(shard)
        if kept.objective is not None:
            risk.objective = kept.objective
        if kept.carried is not None:
            risk.carried = kept.carried
        if kept.grown is not None:
            risk.objective.grown = kept.grown
        shard.cache["risk"] = key, risk
    return risk


def _describe(shard, plan):
    shard.memory[plan.key] = _Kept(plan.make_risk)
    with shard.named_in_errors():
        risk = _risk_of(shard, plan.key)
        known = _Description(*(getattr(risk, name) for name in _Description._fields))
        return known._replace(objective=None) if risk.objective.of_examples else known


def _evaluate(shard, request):
    """The result of a step for a shard, and 1 if its inferences carry something on; None if it missed a step."""
    key, asked = request
    kept = shard.memory.get(key)
    if kept is None or asked.number not in (kept.n_passes, kept.n_passes - 1):
        return None
    if asked.number == kept.n_passes:
        _advance(shard, key, asked)
    return kept.last


def _advance(shard, key, asked):
    kept = shard.memory[key]
    with single_threaded_blas(), shard.named_in_errors():
        risk = _risk_of(shard, key)
        if isinstance(asked, _Call):
            found = asked.function(risk, *asked.arguments)
            kept.grown = risk.objective.grown
        else:
            if asked.objective is not None:
                kept.objective = risk.objective = asked.objective
            risk.n_passes = asked.number
            found = risk.value_grad(asked.coef)
    carries = any(state is not None for state in risk.carried)
    kept.carried = risk.carried if carries else None
    kept.last, kept.n_passes = (found, int(carries)), asked.number + 1


def _summed(shard, request):
    """The value of a function for the risk of a shard, in a tuple; None if the shard missed a step."""
    key, asked = request
    kept = shard.memory.get(key)
    if kept is None or asked.number != kept.n_passes:
        return None
    with single_threaded_blas(), shard.named_in_errors():
        return (asked.function(_risk_of(shard, key), *asked.arguments),)


def _catch_up(shard, repair):
    plan, number, history, objective = repair
    kept = shard.memory.get(plan.key)
    if kept is not None and number in (kept.n_passes, kept.n_passes - 1):
        return
    kept = shard.memory[plan.key] = _Kept(plan.make_risk)
    shard.cache.pop("risk", None)
    for asked in history:
        _advance(shard, plan.key, asked)
    kept.n_passes, kept.objective = number, objective
    shard.cache.pop("risk", None)


def _forget(shard, key):
    if key in shard.memory:
        shard.memory[key].carried = None
    cached_key, risk = shard.cache.get("risk", (None, None))
    if cached_key == key:
        risk.forget()


class ShardPlanes:
    r"""Highest planes of the loss of all shards, for solvers that keep planes of sums.

    .. math::
        C R(w) = \max_y \bigl( o_y + s_y^\top w \bigr), \qquad s_y = C \nabla R(w), \qquad
        o_y = C R(w) - s_y^\top w

    with R the structured hinges together, which are linear in w as long as the labelings found are the same. They are
    one block of one term.

    Parameters
    ----------
    risk : ShardedRisk
        Of a :class:`StructuredHinge` or a loss like it.
    C : float
    scale : ndarray of shape (n_coef,)
        Solvers see x of w = scale x.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import Shards
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.objectives import (
    ...     EmpiricalRisk,
    ...     ShardedRisk,
    ...     ShardPlanes,
    ...     StructuredHinge,
    ... )
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> potentials = LinearPotentials(1, 2, pairwise_form("potts", 2), fit_intercept=False)
    >>> hinge = StructuredHinge(TreeInference(), 1 - np.eye(2))
    >>> def make_risk(shard):
    ...     X, y, _ = shard.load()
    ...     encoded = encode_X(X, edge_features="constant", edge_types="tied")
    ...     labels = encode_y(y, encoded, classes=[0, 1]).labels
    ...     return EmpiricalRisk(hinge, potentials, make_batches(encoded, labels))
    >>> parts = [([[[0.0], [0.2], [0.9]]], [[0, 0, 1]]), ([[[1.0], [0.8]]], [[1, 1]])]
    >>> risk = ShardedRisk(Shards.from_arrays(parts), make_risk, hinge, potentials)
    >>> planes = ShardPlanes(risk, 1.0, np.ones(potentials.n_coef))
    >>> slopes, offsets = planes(0, np.zeros(potentials.n_coef))
    >>> slopes.round(3).tolist(), offsets.tolist()
    ([[-2.5, 0.0]], [5.0])
    """

    def __init__(self, risk: ShardedRisk, C: float, scale: np.ndarray):
        self.risk = risk
        self.sizes = [1]
        self.n_inference_calls = 0
        self._C, self._scale = C, scale

    def weights_of(self, x: np.ndarray) -> np.ndarray:
        """Flat weights that a solver's x stands for.

        Parameters
        ----------
        x : ndarray of shape (n_coef,)

        Returns
        -------
        ndarray of shape (n_coef,)
        """
        return self._scale * x

    def __call__(self, block, x):
        """Slope (1, n_coef) and offset (1,) of the highest plane at x."""
        found = self.risk.value_grad(self.weights_of(x))
        self.n_inference_calls += self.risk.n_examples
        slopes = (self._C * self._scale * found.gradient)[np.newaxis]
        return slopes, self._C * np.array([found.value]) - slopes @ x
