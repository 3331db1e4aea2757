"""Minimisation of smoothed hinge losses, at a temperature that is lowered step by step."""

from dataclasses import replace

import numpy as np
from scipy.optimize import OptimizeResult
from scipy.special import entr

from sklearn_crf._threads import map_tasks
from sklearn_crf.inference import CountingNumbers
from sklearn_crf.learning._convergence import alternate_with_trees
from sklearn_crf.models import FactorStatistics
from sklearn_crf.objectives import JointRisk, chooses_trees
from sklearn_crf.optimize import minimize_lbfgs
from sklearn_crf.potentials import states_of


class _SmoothProblem:
    r"""Penalised risk as a function of one vector: the weights, followed by unpenalised shares of scores.

    .. math:: P(x, \lambda) = \tfrac12 \lVert x \rVert^2 + C R(\mathrm{scale} \cdot x, \lambda)
    """

    def __init__(self, risk, setting, run):
        self.risk, self.C = risk, run.C
        self.n_weights, n = len(setting.scale), risk.potentials.n_coef
        self.scale = np.concatenate((setting.scale, np.ones(n - self.n_weights)))
        self.bounded = np.concatenate((setting.lower_bounded, np.zeros(n - self.n_weights, dtype=bool)))
        self.n_passes = 0

    def value_grad(self, x):
        """Return the value and the gradient of the penalised risk P."""
        result = self.risk.value_grad(self.scale * x)
        self.n_passes += 1
        own = x[: self.n_weights]
        gradient = self.C * self.scale * result.gradient
        gradient[: self.n_weights] += own
        return 0.5 * float(own @ own) + self.C * result.value, gradient

    def project(self, x):
        """Return the nearest point at which no bounded weight is negative."""
        return np.where(self.bounded, np.maximum(x, 0.0), x)

    def lacks(self, x, gradient):
        """Return an upper bound on the suboptimality of P without shares, from the strong convexity of |x|^2 / 2."""
        step = self.project(x - gradient) - x
        return -float(gradient @ step + 0.5 * step @ step)


def minimize_smoothed(risk, start, setting, run, callback):
    r"""Minimise half the squared norm of the weights plus C times the smoothed hinges; lower the temperature in steps.

    .. math:: P_0(w) \le P_T(w) \le P_0(w) + C \, T \sum_i \omega_i \sum_s m_s \log K_s

    :math:`m_s` is 1 for the tree-reweighted entropy. Otherwise the entropy of each edge counts at both its ends.
    ``callback`` is called with ``x``, ``fun`` and ``dual`` of every iterate. If it returns True, training stops. In the
    result, ``passes`` is the number of passes over all examples at each point of the curves.
    """
    joint = setting.problem == "joint"
    last, objective = risk.objective.temperature, risk.objective
    problem = plain = _SmoothProblem(risk, setting, run)
    problems, x, found = [plain], start / setting.scale, OptimizeResult()
    curves: tuple[list, list] = [], []
    passes: list = []
    best_dual, message = 0.0, None
    entropy = run.C * risk.summed(_compute_largest_entropy, setting.entropy)

    def visit(point):
        nonlocal best_dual, message
        # The smoothed lower bound minus the largest possible entropy term is a lower bound on the unsmoothed objective.
        slope = np.where(np.arange(len(point.x)) < problem.n_weights, point.jac, 0.0)
        lacks = problem.lacks(point.x, slope)
        # Largest difference between the marginals that different trees give to the same state.
        apart = np.abs(point.jac - slope).max(initial=0.0) / (run.C * objective.temperature)
        if not joint:
            best_dual = max(best_dual, point.fun - lacks - objective.temperature * entropy)
        curves[0].append(point.fun)
        curves[1].append(best_dual)
        passes.append(sum(each.n_passes for each in problems))
        own = point.x[: problem.n_weights]
        if callback(OptimizeResult(x=own, fun=point.fun, dual=best_dual)):
            message = "STOP: by the callback"
        return message is not None or (lacks <= run.tol * abs(point.fun) and apart <= run.tol)

    def train(coef):
        """Minimise at falling temperatures, or only at the last temperature after a choice of trees; return weights."""
        nonlocal problem, x, found
        if joint:
            shared = JointRisk(risk, setting.entropy, setting.trees)
            x = np.concatenate((x[: plain.n_weights], shared.shares))
            problem = _SmoothProblem(shared, setting, run)
            problems.append(problem)
        limits = {"lower_bounded": problem.bounded, "max_iter": run.max_iter, "tol": 0.0, "callback": visit}
        for temperature in _build_temperature_schedule(last) if coef is None else [last]:
            if coef is None:
                x[problem.n_weights :] *= objective.temperature / temperature
                objective.temperature = temperature
                # Messages at the previous temperature are a poor start for this temperature.
                risk.forget()
            found = minimize_lbfgs(problem.value_grad, x, **limits)
            x = problem.project(found.x)
            if message is not None:
                return None
        return setting.scale * x[: problem.n_weights] if chooses_trees(setting.trees) else None

    try:
        alternate_with_trees(train, risk, lambda coef: plain.value_grad(coef / setting.scale)[0], run.tol)
    finally:
        objective.temperature = last
    own = x[: problem.n_weights]
    # Evaluate the problem without shares at the final temperature, for the final weights.
    # The values so far may belong to a higher temperature, or to the joint problem, whose gradients include shares.
    value, gradient = plain.value_grad(own)
    entropy = run.C * risk.summed(_bound_entropy, setting.entropy, setting.scale * own)
    best_dual = max(best_dual, value - plain.lacks(own, gradient) - last * entropy)
    curves[0].append(value)
    curves[1].append(best_dual)
    passes.append(sum(each.n_passes for each in problems) + 1)
    success = message is not None or plain.lacks(own, gradient) <= 2 * run.tol * abs(value)
    return OptimizeResult(
        x=own,
        fun=value,
        dual=best_dual,
        gap=value - best_dual,
        loss_curve=np.array(curves[0]),
        dual_curve=np.array(curves[1]),
        nit=len(curves[0]),
        success=success,
        message=message or ("CONVERGENCE: gradient small" if success else found.message),
        passes=np.array(passes),
    )


