"""Missing node features: replaced by the means of the training nodes, and marked by indicator features."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sklearn_crf.encoding._edge_features import leave_out_added
from sklearn_crf.encoding._encoded import Encoded
from sklearn_crf.encoding._examples import replace_fields


@dataclass(frozen=True, eq=False)
class Filling:
    """Values of missing features, and the features that have an indicator because training nodes lacked them."""

    values: np.ndarray  # (n_features,)
    marked: np.ndarray  # (n_marked,) ascending

    @classmethod
    def of(cls, encoded: Encoded, weight: np.ndarray | None) -> "Filling":
        """Return the weighted means of the known values of the training nodes as filling."""
        # weight: (n_examples,), or None if all are one
        sums = np.zeros((3, encoded.n_features))  # values, weights and gaps
        weight = np.ones(encoded.n_examples) if weight is None else weight
        for features, own in _iterate_features(encoded, weight):
            gaps = np.isnan(features)
            known = np.where(gaps, 0.0, features)
            sums += np.stack([own @ known, own @ ~gaps, gaps.sum(axis=0)])
        lacking = np.flatnonzero(~(sums[1] > 0))
        if len(lacking):
            raise ValueError(f"Feature {lacking[0]} of X has no known value: leave this feature out.")
        return cls(sums[0] / sums[1], np.flatnonzero(sums[2]))

    def fill(self, encoded: Encoded) -> Encoded:
        """Replace missing values, and append an indicator for each marked feature."""
        parts = {"array": encoded.array, "items": encoded.items}
        if encoded.layout == "list":
            parts["items"] = [
                replace_fields(x, node_features=self._fill_rows(x.node_features, f"X[{i}]"))
                for i, x in enumerate(encoded.items)
            ]
        else:
            parts["array"] = self._fill_rows(encoded.array, "X")
        return replace(
            encoded,
            n_features=encoded.n_features + len(self.marked),
            n_indicators=len(self.marked),
            filling=self,
            edge_feature_function=leave_out_added(encoded.edge_feature_function, len(self.marked)),
            **parts,
        )

    def _fill_rows(self, features: Any, name: str) -> np.ndarray:
        if not isinstance(features, np.ndarray):
            raise ValueError(f"{name} has sparse features, but missing features need arrays: use X.toarray().")
        gaps = np.isnan(features)
        lacking = np.flatnonzero(gaps.reshape(-1, gaps.shape[-1]).any(axis=0))
        new = np.setdiff1d(lacking, self.marked)
        if len(new):
            raise ValueError(f"{name} contains NaN in feature {new[0]}, which was complete in fit.")
        filled = np.where(gaps, self.values.astype(features.dtype), features)
        return np.concatenate([filled, gaps[..., self.marked].astype(features.dtype)], axis=-1)


def _iterate_features(encoded: Encoded, weight: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield arrays of node features, (n, n_features), and the weights of their nodes, (n,)."""
    if encoded.layout == "nodes":
        yield encoded.array, weight
        return
    for x, own in zip(encoded.items if encoded.layout == "list" else encoded.array, weight, strict=True):
        rows = x.node_features if encoded.layout == "list" else x.reshape(-1, encoded.n_features)
        if isinstance(rows, np.ndarray):
            yield rows, np.full(len(rows), own)
