"""Base of potentials that add weights of larger structures to the weights of nodes and edges."""

from copy import copy
from typing import Any, Self

import numpy as np


class ExtendedPotentials:
    """Potentials with the weights of nodes and edges first, followed by more weights."""

    def __init__(self, pairwise: Any, n_more: int) -> None:
        # n_more: number of further weights
        self.pairwise = pairwise
        self.n_coef = pairwise.n_coef + int(n_more)
        self.n_classes, self.n_features = pairwise.n_classes, pairwise.n_features
        self.n_node_types = pairwise.n_node_types
        self.n_edge_types = pairwise.n_edge_types
        self.n_edge_features = pairwise.n_edge_features
        self.by_columns = pairwise.by_columns

    @property
    def forbids(self) -> bool:
        """Whether labelings are forbidden, see :attr:`LinearPotentials.forbids`."""
        return self.pairwise.forbids

    def without_ends(self) -> Self:
        """Return potentials that allow all states at ends, see :meth:`LinearPotentials.without_ends`."""
        found = copy(self)
        found.pairwise = self.pairwise.without_ends()
        return found

    def _append_further_values(self, values: np.ndarray, fill: Any) -> np.ndarray:
        """Return values of the weights of nodes and edges, followed by one value of all further weights."""
        return np.concatenate((values, np.full(self.n_coef - len(values), fill, dtype=values.dtype)))

    @property
    def penalty(self) -> np.ndarray:
        """Factors of the squared weights in the penalty, (n_coef,) float64."""
        return self._append_further_values(self.pairwise.penalty, 1.0)

    @property
    def tails(self) -> np.ndarray:
        """Unit of each weight's feature divided by its robust spread, (n_coef,) float64."""
        return self._append_further_values(self.pairwise.tails, 1.0)

    @property
    def on_edges(self) -> np.ndarray:
        """Mask of the weights of pairwise tables and of all further weights, (n_coef,) bool."""
        return self._append_further_values(self.pairwise.on_edges, True)

    def check(self, encoded: Any, name: str) -> None:
        """Raise ValueError if examples have types, states or features that training examples did not have."""
        self.pairwise.check(encoded, name)

    def build_inference_model(self, coef: np.ndarray, example: Any) -> Any:
        """Return a model for inference, which is :meth:`model`."""
        # coef: (n_coef,)
        return self.model(coef, example)

    def prepare_edges(self, example: Any) -> Any:
        """Return an edge layout that models share for all weights, see :meth:`LinearPotentials.prepare_edges`."""
        return self.pairwise.prepare_edges(example)

    def prepared(self, example: Any) -> Any:
        """Return an example in the form that is fastest for many calls, see :meth:`SparsePotentials.prepared`."""
        return self.pairwise.prepared(example)

    def prepare_once(self, example: Any) -> Any:
        """Return an example for a single call of :meth:`model`, see :meth:`SparsePotentials.prepare_once`."""
        return self.pairwise.prepare_once(example)

    def split_shared_ranges(self, examples: Any) -> Any:
        """Return ranges of node features with about equal numbers of entries."""
        return self.pairwise.split_shared_ranges(examples)

    def pullback(self, example: Any, statistics: Any) -> np.ndarray:
        """Return the derivative by the weights, given the derivative by the model."""
        # returns: (n_coef,), float64
        gradient = np.zeros(self.n_coef)
        parts = self.unpack(gradient)
        parts.pairwise[...] = self.pairwise.pullback(example, self._split(parts, example, statistics))
        return gradient

    def add_pullbacks(
        self, gradient: np.ndarray, examples: Any, statistics: Any, ranges: Any, *, n_jobs: int | None = None
    ) -> None:
        """Add the pullbacks of many examples to a gradient, see :meth:`SparsePotentials.add_pullbacks`."""
        # gradient: (n_coef,), float64
        parts = self.unpack(gradient)
        pairs = [self._split(parts, example, part) for example, part in zip(examples, statistics, strict=True)]
        self.pairwise.add_pullbacks(parts.pairwise, examples, pairs, ranges, n_jobs=n_jobs)

    def unpack(self, coef: np.ndarray) -> Any:
        """Return the parts of a flat weight vector, as views; the part ``pairwise`` is of nodes and edges."""
        raise NotImplementedError(type(self).__name__)

    def model(self, coef: np.ndarray, example: Any, edges: Any = None) -> Any:
        """Return the model of an example for given weights."""
        raise NotImplementedError(type(self).__name__)

    def _split(self, parts: Any, example: Any, statistics: Any) -> Any:
        """Add the statistics of further weights to their parts; return the statistics of nodes and edges."""
        raise NotImplementedError(type(self).__name__)
