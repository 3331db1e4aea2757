"""Examples whose edge features are computed whenever they are read."""

from sklearn_crf.encoding import _edge_features, _tuning
from sklearn_crf.encoding._examples import FIELDS, Example, trusted_example, with_fields


class ComputedEdges(Example):
    """An example that computes its edge features whenever it is asked for them."""

    def __init__(self, example, function):
        # The features themselves are not among the attributes taken over: below they are a property.
        for name in FIELDS:
            if name != "edge_features":
                setattr(self, name, getattr(example, name))
        # Features of nodes may be replaced by those in other units.
        self._source = example.node_features
        self._scale = None
        self._function = function

    def __setstate__(self, state):
        self.__dict__.update(state)

    @property
    def has_constant_edges(self):
        """Whether the one feature of every edge is 1."""
        return self._function is _edge_features.constant and self._scale is None

    @property
    def stores_edges(self):
        return False

    @property
    def _has_no_edge_features(self):
        return self._scale is None and self._source is self.node_features

    @property
    def has_quick_edges(self):
        return self._function is _edge_features.constant or (
            self._function is _edge_features.difference and self.shape[1] <= _tuning.FEW_FEATURES
        )

    def rows(self, start, stop):
        return ComputedEdges(super().rows(start, stop), self._function)

    @property
    def edge_features(self):
        features = _edge_features.compute_edge_features(self._function, self._source, self.graph.edges)
        return features if self._scale is None else _edge_features.scaled_edges(features, self.edge_type, self._scale)

    def _with_scaled_edges(self, scale):
        return self._with(_scale=scale)

    def _weighted_edges(self, weights):
        if self._function is not _edge_features.difference or self._scale is not None:
            return super()._weighted_edges(weights)
        return _edge_features.weighted_differences(self._source, self.graph.edges, self.edge_type, weights)

    def _with(self, **fields):
        if "edge_features" not in fields:
            return super()._with(**fields)
        # Features that are given are no longer computed.
        plain = trusted_example(self.node_features, self.graph, None, self.node_type, self._edge_type, self.n_states)
        return with_fields(plain, factors=self.factors, fixed_factors=self.fixed_factors, **fields)
