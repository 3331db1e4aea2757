"""The empirical risk of examples in shards, as the sum of the risks of the shards in a fixed order."""

import pickle
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np

from sklearn_crf.distributed import KeptObjects, Shard, Shards, sum_in_tree_order
from sklearn_crf.objectives._base import Objective
from sklearn_crf.objectives._risk import EmpiricalRisk, RiskValue


class ShardedRisk:
    r"""Sum of weighted losses over the examples of all shards.

    .. math:: R(w) = \sum_p R_p(w), \qquad \nabla R = \sum_p \nabla R_p

    Here :math:`R_p` is the :class:`EmpiricalRisk` of shard p. For each evaluation, the weights are sent to the workers,
    and :func:`~sklearn_crf.distributed.sum_in_tree_order` adds the results.

    Warm starts of inference and data that an objective collects, such as sets of labelings, stay with the shard. This
    state is a function of all weights that the shard was evaluated at. If a worker is lost, another worker repeats the
    passes and changes, so that results do not change.
    """

    # make_risk: callable(Shard) -> EmpiricalRisk, which is called on the worker of the shard
    # If the worker has dropped the risk, the worker calls ``make_risk`` again.
    # objective: objective for all shards; an objective that contains data of examples is made separately for each shard
    # seed: number from which the seed of each shard's risk is computed

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
        # A worker stores one risk at a time.
        # The training problems of one fit use the same examples, but different risks.
        self._kept = KeptObjects(shards, partial(_RiskOfShard, make_risk), slot="risk")
        self._starts_cold = False
        self._state_of_objective: bytes | None = None
        self._sent_objective: Objective | None = None
        known = self._kept.each(_RiskOfShard.described, changes=False)
        values = {name: [part[name] for part in known] for name in known[0]}
        self.objective = values["objective"][0] if objective is None else objective
        self.n_labelled = float(sum_in_tree_order(values["n_labelled"]))
        self.n_examples, self.n_nodes, self.n_edges = (
            sum(values[name]) for name in ("n_examples", "n_nodes", "n_edges")
        )
        self.has_unlabelled = any(values["has_unlabelled"])
        self.is_forest, self.is_exact = all(values["is_forest"]), all(values["is_exact"])
        self.path = " and ".join(sorted(set(values["path"])))
        self.label_counts, self.curvature = (
            sum_in_tree_order(values["label_counts"]),
            sum_in_tree_order(values["curvature"]),
        )

    edges_per_node = EmpiricalRisk.edges_per_node
    n_constant_errors = EmpiricalRisk.n_constant_errors

    @property
    def batches(self):
        """Raise ValueError, because a sharded risk has no batches in memory."""
        raise ValueError(
            "Examples in Shards are on disk or on workers, but this way of training needs single examples in "
            "memory: use a solver that only needs sums over all examples, such as 'lbfgs'."
        )

    def value_grad(self, coef: np.ndarray, members: Sequence[int] | None = None) -> RiskValue:
        """Return the weighted loss of all shards, with its gradient."""
        # members: must be None, as batches cannot be chosen
        if members is not None:
            return self.batches
        changed = self._get_changed_objective()
        asked = self._kept.n_steps, np.array(coef), self._starts_cold
        value, n_carrying = self._kept.total(
            _RiskOfShard.evaluate, *asked, self._sent_objective, is_lasting=False, known=(*asked, changed)
        )
        self._starts_cold = False
        if not n_carrying:
            # Without warm starts, earlier passes need not be repeated if a worker is lost.
            self._kept.shorten()
        return value

    def _get_changed_objective(self):
        """Return the objective if it has changed since the previous pass, otherwise None.

        The result is also None if shards have their own objectives.
        """
        if self.objective.of_examples:
            return None
        try:
            state = pickle.dumps(self.objective)
        except (pickle.PicklingError, AttributeError, TypeError):
            state = None  # the objective is user-defined and cannot be pickled
        if state is not None and state == self._state_of_objective:
            return None
        self._state_of_objective, self._sent_objective = state, deepcopy(self.objective)
        return self._sent_objective

    def summed(self, function: Callable, *arguments: Any, changes: bool = False) -> Any:
        """Apply a function to the risk of each shard after the last pass, and return the sum of the results."""
        # function: callable(EmpiricalRisk, *arguments), of a module that workers can import
        # changes: whether the function changes ``grown`` of the objectives
        # A worker that takes over a shard calls the function again.
        # The result may therefore only depend on the risk and the arguments.
        function_of_risk = _RiskOfShard.change if changes else _RiskOfShard.ask
        return self._kept.total(function_of_risk, function, *arguments, changes=changes)

    def derived(self, function: Callable[[EmpiricalRisk], EmpiricalRisk]) -> "ShardedRisk":
        """Return another sharded risk, which a function derives from the risk of each shard."""
        # function: callable(EmpiricalRisk) -> EmpiricalRisk, of a module that workers can import
        return ShardedRisk(
            self.shards, partial(_derive_risk, self.make_risk, function), None, self.potentials, self.seed
        )

    def forget(self) -> None:
        """Drop the warm starts of inference, so that the next pass starts without them."""
        self._starts_cold = True
        self._kept.shorten()


def _derive_risk(make_risk, function, shard):
    return function(make_risk(shard))


class _RiskOfShard:
    """Risk of the examples of a shard, together with the state that one step passes to the next."""

    def __init__(self, make_risk, shard):
        self.risk = make_risk(shard)
        self._objective = self._grown = None

    def described(self):
        """Return the attributes of the risk by name, without an objective that contains data of the examples."""
        counts = "n_labelled", "n_examples", "n_nodes", "n_edges", "label_counts", "curvature"
        found = {
            name: getattr(self.risk, name) for name in (*counts, "has_unlabelled", "is_forest", "is_exact", "path")
        }
        return found | {"objective": None if self.risk.objective.of_examples else self.risk.objective}

    def evaluate(self, number, coef, starts_cold, objective):
        """Return the RiskValue at the given weights, and the number 1 if inference stores warm starts, otherwise 0."""
        # objective: new objective, for example with another tolerance
        # ``objective`` is None if the objective is unchanged, or if each shard has a separate objective.
        if starts_cold:
            self.risk.forget()
        if objective is not None:
            self._objective = self.risk.objective = objective
        self.risk.n_passes = number
        return self.risk.value_grad(coef), int(self._states is not None)

    def change(self, function, *arguments):
        """Call a function that may change ``objective.grown`` with the risk and the arguments; return its result."""
        found = self.ask(function, *arguments)
        self._grown = self.risk.objective.grown
        return found

    def ask(self, function, *arguments):
        """Call a function with the risk and the arguments, and return its result."""
        return function(self.risk, *arguments)

    @property
    def _states(self):
        """Warm starts of inference, or None if inference stores no warm starts."""
        return self.risk.carried if any(state is not None for state in self.risk.carried) else None

    @property
    def carried(self):
        """State for the next step: the latest objective, its ``grown``, and the warm starts of inference."""
        return self._objective, self._states, self._grown

    @carried.setter
    def carried(self, carried):
        self._objective, states, self._grown = carried
        if self._objective is not None:
            self.risk.objective = self._objective
        if states is not None:
            self.risk.carried = states
        if self._grown is not None:
            self.risk.objective.grown = self._grown
