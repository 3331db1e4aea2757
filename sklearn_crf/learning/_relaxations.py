"""Learning by a convex relaxation of the log-partition: the CRF recipes of Jancsary's thesis."""

import copy
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf.graphs import SpanningTrees
from sklearn_crf.inference import (
    CountingNumbers,
    EdgeEntropyBP,
    Inference,
    NamedInference,
    NormProductBP,
    TightenBound,
    TRWMessagePassing,
    convergence_left_to_caller,
)
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.inference.messages._with_fallback import MarginalsWithFallback
from sklearn_crf.learning._convergence import alternate_with_trees, warn_unconverged
from sklearn_crf.learning._few_labels import keep_labelled_components
from sklearn_crf.learning._learning import Learning, SmoothLearning
from sklearn_crf.learning._plan import Facts, FitPlan
from sklearn_crf.learning._solvers import SGD, open_training, warn_of_inner_problem
from sklearn_crf.learning._training import PenalisedRisk, TrainingRecord
from sklearn_crf.objectives import (
    DualBlock,
    EmpiricalRisk,
    FreeLikelihood,
    JointRisk,
    Likelihood,
    Objective,
    ObservedLogPartition,
    RelaxedLikelihood,
    RiskLessObserved,
    chooses_trees,
    make_tangent,
    replace_likelihood,
)
from sklearn_crf.optimize import exponentiated_gradient

#: Names of the entropies of relaxations.
ENTROPIES = ("trw", "trivial", "factors")

_MAX_ITER = [Interval(Integral, 1, None, closed="left")]
_TOL = [Interval(Real, 0, None, closed="neither")]

#: Allowed values of ``trees`` in methods that divide scores among trees by variables of their own, and in methods that
#: compute the bound by inference. The latter also accept an array of edge probabilities, which contains no trees.
DIVIDED_TREES = [StrOptions({"covering", "uniform", "snakes", "optimal"}), SpanningTrees, list]
ALL_TREES = [StrOptions({"series_parallel"}), *DIVIDED_TREES, np.ndarray]


def check_trees(trees: Any, default: str, entropy: Any) -> None:
    """Raise ValueError if trees are given for an entropy that does not use trees."""
    is_default, is_of_trees = (isinstance(a, str) and a == b for a, b in ((trees, default), (entropy, "trw")))
    if not (is_default or is_of_trees):
        raise ValueError(f"trees={trees!r} needs entropy='trw', which is an entropy of trees.")


# Final tolerance of the inner problem: minimum; maximum; ratio to the estimator's ``tol``.
_LEAST_TOL, _LARGEST_TOL, _TOL_OF_ESTIMATOR = 1e-6, 1e-3, 10.0

# Tolerance of the inner problem at the start of training.
_FIRST_TOL = 3e-2


