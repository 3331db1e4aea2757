"""Parts of training that solvers share: node weights, penalised risk, initial weights and training record."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from sklearn_crf._numbers import as_reals
from sklearn_crf.encoding import Batch, count_examples, make_trusted_example
from sklearn_crf.graphs import build_trusted_graph
from sklearn_crf.inference import LoopyBP
from sklearn_crf.learning._convergence import minimize_in_bulk
from sklearn_crf.learning._few_labels import subgraph
from sklearn_crf.objectives import Likelihood, Piecewise, Pseudolikelihood
from sklearn_crf.optimize import compute_least_subgradient, minimize_lbfgs, scaling_by_differences
from sklearn_crf.potentials import FeatureScaling, SegmentPotentials


def check_node_weights(node_weight, encoded, most):
    """Check node weights and return one float64 array for each example, or None if there are no node weights."""
    # node_weight: list of arrays, each with the shape of an example's labels, or None; most: maximum allowed weight
    if node_weight is None:
        return None
    n_examples = count_examples(node_weight, "node_weight")
    if n_examples != encoded.n_examples:
        raise ValueError(f"node_weight holds {n_examples} arrays, but X has {encoded.n_examples} examples.")
    weights = [as_reals(part, f"node_weight[{i}]", np.float64) for i, part in enumerate(node_weight)]
    for i, part in enumerate(weights):
        shape = encoded.label_shape(i)
        if part.shape != shape:
            raise ValueError(f"node_weight[{i}] has shape {part.shape}, but the lattice of X[{i}] has shape {shape}.")
        if not np.all((part >= 0) & (part <= most)):
            raise ValueError(f"node_weight[{i}] must hold numbers from 0 to {most:g}.")
    if not any(part.any() for part in weights):
        raise ValueError("node_weight is 0 for every node: at least one node needs a positive weight.")
    return [np.ravel(part) for part in weights]


def require_associative(batches):
    """Raise ValueError if an edge feature is negative, because edges might then not prefer equal states."""
    for batch in batches:
        edge_features = batch.example.edge_features
        if edge_features is not None and np.any(edge_features < 0):
            edge, feature = np.argwhere(edge_features < 0)[0]
            i = batch.members[np.searchsorted(batch.node_ptr, batch.example.edges[edge, 0], side="right") - 1]
            raise ValueError(
                f"pairwise='associative' needs edge features that are not negative, but X[{i}] has an edge with "
                f"feature {feature} = {edge_features[edge, feature]:g}."
            )


# If the record has at most this many numbers, it stores the weights of all iterations.
_RECORD_LIMIT = 20_000


@dataclass(eq=False)
class TrainingRecord:
    """Record of one training: its result, and lists with one entry for each iterate."""

    path: str  # Name of the algorithm that evaluates the risk
    loss: list = field(default_factory=list)  # Values of the penalised objective
    errors: list = field(default_factory=list)  # Weighted numbers of wrong labels
    gradient_norm: list = field(default_factory=list)  # Norms of the gradient per node
    n_nonsubmodular: list = field(default_factory=list)  # Numbers of edges that are not submodular
    coef_path: list = field(default_factory=list)  # Weights (n_coef,) of each iterate, within _RECORD_LIMIT
    gradient_path: list = field(default_factory=list)  # Gradient (n_coef,) of each iterate, within _RECORD_LIMIT
    validation_scores: list = field(default_factory=list)  # Scores on held-out examples, if there are any
    inference_converged: bool = True  # Whether inference converged at the latest iterate
    latest: np.ndarray | None = None  # (n_coef,) or None: the latest weights
    coef: np.ndarray | None = None  # (n_coef,) or None: the chosen weights
    voters: np.ndarray | None = None  # (n_voters, n_coef) or None: weight vectors that vote at prediction
    stopped: bool = False  # Whether a callback or the score on held-out examples asked to stop
    interrupted: BaseException | None = None  # Exception to raise after the weights are stored
    converged: bool = False  # Whether training and its inference converged
    stop_reason: str = ""  # Reason why training ended
    best_iter: int | None = None  # Index of the chosen iterate; None for a mean or several voters
    gap: float = np.nan  # Upper bound on the suboptimality of the objective; NaN if unknown

    def choose(self, selection: "Selection") -> None:
        """Store the weights that a :class:`Selection` has chosen."""
        self.coef, self.voters = selection.chosen()
        self.best_iter = selection.best_iter

    @property
    def n_iter(self) -> int:
        """Number of recorded iterates."""
        return len(self.loss)

    def fitted(self) -> dict[str, Any]:
        """Return the fitted attributes that describe the training."""
        return {
            "loss_curve_": self.curve("loss"),
            "gradient_norm_curve_": self.curve("gradient_norm"),
            "error_curve_": self.curve("errors"),
            "nonsubmodular_curve_": self.curve("n_nonsubmodular"),
            "n_iter_": self.n_iter,
            "converged_": self.converged,
            "stop_reason_": self.stop_reason,
            "best_iter_": self.best_iter,
            "training_path_": self.path,
            "duality_gap_": self.gap,
            "voters_": self.voters,
            "validation_scores_": np.array(self.validation_scores),
            "coef_path_": np.array(self.coef_path),
            "gradient_path_": np.array(self.gradient_path),
        }

    def summary(self) -> str:
        """Return the latest entry as text for a progress bar."""
        parts = [f"gradient {self.gradient_norm[-1]:.3g}"]
        if self.loss[-1] is not None:
            parts.insert(0, f"loss {self.loss[-1]:.6g}")
        if self.errors[-1] is not None:
            parts.append(f"errors {self.errors[-1]:g}")
        return ", ".join(parts)

    def curve(self, name: str) -> np.ndarray:
        """Return one of the lists of the record as an array, with NaN for missing entries."""
        return np.array([np.nan if item is None else item for item in getattr(self, name)], dtype=np.float64)


def restore_units(record: Any, scaling: FeatureScaling, potentials: Any) -> None:
    """Convert the weights of a record from scaled features to the features of X, in place."""
    if scaling.is_identity:
        return
    record.coef = scaling.outer(potentials, record.coef)
    if record.voters is not None:
        record.voters = np.array([scaling.outer(potentials, coef) for coef in record.voters])
    record.coef_path = [scaling.outer(potentials, coef) for coef in record.coef_path]


def compute_penalty_factors(potentials, C: float, edge_C: float | None) -> np.ndarray:
    """Return the factor of each weight in the penalty: 0 for intercepts, 1 for nodes, C / edge_C for other weights."""
    # returns (n_coef,) float64
    factors = potentials.penalty
    if edge_C is not None:
        factors[potentials.on_edges] *= C / edge_C
    return factors


# The penalty is added to parts of the gradient that have this number of weights.
_PART = 2**13


class PenalisedRisk:
    r"""Regularised primal objective P, and the objective f per labelled node that optimizers minimise.

    .. math::
        P(w) = \sum_j \lambda_j \bigl( \tfrac{1 - \alpha}2 w_j^2 + \alpha |w_j| \bigr) + C \, R(w),
        \qquad f(w) = P(w) / (C N)

    :math:`\lambda_j` is 0 for intercepts, 1 for weights of nodes and C / edge_C for weights of edges and factors. The
    gradients of f do not grow with the number of examples, so that ``tol`` has the same meaning as in scikit-learn's
    LogisticRegression. The record holds P.
    """

    # l1_ratio: fraction alpha of the penalty that is L1
    # free: (n_coef,) bool or None, mask of the weights that training may change
    # outer_gradient: as in FitPlan; the record has gradients with respect to the features of X
    # n_weights: number of variables that are weights, which are stored in the record; None if all variables are weights

    def __init__(self, risk, C, max_iter, edge_C=None, outer_gradient=None, n_weights=None):
        self.risk = risk
        self.outer_gradient = outer_gradient
        self._n_weights = n_weights
        self.C = C if risk.objective.smooth else None
        self.record = TrainingRecord(risk.path)
        self.n_nodes = max(risk.n_labelled, np.finfo(np.float64).tiny)
        self.l1_ratio = 0.0
        factors = compute_penalty_factors(risk.potentials, C, edge_C)
        # Booleans need an eighth of the memory of floating-point zeros and ones.
        self._penalty = factors.astype(bool) if np.all((factors == 0) | (factors == 1)) else factors
        self._keeps_coef = risk.potentials.n_coef * max_iter <= _RECORD_LIMIT
        self.remedy = ""
        self.free = None
        self.held_out = None
        self._last = None

    @property
    def penalty(self):
        """Coefficient lambda of each weight in the penalty, an array (n_coef,)."""
        return self._penalty.astype(np.float64)

    @property
    def _strength(self):
        return 0.0 if self.C is None else 1.0 / (self.C * self.n_nodes)

    @property
    def scale(self):
        """Ratio of the objective P to the objective f."""
        return self.n_nodes if self.C is None else self.C * self.n_nodes

    @property
    def l1(self):
        """Coefficient of each weight in the L1 penalty of f, or the number 0 without an L1 penalty."""
        if not self.l1_ratio:
            return 0.0
        # The penalty factors are made for squared weights. Absolute weights need the square roots of these factors.
        units = np.sqrt(self.risk.potentials.penalty)
        return self.l1_ratio * self._strength * self.penalty / np.where(units > 0, units, 1.0)

    def value(self, coef):
        """Return the objective f at the given weights, including its L1 penalty."""
        return self._evaluate_at(coef)[1] + float(np.sum(self.l1 * np.abs(coef)))

    def compute_least_subgradient(self, coef):
        """Return the subgradient of f with the smallest norm; without an L1 penalty it is the gradient."""
        return compute_least_subgradient(coef, self._evaluate_at(coef)[2], np.asarray(self.l1, dtype=np.float64))

    @property
    def curvature(self):
        """Approximate curvature of f along each weight during training, or None if unknown."""
        at_zero = self.risk.curvature
        if at_zero is None or self.C is None:
            return None
        total = at_zero / self.n_nodes + (1 - self.l1_ratio) * self._strength * self.penalty
        # As labels become certain, the curvature of frequent features decreases most.
        # Square roots model this decrease: they halve the range of curvatures on a logarithmic scale.
        roots = np.sqrt(np.where(total > 0, total, 1.0))
        return np.maximum(roots, np.finfo(np.float32).tiny).astype(np.float32)

    def evaluate(self, coef, members=None):
        """Compute the objective f and its gradient by one pass over the examples."""
        # coef: (n_coef,), the weights
        # members: indices of the batches to visit, a sample of all batches; None for all batches
        # returns value: f without its L1 penalty, or None if the objective has no loss
        # returns gradient: (n_coef,), gradient of f without its L1 penalty
        # The previous result is dropped before the evaluation, to save memory.
        self._last = None
        result = self.risk.value_grad(coef, members)
        # With a sample, the expected gradient is the gradient of all batches, whatever the weights of the batches are.
        n_nodes = self.n_nodes * (1.0 if members is None else len(members) / len(self.risk.batches))
        strength = (1 - self.l1_ratio) * self._strength
        # The penalty is added in place and in parts, because copies of many million weights would need much memory.
        gradient, square = result.gradient, 0.0
        gradient /= n_nodes
        for part in (slice(first, first + _PART) for first in range(0, len(coef), _PART)):
            penalty = self._penalty[part] * coef[part]
            square += float(penalty @ coef[part])
            penalty *= strength
            gradient[part] += penalty
        value = None if result.value is None else result.value / n_nodes + 0.5 * strength * square
        if self.free is not None:
            gradient *= self.free
        kept = np.array(coef) if coef.flags.writeable else coef
        self._last = (kept, value, gradient, result._replace(gradient=None))
        return value, gradient

    def has_value(self, coef):
        """Return whether the objective has a value at the given weights, besides the direction of steps."""
        return self._evaluate_at(coef)[1] is not None

    def compute_inference_gap(self, coef):
        """Return an upper bound on the error of the summed losses; it is zero if all labelings are proven optimal."""
        return self._evaluate_at(coef)[3].gap

    def _evaluate_at(self, coef):
        """Return the result at the given weights, which is stored if these weights were evaluated last."""
        if self._last is None or not np.array_equal(self._last[0], coef):
            self.evaluate(coef)
        return self._last

    def direction(self, coef):
        """Return a descent direction of f, whose components for pairwise weights are scaled up.

        Kumar et al. count every edge once for each end, so their pairwise weights are half as large as here and their
        pairwise steps are four times as long. The steps here have the same length as theirs on graphs with at most four
        neighbours per node, and are shorter on denser graphs.
        """
        direction = -self.evaluate(coef)[1]
        direction[self.risk.potentials.on_edges] *= 4 * min(1.0, 2 / max(self.risk.edges_per_node, 1e-9))
        return direction

    def visit(self, coef):
        """Record an iterate, and evaluate it unless it was the last point evaluated."""
        latest, value, gradient, result = self._evaluate_at(coef)
        if value is not None:
            value = self.value(coef)
        latest = latest[: self._n_weights]
        record = self.record
        record.loss.append(None if value is None else value * self.scale)
        record.errors.append(result.n_errors)
        of_input = gradient[: self._n_weights]
        if self.outer_gradient is not None:
            of_input = self.outer_gradient(of_input)
        record.gradient_norm.append(float(np.linalg.norm(of_input)))
        record.n_nonsubmodular.append(result.n_nonsubmodular)
        record.inference_converged = result.converged
        self.risk.objective.settle(float(np.abs(gradient).max(initial=0.0)))
        record.latest = latest
        if self._keeps_coef:
            record.coef_path.append(latest)
            record.gradient_path.append(of_input)
        if self.held_out is not None:
            record.validation_scores.append(self.held_out.visit(latest))


# Maximum number of weight vectors that vote. More vectors slow down prediction and do not improve labels.
_MOST_VOTERS = 9


class Selection:
    """Choice of the final weights among the iterates of a training that does not converge."""

    # rule: "best", "last", "averaged" or "voted"
    # The rule "best" chooses the iterate with the fewest training errors, and the last of them in a tie.
    # The rule "averaged" chooses the mean of all iterates.
    # With the rule "voted", the 9 iterates with the fewest errors vote at prediction.

    def __init__(self, rule):
        self.rule = rule
        self._n_visited = 0
        self._mean = None
        self._kept = []  # tuples (number of errors, -visit, coef), the best first

    def visit(self, coef, n_errors):
        """Consider an iterate as the final weights; its array must not be modified later.

        ``n_errors`` is None if errors are not counted. The last iterate is then the best.
        """
        self._n_visited += 1
        if self.rule == "averaged":
            mean = np.zeros_like(coef) if self._mean is None else self._mean
            self._mean = mean + (coef - mean) / self._n_visited
            return
        if self.rule == "last" or n_errors is None:
            n_errors = 0.0
        self._kept.append((n_errors, -self._n_visited, coef))
        self._kept.sort(key=lambda entry: entry[:2])
        del self._kept[_MOST_VOTERS if self.rule == "voted" else 1 :]

    @property
    def best_iter(self):
        """Index of the chosen iterate, or None for a mean or several voters."""
        return -self._kept[0][1] - 1 if len(self._kept) == 1 else None

    def chosen(self):
        """Return the chosen weights, and either the weight vectors that vote or None if there is no vote."""
        # returns coef: (n_coef,), chosen weights (their mean if several vote); voters: (n_voters, n_coef) or None
        if self.rule == "averaged":
            return self._mean, None
        kept = [coef for _, _, coef in self._kept]
        if self.rule == "voted":
            return np.mean(kept, axis=0), np.array(kept)
        return kept[0], None


class HeldOutScores:
    """Choice of the iterate with the best score on held-out examples; in a tie, the last such iterate is chosen.

    Source: Kumar et al. 2005, footnote 3.
    """

    def __init__(self, score: Callable[[np.ndarray], float], n_iter_no_change: int):
        self._score = score
        self._n_iter_no_change = n_iter_no_change
        self._selection = Selection("best")
        self.best = self.latest = -np.inf
        self._n_since_best = 0

    def visit(self, coef: np.ndarray) -> float:
        """Return the score of an iterate and consider it as the final weights; its array must not be modified later."""
        score = self._score(coef)
        self._selection.visit(coef, 1 - score)
        self._n_since_best = 0 if score > self.best else self._n_since_best + 1
        self.best, self.latest = max(self.best, score), score
        return score

    @property
    def is_over(self) -> bool:
        """Whether the score has not improved for `n_iter_no_change` iterations."""
        return self._n_since_best >= self._n_iter_no_change

    def choose(self, record: TrainingRecord) -> None:
        """Store the best iterate in a record."""
        record.choose(self._selection)
        if self.is_over:
            record.converged = False
            record.stop_reason = f"STOP: no better validation score in {self._n_iter_no_change} iterations"


def compute_initial_weights(init, risk, run):
    """Return the weights from which training starts.

    ``"auto"`` is zero for convex problems, whose solution does not depend on the start. Otherwise it stands for the
    weights of the field without edges.
    """
    n_coef = risk.potentials.n_coef
    if isinstance(init, np.ndarray):
        if init.shape != (n_coef,) or not np.all(np.isfinite(init)):
            raise ValueError(f"init must be an array of {n_coef} finite numbers, got shape {init.shape}.")
        return np.array(init, dtype=np.float64)
    if init == "random":
        return run.rng.normal(size=n_coef)
    if init != "independent" and (init != "auto" or (risk.objective.smooth and risk.is_exact)):
        return np.broadcast_to(0.0, n_coef)
    # Train a logistic regression on the nodes; pairwise weights stay zero.
    # Learning methods without a smooth loss have no penalty, but without a penalty the start might be infinite.
    problem = PenalisedRisk(risk.derived(_build_node_risk), run.C if risk.objective.smooth else 1.0, run.max_iter)
    n_left = run.max_iter

    def count(point):
        nonlocal n_left
        n_left -= 1

    options = {"tol": run.tol, "callback": count}
    found = minimize_lbfgs(problem.evaluate, np.zeros(n_coef), max_iter=run.max_iter, **options)
    return minimize_in_bulk(minimize_lbfgs, problem, found, lambda: n_left, **options).x


def _build_node_risk(risk):
    batches = [_select_labelled_nodes(batch) for batch in risk.batches]
    # Without edges, every node would be both ends of a chain, so labels that are forbidden at ends are allowed.
    potentials = risk.potentials.without_ends()
    if isinstance(potentials, SegmentPotentials):
        potentials = potentials.without_durations()
    # Without edges, belief propagation sends no messages and is exact, and pseudolikelihood is the likelihood, which it
    # sums over nodes with weights.
    is_weighted = any(batch.node_weight is not None for batch in batches)
    objective = Pseudolikelihood() if is_weighted else Likelihood(LoopyBP())
    return risk.having(objective=objective, potentials=potentials, batches=batches)


# Maximum number of weights whose curvature at the start is estimated by finite differences.
# For up to this number of weights, the estimate saves more passes than it costs.
# The estimate assumes that an inner problem is solved cheaply at the start, and more accurately during training.
_MOST_DIFFERENCES = 32

# Maximum number of weights whose curvature is estimated by finite differences on a subset of the examples.
_MOST_DIFFERENCES_OF_PIECES = 256

# If the curvature is not estimated from all batches, it is estimated from every fourth batch.
_SHARE_OF_BATCHES = 4


def choose_scaling(problem: PenalisedRisk, start: np.ndarray) -> np.ndarray | None:
    """Return the scaling of the weights by the curvature at the start, or None if there are too many weights.

    If inference becomes more accurate during training and there are many weights, the piecewise likelihood provides the
    curvature. For a loss after some sweeps, the loss after one sweep provides the curvature.
    """
    # returns (n_coef, n_coef), the scaling matrix
    has_inner_problem = not problem.risk.objective.is_settled
    if has_inner_problem and len(start) <= _MOST_DIFFERENCES:
        return scaling_by_differences(problem.evaluate, start)
    if len(start) > _MOST_DIFFERENCES_OF_PIECES:
        return None
    risk = problem.risk.derived(_build_piecewise_risk if has_inner_problem else _build_swept_risk)
    part = PenalisedRisk(risk, problem.scale / max(risk.n_labelled, 1.0), max_iter=0)
    return scaling_by_differences(part.evaluate, start)


def _build_swept_risk(risk: Any) -> Any:
    objective = clone(risk.objective).set_params(inference__n_sweeps=1)
    return risk.having(objective=objective, batches=risk.batches[::_SHARE_OF_BATCHES])


def _build_piecewise_risk(risk):
    # Piecewise training needs labels, but the curvature does not depend on them.
    batches = [
        replace(batch, labels=np.maximum(batch.labels, 0), node_weight=None)
        for batch in risk.batches[::_SHARE_OF_BATCHES]
    ]
    return risk.having(objective=Piecewise(), batches=batches)


def _select_labelled_nodes(batch):
    """Return the labelled nodes of a batch, without edges.

    Without edges, unlabelled nodes do not contribute to the loss.
    """
    example = batch.example
    nodes = make_trusted_example(
        example.node_features,
        build_trusted_graph(example.n_nodes, np.zeros((0, 2), dtype=np.int32)),
        node_type=example.node_type,
        edge_type=np.zeros(0, dtype=np.int32),
        n_states=example.n_states,
    )
    without_edges = Batch(nodes, batch.members, batch.node_ptr, batch.labels, batch.weight, batch.node_weight)
    labelled = batch.labels >= 0
    # Features that are stored by column cannot be selected by node.
    can_split = isinstance(example.node_features, np.ndarray) and labelled.any() and not labelled.all()
    return subgraph(without_edges, labelled) if can_split else without_edges
