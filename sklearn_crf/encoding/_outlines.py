"""Outlines: the properties of encoded examples that weights depend on, without the examples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sklearn_crf.encoding._edge_features import edge_feature_function, one_computed_edge
from sklearn_crf.encoding._encoded import Encoded, record_input


@dataclass(frozen=True, eq=False)
class Outline:
    """Properties of encoded examples, which may be elsewhere in parts, that the weights of a field depend on."""

    n_features: int
    lattice_ndim: int | None
    is_sparse: bool
    has_operators: bool
    has_sparse_edges: bool
    has_factors: bool
    n_edge_features: int
    n_edge_types: int
    n_node_types: int
    n_examples: int
    n_nodes: int
    n_edges: int
    feature_names: np.ndarray | None

    @classmethod
    def of(cls, encoded: Encoded) -> "Outline":
        """The outline of some examples."""
        return cls(**{name: getattr(encoded, name) for name in cls.__dataclass_fields__})

    @classmethod
    def joined(cls, parts: "Sequence[Outline]", names: Sequence[str]) -> "Outline":
        """The outline of all examples."""
        first = parts[0]
        for part, name in zip(parts[1:], names[1:], strict=True):
            for field, what in _SHARED.items():
                before, now = getattr(first, field), getattr(part, field)
                if not np.array_equal(before, now):
                    raise ValueError(f"All shards need the same {what}: {names[0]} has {before}, {name} has {now}.")
        most = {name: max(getattr(part, name) for part in parts) for name in ("n_edge_types", "n_node_types")}
        total = {name: sum(getattr(part, name) for part in parts) for name in ("n_examples", "n_nodes", "n_edges")}
        return replace(first, has_factors=any(part.has_factors for part in parts), **most, **total)

    def with_edge_features(self, name: str) -> "Outline":
        """The same outline with other computed features of edges, as :meth:`Encoded.with_edge_features`."""
        made = one_computed_edge(edge_feature_function(name), np.zeros((1, self.n_features)))
        return replace(self, n_edge_features=made.shape[1])

    def record(self, estimator) -> None:
        """Set the attributes that describe the input of a fit, as :meth:`Encoded.record` does."""
        record_input(self, estimator)


_SHARED = {
    "n_features": "number of features",
    "lattice_ndim": "number of lattice axes",
    "is_sparse": "kind of features (sparse: True, dense: False)",
    "has_operators": "kind of features (linear operators: True)",
    "has_sparse_edges": "kind of edge features (sparse: True, dense: False)",
    "n_edge_features": "number of edge features",
    "feature_names": "names of the columns",
}