@options
class Relaxation(SmoothLearning):
    r"""Learning by a convex upper bound on the log-partition function, computed by message passing.

    .. math:: \tilde A(\theta) = \max_{\tau \in L} \langle \theta, \tau \rangle + \tilde H(\tau)

    The bound is computed by tree-reweighted messages. Messages are damped if they do not converge, and if damping does
    not help, the same bound is minimised over divisions of the scores among trees. With the tree-reweighted entropy,
    the bound is exact on forests. Source: Jancsary 2012, CRF recipe 1.

    Parameters
    ----------
    entropy : {"trw", "trivial", "factors"} or CountingNumbers, default="trw"
        Entropy of the relaxation. "trw" is the entropy of a distribution over spanning trees. "trivial" is the sum of
        the entropies of the edges, which is looser and quicker. "factors" is the sum of the entropies of edges and
        nodes, called trivial in the reference (Eq. 127, 158), which is looser still. Any other convex entropy is given
        by counting numbers for all nodes and for all factors, such as ``CountingNumbers(0.5, 1.0)``.
    trees : str, SpanningTrees, list or ndarray, default="auto"
        Trees of the tree-reweighted entropy. "auto" is "chains" on images and volumes and "covering" otherwise.
        "chains" are the lines along the axes, all with equal probability; with these trees, sweeps never raise the
        bound. "covering" is a small set of trees that together cover all edges. "uniform" gives all edges equal
        probabilities, although no distribution over trees does so if the graph has a bridge. "snakes" are four paths
        that run back and forth through a lattice. "series_parallel" uses subgraphs with cliques of three nodes in place
        of trees, for a tighter bound that takes more time; examples must not have factors. "optimal" are the trees of
        the tightest bound of each example; training alternates between trees and weights. Your own trees, as in
        :class:`TightenBound`, or an array with the probability of each edge, need examples with equal graphs. In
        examples with factors, sets of factors without cycles take the place of trees, chosen by "covering", "uniform"
        or "optimal".
    max_iter : int, default=2000
        Maximum number of iterations of the inner problem of one example, in training and if its marginals are used for
        prediction.
    tol : float, default=None
        Tolerance of the inner problem: change of messages, or difference between the marginals of trees. With None it
        decreases with the gradient, because bounds hold at any accuracy. The final tolerance is ten times the ``tol``
        of the estimator, clipped to the range 1e-6 to 1e-3, because errors of single messages cancel in the gradient.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import Relaxation
    >>> crf = TRWCRF(learning=Relaxation(entropy="trivial"))
    >>> crf.set_params(learning__tol=1e-4).learning
    Relaxation(entropy='trivial', tol=0.0001)
    """

    _parameter_constraints: ClassVar[dict] = {
        "entropy": [StrOptions(set(ENTROPIES)), CountingNumbers],
        "trees": [StrOptions({"auto", "chains"}), *ALL_TREES],
        "max_iter": _MAX_ITER,
        "tol": [*_TOL, None],
        **SmoothLearning._parameter_constraints,
    }
    name = "relaxation"
    takes_factors = True
    remedy = "increase the max_iter of the learning method, or decrease C"
    _final_tol = _LARGEST_TOL
    _follows_gradient: ClassVar[bool] = True
    entropy: str | CountingNumbers = "trw"
    trees: Any = "auto"
    max_iter: int = 2000
    tol: float | None = None

    def for_fit(self, inference: str | Inference, classes: Any, tol: Any) -> "Learning":
        super().for_fit(inference, classes, tol)
        outer = self.tolerance() if isinstance(tol, str) else tol
        self._final_tol = min(max(_TOL_OF_ESTIMATOR * outer, _LEAST_TOL), _LARGEST_TOL)
        return self

    @property
    def takes_segments(self) -> bool:  # type: ignore[override]
        """Whether the relaxation is exact on chains, and therefore defined for chains with segments."""
        return self._is_tree_reweighted and isinstance(self.trees, str) and not chooses_trees(self.trees)

    @property
    def _limits(self):
        return {"max_iter": self.max_iter, "tol": self._final_tol if self.tol is None else self.tol}

    def _tighten(self, run: Any) -> Any:
        """Return the training options, with a tolerance not above the tolerance of ``tol="auto"``.

        There are many shares of scores and trees, and each share changes the objective very little. A small last
        decrease of the objective therefore does not show that little decrease remains.
        """
        return replace(run, asked_tol=min(run.tol, self.tolerance()))

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        return NamedInference(self._marginals(facts), "mpm")

    def likelihood(self, plan: FitPlan) -> Objective:
        return self.bound(plan.facts)

    def bound(self, facts: Facts) -> Objective:
        """Return the relaxed likelihood for examples with the given properties.

        Parameters
        ----------
        facts : Facts

        Returns
        -------
        RelaxedLikelihood
        """
        if facts.have_segments:
            return Likelihood(SegmentInference())
        inference = self._make_training_inference(facts)
        if self.tol is not None or not self._follows_gradient:
            return RelaxedLikelihood(inference)
        final_tol, inference.tol = inference.tol, _FIRST_TOL
        return RelaxedLikelihood(inference, final_tol)

    def minimize(self, problem: PenalisedRisk, start: np.ndarray, plan: FitPlan, run: Any) -> TrainingRecord:
        def train(coef):
            self._minimize_for_trees(problem, start if coef is None else np.array(coef), plan, run)
            record = problem.record
            goes_on = chooses_trees(self.trees) and record.converged and record.n_iter < run.max_iter
            return record.coef if goes_on else None

        def value(coef):
            # Evaluate again, because the last value at these weights may belong to other trees.
            problem.evaluate(coef)
            return problem.value(coef)

        is_done, record = alternate_with_trees(train, problem.risk, value, run.tol), problem.record
        if chooses_trees(self.trees) and record.converged and not is_done:
            record.converged, record.stop_reason = False, "STOP: max_iter reached while trees were chosen"
            warn_unconverged("Trees were still being chosen after max_iter iterations: increase max_iter", problem)
        return record

    def _minimize_for_trees(self, problem, start, plan, run):
        """Minimise over the weights with fixed trees; store the result in the record of the problem."""
        super().minimize(problem, start, plan, run)

    def _make_training_inference(self, facts):
        """Return the inference that computes marginals in training; it keeps the trees fixed."""
        inference = self._marginals(facts)
        return inference.set_params(outer_iter=0) if chooses_trees(self.trees) else inference

    def _marginals(self, facts):
        """Return the inference that computes marginals in prediction."""
        if not self._is_tree_reweighted:
            if facts.have_factors or not isinstance(self.entropy, str):
                return NormProductBP(self.entropy, **self._limits)
            return EdgeEntropyBP(entropy=self.entropy, **self._limits)
        return self._make_tree_reweighted(facts)

    @property
    def _is_tree_reweighted(self):
        return isinstance(self.entropy, str) and self.entropy == "trw"

    def _make_tree_reweighted(self, facts):
        trees = self.trees
        if isinstance(trees, str) and trees == "auto":
            trees = "covering" if facts.have_factors or facts.lattice_ndim is None else "chains"
        is_array = isinstance(trees, np.ndarray)
        if not is_array and (not isinstance(trees, str) or trees in ("optimal", "series_parallel")):
            return TightenBound(trees, start_sweeps=self.max_iter, **self._limits)
        messages = TRWMessagePassing(trees, **self._limits)
        if not is_array and trees == "chains":
            # If trees are chains, sweeps in the order of the chains never raise the bound, so no fallback is needed.
            return messages
        if is_array or trees == "uniform" or facts.have_factors:
            # No trees are known. If the graph has a bridge, no trees give all edges equal probabilities. If factors
            # join pairs of nodes, messages use trees of edges, and TightenBound uses sets of factors.
            return MarginalsWithFallback(messages, NormProductBP("trw", edge_probabilities=trees, **self._limits))
        return MarginalsWithFallback(messages, TightenBound(trees, **self._limits))

    @property
    def cyclic_nodes(self) -> int:  # type: ignore[override]
        return 1024 if self._is_tree_reweighted and self._joins_graphs else 1

    @property
    def _joins_graphs(self):
        """Return whether a graph gets the same trees whichever graphs share its batch."""
        return isinstance(self.trees, str) and self.trees not in ("snakes", "optimal")

    @property
    def factor_nodes(self) -> int:  # type: ignore[override]
        return 1 if self._is_tree_reweighted else 512

    def check(self, plan: FitPlan) -> None:
        super().check(plan)
        check_trees(self.trees, type(self).trees, self.entropy)
        if isinstance(self.entropy, CountingNumbers) and any(np.ndim(numbers) for numbers in self.entropy):
            raise ValueError(
                "entropy=CountingNumbers(...) must have one number for all nodes and one for all factors, because "
                "the graphs of examples may differ. For separate numbers on one graph, use "
                "learning=RelaxedLikelihood(NormProductBP(counting_numbers=...))."
            )


