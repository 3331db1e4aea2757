"""Base class of the automatic choices, which solve components exactly if affordable, else approximately."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sklearn_crf._options import options
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._results import Infeasible, Refuted
from sklearn_crf.inference.automatic._cost import Budget, group_components
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.models import FactorGraph, PairwiseModel, SegmentModel, extract_components


class AutoState(NamedTuple):
    """State of an automatic result: the name and the state of the chosen algorithm."""

    chosen: str
    state: object
    n_nonsubmodular: int = 0  # number of edges that a minimum cut cannot represent

    @staticmethod
    def of(init: Any, chosen: str) -> Any:
        """Return the state for a warm start of the chosen algorithm; None if another algorithm was chosen before."""
        return init.state if isinstance(init, AutoState) and init.chosen == chosen else None


@options
class Automatic(Inference):
    """Base class of :class:`AutoMap` and :class:`AutoMarginals`, with their common options.

    Parameters
    ----------
    budget : {"step", "fast", "default", "long"} or float, default="default"
        Maximum number of table cells for elimination in a connected component, see :func:`exact_inference`. "default"
        is about two seconds and 1 GB.
    """

    _starts_from: ClassVar[tuple[type, ...]] = (AutoState,)
    exact_on = "forest"
    takes = (PairwiseModel, FactorGraph, SegmentModel)
    budget: str | float = "default"

    def _check_model(self, model):
        super()._check_model(model)
        Budget.of(self.budget)

    def transitions_of_chains(self, model: Any, rule: str) -> Any:
        self._require("map" if "map" in self.tasks else "marginals", model)
        return TreeInference().transitions_of_chains(model, rule)

    def _split(
        self, model: Any, budget: Budget, init: Any, exactly: Callable, roughly: Callable
    ) -> tuple[list, list[np.ndarray]]:
        """Solve groups of components exactly or approximately; return the result and the nodes of each group."""
        # exactly, roughly: functions that solve a model, given the model and an earlier state
        shares = group_components(model, budget)
        if (shares == shares[:1]).all():
            return [(exactly if (shares == 0).all() else roughly)(model, init)], [np.arange(model.n_nodes)]
        numbers = [*range(shares.max() + 1), *([-1] if shares.min() < 0 else [])]
        former = AutoState.of(init, "parts")
        former = former if former is not None and len(former) == len(numbers) else [None] * len(numbers)
        parts, places = [], []
        for number, state in zip(numbers, former, strict=True):
            part, nodes = extract_components(model, shares == number)
            with _renumber_error_nodes(nodes):
                parts.append((roughly if number < 0 else exactly)(part, state))
            places.append(nodes)
        return parts, places


def join_parts(parts: list) -> dict[str, Any]:
    """Return one state and one method name for the whole model, given the results of its parts."""
    return {
        "state": AutoState("parts", tuple(part.state for part in parts)),
        "method": ", ".join(dict.fromkeys(part.method for part in parts)),
    }


@contextmanager
def _renumber_error_nodes(nodes: np.ndarray) -> Iterator[None]:
    """Return a context manager that replaces node indices of a part in errors by indices in the whole model."""
    # nodes: (n_part,), nodes of the part in the whole model
    try:
        yield
    except Refuted as error:
        raise Refuted(nodes[error.nodes].tolist()) from None
    except Infeasible as error:
        message = "model is infeasible: no labeling of one of its connected components is allowed."
        raise Infeasible(message, error.proven) from None