def _build_temperature_schedule(last):
    """Return temperatures that decrease from one to the last temperature."""
    temperatures = []
    temperature = 1.0
    while temperature > _FACTOR * last:
        temperatures.append(temperature)
        temperature /= _FACTOR
    return [*temperatures, last]


# Each temperature is divided by this number to give the next temperature.
_FACTOR = 10.0


def _bound_entropy(risk, entropy, coef):
    """Return an upper bound on the total entropy of the relaxation, from node marginals computed as in training."""
    unweighted = [replace(batch, weight=None) for batch in risk.batches]
    plain = risk.having(batches=unweighted)
    plain.carried = risk.carried

    def of_batch(i, n_threads):
        batch = risk.batches[i]
        part = plain.oracle(i, coef, n_threads=n_threads, pulls_back=False)
        share = _read_node_statistics(batch.example, part.statistics, risk.potentials.n_classes)
        share[np.arange(len(share)), batch.labels] += 1.0
        return float(_compute_node_entropy_weights(batch, entropy) @ entr(np.clip(share, 0.0, 1.0)).sum(axis=1))

    return sum(map_tasks(of_batch, range(len(risk.batches)), risk.n_jobs))


def _read_node_statistics(example, statistics, n_classes):
    """Return the part of the statistics that belongs to the states of nodes, (N, K) float64."""
    if isinstance(statistics, FactorStatistics):
        # In a factor graph, the first factors belong to single nodes.
        n_states = states_of(example, n_classes)
        found = np.zeros((example.n_nodes, n_classes))
        found[np.arange(n_classes) < n_states[:, None]] = statistics.log_table[: n_states.sum()]
        return found
    return statistics.unary.astype(np.float64)


def _compute_largest_entropy(risk, entropy):
    """Return the largest possible total entropy, in which each node has the logarithm of its number of states."""
    total = 0.0
    for batch in risk.batches:
        counts = states_of(batch.example, risk.potentials.n_classes)
        total += float(_compute_node_entropy_weights(batch, entropy) @ np.log(counts))
    return total


def _compute_node_entropy_weights(batch, entropy):
    """Return the weight of each node's entropy in an upper bound on the total entropy.

    The entropy of an edge or factor is at most the sum of the entropies of its nodes.
    """
    weight = np.ones(len(batch.members)) if batch.weight is None else batch.weight
    of_nodes, degree = np.repeat(weight, np.diff(batch.node_ptr)), _count_factors_of_nodes(batch.example)
    if isinstance(entropy, CountingNumbers):
        return of_nodes * (entropy.node + entropy.factor * degree)
    return of_nodes * {"trw": 1, "trivial": np.maximum(degree, 1), "factors": 1 + degree}[entropy]


def _count_factors_of_nodes(example):
    """Return the number of edges and larger factors of each node."""
    counts = example.graph.degree.astype(np.int64)
    scopes = [found.scope for found in example.factors.values()]
    scopes += [np.asarray(list(scope), dtype=np.int64)[np.newaxis] for scope, _ in example.fixed_factors]
    for scope in scopes:
        if scope.shape[1] > 1:
            counts += np.bincount(scope.ravel(), minlength=len(counts))
    return counts
