"""Weights of factors of any arity: the potentials that they belong to, and how they are kept as attributes."""

import numpy as np

from sklearn_crf.estimators._factor_formulations import nodes_together
from sklearn_crf.factor_graphs import numbers_of_states
from sklearn_crf.potentials import FactorPotentials, FactorType, check_factors, factor_types


class FactorWeights:
    """Mixin before :class:`FieldClassifier` for examples that may have factors besides nodes and edges."""

    _takes_factors = True

    def _factor_batch_nodes(self):
        return 1 if self.solver == "sgd" else nodes_together(self.formulation, self.entropy)

    def _make_potentials(self, encoded, classes, batches):
        pairwise = super()._make_potentials(encoded, classes, batches)
        if not encoded.has_factors:
            return pairwise
        types = factor_types(encoded.items, batches, len(classes))
        check_factors(encoded.items, types, len(classes))
        return FactorPotentials(pairwise, types)

    def _fitted_potentials(self, encoded=None):
        pairwise = super()._fitted_potentials(encoded)
        if not self.factor_coef_ and (encoded is None or not encoded.has_factors):
            return pairwise
        types = [
            FactorType(name, self.factor_shapes_[name], len(coef), self.factor_states_[name])
            for name, coef in self.factor_coef_.items()
        ]
        return FactorPotentials(pairwise, types)

    def _weight_attributes(self, potentials, flat):
        if not isinstance(potentials, FactorPotentials):
            return super()._weight_attributes(potentials, flat) | {name: {} for name in _ATTRIBUTES}
        pairwise, factors = potentials.unpack(flat)
        return super()._weight_attributes(potentials.pairwise, pairwise) | {
            "factor_coef_": {name: np.array(coef) for name, coef in factors.items()},
            "factor_states_": {kind.name: kind.states for kind in potentials.types},
            "factor_shapes_": {kind.name: kind.n_states for kind in potentials.types},
        }

    def _flat_weights(self, potentials):
        if not isinstance(potentials, FactorPotentials):
            return super()._flat_weights(potentials)
        parts = [super()._flat_weights(potentials.pairwise)]
        parts += [self._weights_of_type(kind).ravel() for kind in potentials.types]
        return np.concatenate(parts)

    def _weights_of_type(self, kind):
        """The fitted weights of a type that may have been collected from other training data."""
        coef = self.factor_coef_.get(kind.name)
        if coef is None:
            return np.zeros((kind.n_features, kind.n_listed + 1))
        if len(coef) != kind.n_features or not np.array_equal(self.factor_shapes_[kind.name], kind.n_states):
            raise ValueError(
                f"factors of type {kind.name!r} have nodes of {kind.n_states.tolist()} states and {kind.n_features} "
                f"features, in the former fit {self.factor_shapes_[kind.name].tolist()} and {len(coef)}."
            )
        listed = numbers_of_states(self.factor_states_[kind.name], kind.n_states)
        place = np.searchsorted(listed, kind.cells)
        known = np.append(listed, -1)[place] == kind.cells
        # What was not listed had the weight of all others, the last.
        return coef[:, np.append(np.where(known, place, len(listed)), len(listed))]

    def _check_examples(self, encoded, potentials):
        if not isinstance(potentials, FactorPotentials):
            super()._check_examples(encoded, potentials)
        else:
            super()._check_examples(encoded, potentials.pairwise)
            check_factors(encoded.items, potentials.types, potentials.n_classes)


_ATTRIBUTES = ("factor_coef_", "factor_states_", "factor_shapes_")