@options
class Reparameterization(Relaxation):
    """Learning by the relaxation, computed as the least upper bound over all divisions of the scores among trees.

    Source: Jancsary 2012, CRF recipe 3.

    Parameters
    ----------
    trees : {"covering", "uniform", "snakes", "series_parallel", "optimal"}, SpanningTrees or list, default="covering"
        Trees of the tree-reweighted entropy, as in :class:`Relaxation`.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import Reparameterization
    >>> TRWCRF(learning=Reparameterization(entropy="trivial")).learning.entropy
    'trivial'
    """

    _parameter_constraints: ClassVar[dict] = {**Relaxation._parameter_constraints, "trees": ALL_TREES[:-1]}
    name = "reparameterization"
    cyclic_nodes = 1
    trees: Any = "covering"

    def _make_tree_reweighted(self, facts):
        return TightenBound(self.trees, start_sweeps=self._limits["max_iter"], **self._limits)


@options
class SpanningTreesTraining(Reparameterization):
    """Learning by the mean likelihood of spanning trees, with scores divided evenly among the trees.

    This is the bound of :class:`Reparameterization` before it is minimised over divisions of the scores. Training
    therefore has no inner problem, and the bound is looser.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning._relaxations import SpanningTreesTraining
    >>> TRWCRF(learning=SpanningTreesTraining(trees="snakes")).learning.trees
    'snakes'
    """

    _parameter_constraints: ClassVar[dict] = {**Relaxation._parameter_constraints, "trees": DIVIDED_TREES}
    name = "spanning_trees"

    @property
    def _limits(self):
        return super()._limits | {"max_iter": 0}

    def check(self, plan: FitPlan) -> None:
        super().check(plan)
        if chooses_trees(self.trees):
            raise ValueError(
                "trees='optimal' needs a bound that is minimised over divisions of the scores, because only this bound "
                "is convex in the probabilities of trees: use learning='reparameterization'."
            )


