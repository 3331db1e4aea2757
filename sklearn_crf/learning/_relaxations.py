"""Formulations of TRWCRF by a convex relaxation of log Z: recipes of the thesis."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._threads import out_of_turn
from sklearn_crf.inference import (
    CountingNumbers,
    EdgeEntropyBP,
    Inference,
    NormProductBP,
    TightenBound,
    TRWMessagePassing,
    convergence_left_to_caller,
)
from sklearn_crf.learning._convergence import minimize_in_bulk, warn_unconverged
from sklearn_crf.learning._formulation import Formulation
from sklearn_crf.learning._solvers import REMEDY, SGD, DualAscent, Solver
from sklearn_crf.learning._training import PenalisedRisk, have_cycles
from sklearn_crf.objectives import EdgeProbabilityRisk, JointRisk, RelaxedLikelihood
from sklearn_crf.optimize import minimize_pqn

#: Entropies of relaxations.
ENTROPIES = ("trw", "trivial", "factors")

_MAX_ITER = [Interval(Integral, 1, None, closed="left")]
_TOL = [Interval(Real, 0, None, closed="neither")]

# Tolerances at which an inner problem that follows the outer one ends, of the tolerance of that.
_LEAST_TOL, _LARGEST_TOL, _TOL_OF_ESTIMATOR = 1e-6, 1e-3, 10.0

# And where it begins.
_FIRST_TOL = 3e-2


# Share of the old messages where those without damping oscillate: a little is enough, and more takes more sweeps.
_DAMPING = 0.2


class MarginalsWithFallback(Inference):
    """Tree-reweighted messages, damped ones where these do not settle, another algorithm where those do not either."""

    # messages: undamped, as oscillating ones are damped here; fallback: of the same relaxation

    tasks = frozenset({"marginals"})

    def __init__(self, messages: TRWMessagePassing, fallback: Inference):
        self.messages = messages
        self.fallback = fallback
        # Messages that oscillate would go on to the last sweep.
        self._quickly = clone(messages).set_params(max_iter=-(-messages.max_iter // 4))
        self._method = type(messages).__name__
        self._damped = clone(messages).set_params(damping=_DAMPING)

    @property
    def tol(self):
        return self.messages.tol

    @tol.setter
    def tol(self, tol):
        for inference in (self.messages, self._quickly, self._damped, self.fallback):
            inference.tol = tol

    @property
    def takes_turns(self):
        return self._quickly.takes_turns

    @property
    def joined_nodes(self):
        return self._quickly.joined_nodes

    def _settled_nodes(self, model, n_threads):
        return self._quickly._settled_nodes(model, n_threads)

    def _marginals(self, model, *, init=None, n_threads=1):
        # States of both algorithms, and whether the messages are damped: what has needed it once is spared the sweeps
        # without.
        of_messages, of_fallback, is_damped = (None, None, False) if init is None else init
        with convergence_left_to_caller():
            if not is_damped:
                # The model is checked, and so are the options that all of these share.
                found = self._quickly._marginals(model, init=of_messages, n_threads=n_threads)
                if found.converged:
                    return found._replace(state=(found.state, of_fallback, False), method=self._method)
                # Messages that diverged are not a useful start.
                of_messages = None
            found = self._damped.marginals_for_learning(model, init=of_messages, n_threads=n_threads)
            if found.converged:
                return found._replace(state=(found.state, of_fallback, True))
        with out_of_turn():
            found = self.fallback.marginals_for_learning(model, init=of_fallback, n_threads=n_threads)
        return found._replace(state=(None, found.state, True))


class Relaxation(Formulation):
    r"""A convex upper bound on the log-partition, by messages.

    .. math:: \tilde A(\theta) = \max_{\tau \in L} \langle \theta, \tau \rangle + \tilde H(\tau)

    Tree-reweighted messages, damped where they do not settle, and the same bound over shares of trees where that does
    not help. On forests it is exact for the tree-reweighted entropy. Source: Jancsary 2012, CRF recipe 1.

    Parameters
    ----------
    entropy : {"trw", "trivial", "factors"} or CountingNumbers, default="trw"
        Of the relaxation: of a distribution over spanning trees; the sum of those of the edges, looser and quicker; the
        sum of those of edges and nodes, the trivial one of the reference (Eq. 127, 158), looser still; or any convex
        one, by numbers for all nodes and for all factors, such as ``CountingNumbers(0.5, 1.0)``.
    max_iter : int, default=2000
        Most iterations of the inner problem, for one example, in training and where the formulation's own marginals
        predict.
    tol : float, default=None
        Its tolerance: change of messages, difference between trees' marginals. With None it falls with the gradient,
        since bounds hold at any accuracy, to ten times the ``tol`` of the estimator, kept within 1e-6 and 1e-3: errors
        of single messages cancel in the gradient.
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss, as of :class:`Formulation`.
    temperature : float, default=1.0
        Of the distribution, as of :class:`Formulation`.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import Relaxation
    >>> crf = TRWCRF(formulation=Relaxation(entropy="trivial"))
    >>> crf.set_params(formulation__tol=1e-4).formulation
    Relaxation(entropy='trivial', tol=0.0001)
    """

    _parameter_constraints: ClassVar[dict] = {
        "entropy": [StrOptions(set(ENTROPIES)), CountingNumbers],
        "max_iter": _MAX_ITER,
        "tol": [*_TOL, None],
        **Formulation._parameter_constraints,
    }
    name = "relaxation"
    takes_factors = True
    init_with_cycles = "independent"
    _final_tol: float = _LARGEST_TOL
    _follows_gradient: ClassVar[bool] = True
    remedy = "increase the max_iter of the formulation, or decrease C"

    def __init__(
        self, entropy: str = "trw", max_iter: int = 2000, tol: float | None = None, cost=None, temperature: float = 1.0
    ):
        super().__init__(cost, temperature)
        self.entropy = entropy
        self.max_iter = max_iter
        self.tol = tol

    def for_tolerance(self, tol):
        found = clone(self)
        found._final_tol = min(max(_TOL_OF_ESTIMATOR * tol, _LEAST_TOL), _LARGEST_TOL)
        return found

    @property
    def _limits(self):
        return {"max_iter": self.max_iter, "tol": self._final_tol if self.tol is None else self.tol}

    def likelihood(self, has_cycles, has_factors):
        inference = self.inference(has_cycles, has_factors)
        if self.tol is not None or not self._follows_gradient:
            return RelaxedLikelihood(inference)
        final_tol = inference.tol
        inference.tol = _FIRST_TOL
        return RelaxedLikelihood(inference, final_tol)

    def inference(self, has_cycles, has_factors):
        if has_factors:
            return self._factor_inference(has_cycles)
        if self._is_by("trw"):
            return self._tree_reweighted()
        if isinstance(self.entropy, str):
            return EdgeEntropyBP(entropy=self.entropy, **self._limits)
        return NormProductBP(self.entropy, **self._limits)

    def _is_by(self, entropy):
        return isinstance(self.entropy, str) and self.entropy == entropy

    def _tree_reweighted(self):
        return MarginalsWithFallback(TRWMessagePassing("covering", **self._limits), TightenBound(**self._limits))

    def _factor_inference(self, has_cycles):
        if not self._is_by("trw"):
            return NormProductBP(self.entropy, **self._limits)
        if not has_cycles:
            # On forests the counting numbers of trees are those of Bethe, for factors of any arity.
            return NormProductBP("bethe", **self._limits)
        return NormProductBP("trw", edge_probabilities="covering", **self._limits)

    def cyclic_nodes(self):
        return 1024 if self._is_by("trw") else 1

    def factor_nodes(self):
        return 1 if self._is_by("trw") else 512

    def check(self, solver, fit_intercept):
        super().check(solver, fit_intercept)
        if isinstance(self.entropy, CountingNumbers) and any(np.ndim(numbers) for numbers in self.entropy):
            raise ValueError(
                "entropy=CountingNumbers(...) must have one number for all nodes and one for all factors, for examples "
                "differ in their graphs: those of one graph go to "
                "formulation=RelaxedLikelihood(NormProductBP(counting_numbers=...))."
            )

    def check_batches(self, batches):
        super().check_batches(batches)
        if not self._is_by("trw") or not have_cycles(batches):
            return
        for batch in batches:
            for name, factors in batch.example.factors.items():
                if len(factors.scope) and factors.scope.shape[1] > 2:
                    raise ValueError(
                        f"entropy='trw' is about spanning trees of edges, but X[{batch.members[0]}] has factors of "
                        f"type {name!r} with {factors.scope.shape[1]} nodes: use Relaxation(entropy='trivial')."
                    )


class Reparameterization(Relaxation):
    """The relaxation as the least bound over all ways to share the scores out among trees.

    Source: Jancsary 2012, CRF recipe 3.

    Parameters
    ----------
    entropy : {"trw", "trivial"}, default="trw"
        As of :class:`Relaxation`.
    max_iter : int, default=2000
        Most iterations of the inference of one example.
    tol : float, default=None
        Its tolerance, as of :class:`Relaxation`.
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss, as of :class:`Exact`.
    temperature : float, default=1.0
        Of the distribution, as of :class:`Exact`.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import Reparameterization
    >>> TRWCRF(formulation=Reparameterization(entropy="trivial")).get_params()[
    ...     "formulation__entropy"
    ... ]
    'trivial'
    """

    name = "reparameterization"
    takes_factors = False

    def _tree_reweighted(self):
        return TightenBound(**self._limits)

    def cyclic_nodes(self):
        return 1


class OptimalEdgeProbabilities(Relaxation):
    r"""The relaxation with the distributions over spanning trees that give the least bound, one for each example.

    .. math::
        \min_{w, \nu} \; P(w) + C \sum_i \bigl( \tilde A(\theta_i(w), \nu_i) - \mathrm{score}(y_i) \bigr)

    One problem over the weights and the edge probabilities of all examples, convex in both together, by projected
    quasi-Newton steps; at its optimum the bound is that of :class:`TightenBound` with ``trees="optimal"``. Edge
    probabilities stay in the spanning tree polytope as means of trees: the steepest tree of every example joins them
    until none is much steeper. Tighter than :class:`Relaxation`, and slower; large lattices gain little. Predictions
    are by marginals of covering trees, as of :class:`Relaxation`. Source: Jancsary 2012, CRF recipe 2, Eq. 160-163.

    Parameters
    ----------
    entropy : {"trw"}, default="trw"
        The tree-reweighted one, as of :class:`Relaxation`.
    max_iter : int, default=2000
        Most iterations of the inference of one example.
    tol : float, default=None
        Its tolerance; with None ten times the ``tol`` of the estimator, kept within 1e-6 and 1e-3.
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss, as of :class:`Exact`.
    temperature : float, default=1.0
        Of the distribution, as of :class:`Exact`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import OptimalEdgeProbabilities
    >>> y = np.array([[[0, 0, 1], [0, 1, 1]], [[1, 1, 0], [1, 1, 0]]])
    >>> X = y[..., np.newaxis] + 0.5 * np.sin(np.arange(12)).reshape(2, 2, 3, 1)
    >>> crf = TRWCRF(formulation=OptimalEdgeProbabilities(), pairwise="potts").fit(X, y)
    >>> crf.predict(X).shape
    (2, 2, 3)
    """

    name = "edge_probabilities"
    takes_factors = False
    _follows_gradient = False
    needs_labels = True

    def cyclic_nodes(self):
        return 512

    def check(self, solver, fit_intercept):
        super().check(solver, fit_intercept)
        _require_all_examples(self.name, solver)
        if not self._is_by("trw"):
            raise ValueError("formulation='edge_probabilities' is about spanning trees: it needs entropy='trw'.")
        if solver.l1_ratio:
            raise ValueError("formulation='edge_probabilities' needs l1_ratio=0: its solver has no L1 penalty.")

    def train(self, problem, start, run, solver):
        return _TreesByTurns(self._limits).train(problem, start, run, self.remedy)


# Steps between two trees of an example, and the gain of a further tree, in tolerances of the estimator, from which on
# none is added: the last trees change the bound by less than a thousandth and take most of the steps.
_STEPS_OF_A_TREE, _LEAST_GAIN = 10, 3.0


class _TreesByTurns(Solver):
    """Projected quasi-Newton steps in weights and the weights of some trees, to which the steepest trees are added."""

    def __init__(self, limits):
        self.limits = limits

    def train(self, problem, start, run, remedy=REMEDY):
        record, n_weights = problem.record, len(start)
        risk = EdgeProbabilityRisk(problem.risk, **self.limits)
        coef, is_growing, is_stopped = risk.start(start), True, False

        with self._training(problem, run, remedy) as report:

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
                options = {"project": risk.project, "tol": run.tol, "callback": callback}
                found = minimize_pqn(both.evaluate, coef, max_iter=most, **options)
                coef = found.x
                # Without a step another tree would be the same one again.
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
                    f"{what} of formulation='edge_probabilities' did not converge: increase max_iter, or take "
                    "formulation='relaxation', which is quicker",
                    problem,
                )
        return record


class JointRelaxation(Relaxation):
    """The relaxation as one problem over weights and shares of scores, without inner problem.

    Source: Jancsary 2012, CRF recipe 4.; ``max_iter`` and ``tol`` are those of
    its marginals at prediction.

    Parameters
    ----------
    entropy : {"trw", "trivial", "factors"}, default="trw"
        As of :class:`Relaxation`.
    max_iter : int, default=2000
        Most iterations of the inference of one example.
    tol : float, default=None
        Its tolerance, as of :class:`Relaxation`.
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss, as of :class:`Exact`.
    temperature : float, default=1.0
        Of the distribution, as of :class:`Exact`.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import JointRelaxation
    >>> TRWCRF(formulation=JointRelaxation(entropy="trivial")).get_params()[
    ...     "formulation__entropy"
    ... ]
    'trivial'
    """

    name = "joint"
    takes_factors = False
    _follows_gradient = False
    needs_labels = True

    def cyclic_nodes(self):
        return 512

    def check(self, solver, fit_intercept):
        super().check(solver, fit_intercept)
        _require_all_examples(self.name, solver)
        if not isinstance(self.entropy, str):
            raise ValueError(
                f"formulation='joint' needs entropy='trw', 'trivial' or 'factors', got {self.entropy!r}: take "
                "'relaxation'."
            )

    def train(self, problem, start, run, solver):
        joint, n_weights = JointRisk(problem.risk, self.entropy), len(start)
        both = PenalisedRisk(joint, run.C, run.max_iter, run.edge_C, run.outer_gradient, n_weights)
        start = np.concatenate((start, np.zeros(joint.potentials.n_coef - n_weights)))
        weights_only = run._replace(on_iteration=lambda coef: run.on_iteration(coef[:n_weights]))
        record = solver.train(both, start, weights_only, self.remedy)
        record.coef = record.coef[:n_weights]
        return record


class DualRelaxation(Relaxation):
    """The relaxation in the dual, by exponentiated gradient steps in the marginals of one example after the other.

    Source: Jancsary 2012, CRF recipe 5. Every weight is penalised:
    ``fit_intercept=False``.

    Parameters
    ----------
    entropy : {"trw", "trivial"}, default="trw"
        As of :class:`Relaxation`.
    max_iter : int, default=2000
        Most iterations of the inference of one example.
    tol : float, default=None
        Its tolerance, as of :class:`Relaxation`.
    cost : {"hamming"}, array-like of shape (n_classes, n_classes) or None, default=None
        Cost of errors in the loss, as of :class:`Exact`.
    temperature : float, default=1.0
        Of the distribution, as of :class:`Exact`.

    Examples
    --------
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import DualRelaxation
    >>> TRWCRF(formulation=DualRelaxation(), fit_intercept=False).get_params()[
    ...     "formulation__entropy"
    ... ]
    'trw'
    """

    name = "dual"
    takes_factors = False
    init_with_cycles = "zeros"
    _follows_gradient = False
    needs_labels = True

    def cyclic_nodes(self):
        return 1

    def check(self, solver, fit_intercept):
        super().check(solver, fit_intercept)
        _require_all_examples(self.name, solver)
        if fit_intercept or solver.l1_ratio:
            raise ValueError(
                "formulation='dual' needs fit_intercept=False and l1_ratio=0, since every weight has the penalty "
                "w'w / 2 there: a feature that is one everywhere stands in for the intercepts."
            )

    def train(self, problem, start, run, solver):
        return DualAscent().train(problem, start, run, self.remedy)


def _require_all_examples(name, solver):
    if isinstance(solver, SGD):
        raise ValueError(f"formulation={name!r} needs solver='lbfgs': it has unknowns of its own.")
