"""What fitting M3NClassifier comes to: how its parameters choose a problem, a solver and the batches for both."""

import numpy as np

from sklearn_crf.estimators._complete_labels import require_complete
from sklearn_crf.estimators._coupling import Decoding
from sklearn_crf.estimators._margin_cost import (
    cost_matrix,
    is_per_node,
    require_associative,
    with_node_weights,
)
from sklearn_crf.estimators._margin_formulations import is_by_planes, is_smoothed, resolve_margin_formulation
from sklearn_crf.estimators._margin_training import MarginOptions, train_by_margins
from sklearn_crf.estimators._trained_field import TrainedField
from sklearn_crf.potentials import pairwise_form

# Up to so many weights the planes kept take little time next to inference.
_MOST_WEIGHTS_FOR_PLANES = 1000


class MarginField(TrainedField):
    """Base of the classifiers trained by margins.

    A subclass has the constructor parameters of :class:`~sklearn_crf.M3NClassifier`.
    """

    def _check_combination(self):
        own = "lbfgs" if is_smoothed(self.formulation, self.temperature) else None
        own = "auto" if self.formulation == "dual" else own
        if self.solver != "auto" and (self.solver == "lbfgs" if own is None else self.solver != own):
            raise ValueError(
                f"solver={self.solver!r} does not go with formulation={self.formulation!r}: those at a temperature "
                "have solver='lbfgs', and only they, 'dual' has none; or leave it at 'auto'."
            )
        if self.formulation == "dual" and self.pairwise == "associative":
            raise ValueError("formulation='dual' has no bounds on weights: pairwise='associative' needs another.")

    def _decoding(self):
        return Decoding(self._resolved().inference, "map")

    def _resolved(self):
        limits = {"max_iter": self.inner_max_iter, "tol": self.inner_tol}
        name = type(self).__name__
        return resolve_margin_formulation(
            self.formulation, self.rescaling, self.inference, self.temperature, name, **limits
        )

    def _base_form(self, n_classes):
        return pairwise_form("auto" if self.pairwise == "associative" else self.pairwise, n_classes)

    def _goes_by_blocks(self, encoded):
        if not is_by_planes(self.formulation, self.temperature):
            return False
        if self.solver == "auto":
            return bool(encoded.n_edges) and not encoded.is_sparse
        return self.solver != "bmrm"

    def _chosen_solver(self, encoded, potentials):
        if self.solver != "auto":
            return self.solver
        if not is_by_planes(self.formulation, self.temperature):
            return "lbfgs"
        if not self._goes_by_blocks(encoded):
            return "bmrm"
        return "cutting_plane" if potentials.n_coef <= _MOST_WEIGHTS_FOR_PLANES else "frank_wolfe"

    def _batch_nodes(self, encoded):
        # A product with the cost is one of each example, whatever it is joined with.
        if self.formulation == "dual" or (self.rescaling == "slack" and encoded.layout != "nodes"):
            return 1
        # Kernels go through forests of dense features one by one, whatever batch they are in.
        by_kernel = not encoded.is_sparse and self._decoding().inference.exact_on in ("any", "forest")
        if by_kernel or not self._goes_by_blocks(encoded):
            return 4096
        # Steps are made for one mini-batch after the other: of small ones there are more.
        return int(np.clip(encoded.n_nodes // 64, 1, 1024))

    def _check_labels(self, labels):
        # Bad parameters are named before any work is done.
        self._decoding()
        cost_matrix(self.cost, self.class_weight, labels)

    def _with_node_weights(self, encoded, batches):
        return with_node_weights(self.cost, encoded, batches) if is_per_node(self.cost) else batches

    def _objective(self, batches, labels):
        for batch in batches:
            require_complete(batch, "training by margins")
        if self.pairwise == "associative":
            require_associative(batches)
        return self._resolved().make_objective(cost_matrix(self.cost, self.class_weight, labels), batches)

    def _training_options(self, objective, encoded, potentials):
        bounded = np.zeros(potentials.n_coef, dtype=bool)
        potentials.unpack(bounded).edge_coef[...] = self.pairwise == "associative"
        return MarginOptions(
            problem=self._problem(encoded),
            inference=self._decoding().inference,
            solver=self._chosen_solver(encoded, potentials),
            C=self.C,
            scale=np.where(potentials.penalised, 1.0, self.intercept_scaling),
            lower_bounded=bounded,
            max_iter=self.max_iter,
            tol=self.tol,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )

    def _problem(self, encoded):
        if is_by_planes(self.formulation, self.temperature):
            return "planes"
        # Without edges there is nothing to share.
        return self.formulation if encoded.n_edges or self.formulation != "joint" else "smoothed"

    def _train(self, risk, start, options, rng, on_iteration):
        return train_by_margins(risk, start, options, rng, on_iteration)

    def _store(self, potentials, outcome):
        for name, value in self._weight_attributes(potentials, outcome.coef).items():
            setattr(self, name, value)
        found = outcome.found
        self.duality_gap_ = outcome.gap
        self.loss_curve_ = found.loss_curve
        self.dual_curve_ = found.dual_curve
        self.checks_ = found.get("checks", np.arange(1, found.nit + 1))
        self.n_iter_ = found.nit
        self.inference_calls_curve_ = outcome.calls_curve
        self.n_inference_calls_ = outcome.n_inference_calls
