"""Base class of potentials that have weights of larger structures in addition to weights of nodes and edges."""

from copy import copy
from typing import Any, Self

import numpy as np


class ExtendedPotentials:
    """Base class of potentials whose flat weight vector begins with the weights of nodes and edges."""

    def __init__(self, pairwise: Any, n_more: int) -> None:
        # n_more: number of weights that follow the weights of nodes and edges
        self.pairwise = pairwise
        self.n_coef = pairwise.n_coef + int(n_more)

    def __getattr__(self, name: str) -> Any:
        """Look up an attribute in the potentials of nodes and edges if this object does not have it."""
        if name.startswith("__") or name == "pairwise":
            # Modules copy and pickle look up special methods before any attribute is set.
            raise AttributeError(name)
        return getattr(self.pairwise, name)

    def without_ends(self) -> Self:
        """Return potentials that allow all states at the ends of chains, see :meth:`LinearPotentials.without_ends`."""
        found = copy(self)
        found.pairwise = self.pairwise.without_ends()
        return found

    def _append_further_values(self, values: np.ndarray, fill: Any) -> np.ndarray:
        """Extend values for the weights of nodes and edges by the value ``fill`` for all further weights."""
        return np.concatenate((values, np.full(self.n_coef - len(values), fill, dtype=values.dtype)))

    @property
    def penalty(self) -> np.ndarray:
        """Coefficient of each squared weight in the penalty, (n_coef,) float64."""
        return self._append_further_values(self.pairwise.penalty, 1.0)

    @property
    def tails(self) -> np.ndarray:
        """For each weight, the scale of its feature divided by the robust spread, (n_coef,) float64."""
        return self._append_further_values(self.pairwise.tails, 1.0)

    @property
    def on_edges(self) -> np.ndarray:
        """Mask of the weights of pairwise tables and of all further weights, (n_coef,) bool."""
        return self._append_further_values(self.pairwise.on_edges, True)

    def build_inference_model(self, coef: np.ndarray, example: Any) -> Any:
        """Return the model of an example for inference, which is the result of :meth:`model`."""
        # coef: (n_coef,)
        return self.model(coef, example)

    def find_touched_weights(self, example: Any) -> np.ndarray:
        """Return the indices of the weights on which the model of an example depends."""
        n_pairwise = self.pairwise.n_coef
        of_pairwise = np.arange(n_pairwise)[self.pairwise.find_touched_weights(example)]
        return np.concatenate((of_pairwise, np.arange(n_pairwise, self.n_coef)))

    def pullback(self, example: Any, statistics: Any) -> np.ndarray:
        """Convert the gradient with respect to the scores of the model to the gradient with respect to the weights."""
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
        """Split a flat weight vector into views; the view ``pairwise`` has the weights of nodes and edges."""
        raise NotImplementedError(type(self).__name__)

    def model(self, coef: np.ndarray, example: Any, edges: Any = None) -> Any:
        """Return the model of an example for given weights."""
        raise NotImplementedError(type(self).__name__)

    def _split(self, parts: Any, example: Any, statistics: Any) -> Any:
        """Add the statistics of all further weights to ``parts``; return the statistics of nodes and edges."""
        raise NotImplementedError(type(self).__name__)