@options
class OneProblem(Relaxation):
    """Base of the relaxations that optimise the weights and the variables of the inner problem together.

    Parameters
    ----------
    trees : {"covering", "uniform", "snakes", "optimal"}, SpanningTrees or list, default="covering"
        Trees of the tree-reweighted entropy, as in :class:`Relaxation`.
    """

    _parameter_constraints: ClassVar[dict] = {**Relaxation._parameter_constraints, "trees": DIVIDED_TREES}
    takes_segments = False  # type: ignore[override]
    _follows_gradient = False
    trees: Any = "covering"

    def check_shards(self, solver: Any) -> None:
        raise ValueError(
            f"learning={self.name!r} processes single examples in memory, which Shards do not support: use "
            "'relaxation' or 'reparameterization'."
        )

    def check(self, plan: FitPlan) -> None:
        super().check(plan)
        if isinstance(plan.solver, SGD):
            raise ValueError(f"learning={self.name!r} needs solver='lbfgs', because it optimises further variables.")

    def restricted(self, risk: EmpiricalRisk) -> EmpiricalRisk:
        risk = super().restricted(risk)
        return keep_labelled_components(risk) if risk.has_unlabelled else risk

    def _make_precise_inference(self, facts: Facts) -> Inference:
        """Return the relaxation's inference, with a tolerance that suffices for all steps of the outer problem."""
        inference = self._make_training_inference(facts)
        inference.tol = min(inference.tol, _LEAST_TOL)
        return inference

    @staticmethod
    def _build_observed(risk: EmpiricalRisk, inference: Inference) -> Any:
        """Return a function that evaluates relaxed log-partitions given known labels; None if no label is missing."""
        batches = [batch for batch in risk.batches if np.any(batch.labels < 0)]
        objective = replace_likelihood(risk.objective, ObservedLogPartition(inference))
        found = EmpiricalRisk(objective, risk.potentials, batches, n_jobs=risk.n_jobs, seed=risk.seed)
        return found.value_grad if batches else None


@options
class JointRelaxation(OneProblem):
    """Learning by the relaxation, without an inner problem: weights and divisions of scores are optimised together.

    Source: Jancsary 2012, CRF recipe 4. ``max_iter`` and ``tol`` only limit the computation of marginals in prediction.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import JointRelaxation
    >>> TRWCRF(learning=JointRelaxation(entropy="trivial")).learning.entropy
    'trivial'
    """

    name = "joint_relaxation"

    @property
    def cyclic_nodes(self) -> int:  # type: ignore[override]
        return 512 if self._joins_graphs else 1

    def check(self, plan: FitPlan) -> None:
        super().check(plan)
        if not isinstance(self.entropy, str):
            raise ValueError(
                f"learning='joint_relaxation' needs entropy='trw', 'trivial' or 'factors', got {self.entropy!r}: use "
                "learning='relaxation'."
            )

    def _minimize_for_trees(self, problem, start, plan, run):
        observed, n_weights = self._build_observed(problem.risk, self._make_precise_inference(plan.facts)), len(start)
        joint = JointRisk(problem.risk, self.entropy, self.trees, observed)
        both = PenalisedRisk(joint, run.C, run.max_iter, run.edge_C, run.outer_gradient, n_weights)
        both.record = record = problem.record
        weights_only = replace(self._tighten(run), on_iteration=lambda coef: run.on_iteration(coef[:n_weights]))
        plan.solver.train(both, np.concatenate((start, joint.shares)), weights_only, self.remedy)
        record.coef = record.coef[:n_weights]


