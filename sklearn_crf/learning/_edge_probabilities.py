"""Relaxation whose distributions over spanning trees are learned together with the weights: CRF recipe 2."""

from typing import Any

import numpy as np

from sklearn_crf._options import options
from sklearn_crf.learning._convergence import minimize_in_bulk, warn_unconverged
from sklearn_crf.learning._plan import FitPlan
from sklearn_crf.learning._relaxations import OneProblem
from sklearn_crf.learning._solvers import open_training
from sklearn_crf.learning._training import PenalisedRisk, TrainingRecord
from sklearn_crf.objectives import EdgeProbabilityRisk
from sklearn_crf.optimize import SHARE_LEFT, minimize_pqn


@options
class OptimalEdgeProbabilities(OneProblem):
    r"""Learning by the relaxation with an optimal distribution over spanning trees for each example.

    .. math::
        \min_{w, \nu} \; P(w) + C \sum_i \bigl( \tilde A(\theta_i(w), \nu_i) - \mathrm{score}(y_i) \bigr)

    This is one problem over the weights and the edge probabilities of all examples. It is jointly convex and solved by
    projected quasi-Newton steps. At the optimum, the bound equals the bound of :class:`TightenBound` with
    ``trees="optimal"`` if there are no factors; with factors, sets are added greedily and the bound is slightly larger.
    Edge probabilities stay in the spanning tree polytope because they are weighted means of trees. The tree that lowers
    the bound of an example most steeply is added to its mean repeatedly, until the gain is small. The bound is tighter
    than the bound of :class:`Relaxation`, but training is slower. The gain on large lattices is small. Predictions use
    marginals of covering trees. If labels are missing, the bound given the known labels also uses covering trees,
    because trees that minimise this bound would raise the objective. Source: Jancsary 2012, CRF recipe 2, Eq. 160-163.

    Parameters
    ----------
    entropy : {"trw"}, default="trw"
        Tree-reweighted entropy, as in :class:`Relaxation`.
    max_iter : int, default=2000
        Maximum number of iterations of the inference of one example.
    tol : float, default=None
        Tolerance of the inference. None is ten times the estimator's ``tol``, clipped to the range 1e-6 to 1e-3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import OptimalEdgeProbabilities
    >>> y = np.array([[[0, 0, 1], [0, 1, 1]], [[1, 1, 0], [1, 1, 0]]])
    >>> X = y[..., np.newaxis] + 0.5 * np.sin(np.arange(12)).reshape(2, 2, 3, 1)
    >>> crf = TRWCRF(learning=OptimalEdgeProbabilities(), pairwise="potts").fit(X, y)
    >>> crf.predict(X).shape
    (2, 2, 3)
    """

    name = "edge_probabilities"
    cyclic_nodes = 512

    def check(self, plan: FitPlan) -> None:
        super().check(plan)
        if not self._is_tree_reweighted:
            raise ValueError(
                "learning='edge_probabilities' needs entropy='trw', because it learns probabilities of spanning trees."
            )
        if not isinstance(self.trees, str) or self.trees != "covering":
            raise ValueError(
                f"learning='edge_probabilities' learns its trees: leave trees at its default, got {self.trees!r}."
            )
        if plan.solver.l1_ratio:
            raise ValueError(
                "learning='edge_probabilities' needs l1_ratio=0, because its solver does not support an L1 penalty."
            )

    def minimize(self, problem: PenalisedRisk, start: np.ndarray, plan: FitPlan, run: Any) -> TrainingRecord:
        """Minimise over field weights and tree weights by a projected solver; add the steepest trees in between."""
        run, record, n_weights = self._tighten(run), problem.record, len(start)
        observed = self._build_observed(problem.risk, self._make_precise_inference(plan.facts))
        risk = EdgeProbabilityRisk(problem.risk, **self._limits, observed=observed)
        coef, is_growing, is_stopped = risk.start(start), True, False

        with open_training(problem, run, self.remedy, self.name) as report:

            def callback(point):
                nonlocal is_stopped
                both.visit(point.x)
                is_stopped = report(point.x[:n_weights])
                return is_stopped

            while True:
                both = PenalisedRisk(risk, run.C, run.max_iter, run.edge_C, run.outer_gradient, n_weights)
                both.record, both.held_out = record, run.held_out
                if not record.n_iter:
                    both.visit(coef)
                n_left = max(run.max_iter + 1 - record.n_iter, 1)
                most = min(n_left, _STEPS_OF_A_TREE) if is_growing else n_left
                options = {"project": risk.project, "tol": run.tol, "most_left": SHARE_LEFT, "callback": callback}
                found = minimize_pqn(both.evaluate, coef, max_iter=most, **options)
                coef = found.x
                # If the solver made no step, the steepest tree has not changed since it was added.
                goes_on = found.success or (is_growing and found.nit > 0)
                if is_stopped or record.n_iter > run.max_iter or not goes_on:
                    break
                grown, with_new, gain = risk.grown(coef)
                is_growing = gain > _LEAST_GAIN * run.tol * both.n_nodes
                if is_growing:
                    risk, coef = grown, with_new
                elif found.success:
                    found = minimize_in_bulk(
                        minimize_pqn,
                        both,
                        found,
                        lambda: -1 if is_stopped else run.max_iter + 1 - record.n_iter,
                        **options,
                    )
                    coef = found.x
                    break
            record.coef, record.best_iter = coef[:n_weights], record.n_iter - 1
            record.stop_reason = found.message
            record.converged = bool(found.success and not is_growing and record.inference_converged)
            if not record.converged and not is_stopped:
                what = "Training" if record.inference_converged else "The inner problem"
                warn_unconverged(
                    f"{what} of learning='edge_probabilities' did not converge: increase max_iter, or use "
                    "learning='relaxation', which is quicker",
                    problem,
                )
        return record


# Maximum number of solver steps between two additions of trees.
# Minimum gain for which a tree is added, divided by the estimator's tolerance.
# Adding trees with smaller gains would need most of the steps, but change the bound by less than a thousandth.
_STEPS_OF_A_TREE, _LEAST_GAIN = 10, 3.0