@options
class DualRelaxation(OneProblem):
    """Learning by the dual of the relaxation, with exponentiated gradient steps on the marginals of each example.

    Source: Jancsary 2012, CRF recipe 5. Every weight has to be penalised, which requires ``fit_intercept=False``.

    Parameters
    ----------
    trees : str, SpanningTrees, list or ndarray, default="covering"
        Trees of the tree-reweighted entropy, as in :class:`Relaxation`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import DualRelaxation
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> options = {"edge_features": "constant", "fit_intercept": False}
    >>> TRWCRF(learning=DualRelaxation(), **options).fit(X, y).coef_.shape
    (1, 1)
    """

    _parameter_constraints: ClassVar[dict] = {**Relaxation._parameter_constraints, "trees": ALL_TREES}
    name = "dual_relaxation"
    start_with_cycles = "zeros"

    def packing(self, plan: FitPlan, encoded: Any) -> dict[str, int]:
        # Each step updates the marginals of one example.
        return {"max_nodes": 1}

    def check(self, plan: FitPlan) -> None:
        super().check(plan)
        if plan.layout.fit_intercept or plan.solver.l1_ratio:
            raise ValueError(
                "learning='dual_relaxation' needs fit_intercept=False and l1_ratio=0, because it penalises every "
                "weight by w'w / 2: add a feature that is one everywhere in place of the intercepts."
            )

    def _minimize_for_trees(self, problem, start, plan, run):
        precise = self._make_precise_inference(plan.facts)
        observed = self._build_observed(problem.risk, precise)
        record = problem.record
        if observed is None:
            _ascend_dual(problem, start, replace(run, max_iter=run.max_iter - record.n_iter), self.remedy)
            return
        free = copy.copy(problem.risk)
        free.objective = replace_likelihood(free.objective, FreeLikelihood(precise))
        # The log-partition given the known labels is convex, so its tangent is a lower bound on this log-partition.
        # With the tangent in its place, an upper bound replaces the objective; both are equal at the tangent point.
        # If a round ends at the weights where it started, these weights are a stationary point of the objective.
        n_before = -1
        while record.n_iter < run.max_iter:
            is_first, n_before, record.converged = n_before < 0, record.n_iter, False
            risk = RiskLessObserved(free, make_tangent(observed, start))
            risk.carried = list(problem.risk.carried)
            again = PenalisedRisk(risk, run.C, run.max_iter, run.edge_C, run.outer_gradient)
            again.record = record
            left = replace(run, max_iter=run.max_iter - n_before)
            start = _ascend_dual(again, start, left, self.remedy).coef
            if not record.converged or (record.n_iter == n_before + 1 and not is_first):
                return
        record.converged = False
        record.stop_reason = "STOP: max_iter reached while completed labels still changed the weights"
        warn_unconverged("Completing missing labels still changed the weights: increase max_iter", problem)


def _ascend_dual(problem, start, run, remedy):
    """Make exponentiated gradient steps on the marginals of one example at a time; return the training record."""
    with open_training(problem, run, remedy, "dual_relaxation") as report:
        risk, record = problem.risk, problem.record
        # The dual problem assumes a uniform penalty, so the weights are rescaled.
        scale = 1.0 / np.sqrt(problem.penalty)
        blocks = DualBlock.of_risk(risk, run.C, start / scale, scale)

        def primal(x):
            value, gradient = problem.evaluate(scale * x)
            return value, scale * gradient

        def callback(point):
            problem.visit(scale * point.x)
            return report(scale * point.x)

        with convergence_left_to_caller():
            found = exponentiated_gradient(
                blocks,
                primal,
                temperature=risk.objective.temperature,
                max_iter=run.max_iter,
                tol=run.tol,
                random_state=run.rng,
                callback=callback,
            )
        record.best_iter, record.stop_reason = record.n_iter - 1, found.message
        record.converged = bool(found.success and record.inference_converged and not record.stopped)
        if not record.inference_converged:
            warn_of_inner_problem(problem)
        elif not found.success:
            warn_unconverged(
                "Exponentiated gradient steps in the dual did not converge: increase max_iter, or decrease C", problem
            )
        record.coef = scale * found.x
    return problem.record
