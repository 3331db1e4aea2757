"""Minimisation of the bound for given trees, and for the best distribution over trees."""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._base import convergence_left_to_caller
from sklearn_crf.inference._node_shares import NodeShares
from sklearn_crf.inference._trw import TRWMessagePassing
from sklearn_crf.optimize import minimize_pqn, minimize_spg
from sklearn_crf.spanning_trees import minimum_spanning_tree

SOLVERS = {"spg": minimize_spg, "pqn": partial(minimize_pqn, memory=4)}

# After so many sweeps of messages the bound that they give is looked at.
_SWEEPS_AT_ONCE = 50

# Plain sweeps come to their end in a fifth of the time, but may not come to it; from where the bound does not fall,
# this much of old messages is kept.
_DAMPING = 0.5

# A step of conditional gradients must reach this share of the linear decrease, or is halved, this often at most.
_SUFFICIENT_DECREASE = 0.1
_MOST_HALVINGS = 6


class Tight(NamedTuple):
    """Where minimisation for some trees came to."""

    scores: NodeShares
    x: np.ndarray
    unary: np.ndarray  # (N, K) means over trees, as pairs are
    pairs: np.ndarray  # (E, K, K)
    log_z_terms: np.ndarray  # (N,)
    disagreement: float
    n_iter: int
    trace: np.ndarray  # (n_iter + 1,) the bound at the start and after each iteration

    @property
    def bound(self):
        return float(self.log_z_terms.sum())


class Tightening:
    """Options of the minimisation for trees.

    Parameters
    ----------
    model : PairwiseModel
    mapped : callable
        As :func:`~sklearn_crf._threads.ordered_map` gives it.
    solver : {"spg", "pqn"}
    start_sweeps, max_iter, tol
        As :class:`TightenBound` takes them.
    n_threads : int
    """

    def __init__(self, model, mapped, solver, start_sweeps, max_iter, tol, n_threads):
        self.model, self.mapped, self.solver, self.max_iter, self.tol = model, mapped, SOLVERS[solver], max_iter, tol
        self.start_sweeps, self.n_threads = start_sweeps, n_threads
        self.messages = None

    def scores(self, trees):
        """The unknowns for some trees."""
        return NodeShares(self.model, trees, self.mapped)

    def _better_start(self, scores, start):
        """What messages come to, from where they were at other trees, if that is better than a known start."""
        if self.start_sweeps == 0:
            return start
        best, best_value = start, scores.value_grad(start)[0]
        damping, value, n_left, converged = 0.0, best_value, self.start_sweeps, False
        while n_left > 0 and not converged:
            sweeps = TRWMessagePassing(
                scores.trees, max_iter=min(n_left, _SWEEPS_AT_ONCE), tol=0.1 * self.tol, damping=damping
            )
            n_left -= sweeps.max_iter
            with convergence_left_to_caller():
                messages, converged = sweeps._sent(self.model, self.messages, self.n_threads)
            x = scores.project(scores.from_messages(messages))
            before, (value, gradient) = value, scores.value_grad(x)
            if value > before + 1e-12 * abs(value) and damping == 0:
                # The messages before were better.
                damping, converged = _DAMPING, False
                continue
            self.messages = messages
            best, best_value = (x, value) if value <= best_value else (best, best_value)
            converged = converged or np.abs(gradient).max() <= self.tol * scores.scale.min()
        return best

    def tighten(self, scores, start):
        """Minimise from a start until the marginals of all trees agree."""
        x, n_iter, trace = self._better_start(scores, scores.project(start)), 0, np.zeros(0)
        tol = self.tol * scores.scale.min()
        while True:
            found = self.solver(
                scores.value_grad,
                x,
                # Gradients are projected already.
                project=lambda x: x,
                max_iter=self.max_iter - n_iter,
                tol=tol,
                callback=lambda _: checkpoint(),
            )
            x, n_iter = found.x, n_iter + found.nit
            trace = np.concatenate((trace[:-1], found.loss_curve))
            tight = _averaged(scores, x, n_iter, trace)
            if tight.disagreement <= self.tol or not found.success or n_iter >= self.max_iter:
                return tight
            # Nodes agree, but a pair still differs by more than its ends do.
            tol *= 0.5 * self.tol / tight.disagreement


def _averaged(scores, x, n_iter, trace):
    """Means over trees; they are the derivatives of the bound whether or not the trees agree."""
    at = scores.marginals(x)
    unary, pairs = scores.means.over_nodes(at.unary), scores.means.over_edges(at.tables)
    differences = np.abs(at.unary - unary).max(), np.abs(at.tables - pairs[scores.edge]).max(initial=0.0)
    return Tight(
        scores, x, unary, pairs, scores.weights @ at.log_z_terms, float(max(differences)), n_iter, np.array(trace)
    )


class Chosen(NamedTuple):
    """What the search for trees found."""

    best: Tight
    n_iter: int  # of all minimisations
    converged: bool
    bounds: np.ndarray  # of each distribution that was accepted
    gap: float  # what the best distribution over trees may lower the bound by, at most, as it was last known


def choose_trees(tightening, trees, start, outer_iter, outer_step):
    """Conditional gradients over the spanning tree polytope (OPTIMALTREES).

    Parameters
    ----------
    tightening : Tightening
    trees : SpanningTrees
        To begin with.
    start : ndarray
        Scores of these.
    outer_iter : int
        Most trees to add.
    outer_step : {"harmonic", "armijo"}

    Returns
    -------
    Chosen
    """
    current = best = tightening.tighten(tightening.scores(trees), start)
    n_trees, n_iter, bounds, step = trees.n_trees, current.n_iter, [current.bound], 1.0
    tree, gap = _steepest_tree(current)
    for _ in range(outer_iter):
        if gap <= tightening.tol * max(1.0, abs(current.bound)):
            break
        n_trees += 1
        tried = _harmonic(tightening, current, tree, 1 / n_trees) if outer_step == "harmonic" else None
        if tried is None:
            tried, step, spent = _armijo(tightening, current, tree, gap, min(0.5, 2 * step))
            n_iter += spent
            if tried is None:
                break
        else:
            n_iter += tried.n_iter
        current = tried
        bounds.append(current.bound)
        best = current if current.bound < best.bound else best
        tree, gap = _steepest_tree(current)
    converged = gap <= tightening.tol * max(1.0, abs(current.bound)) and best.disagreement <= tightening.tol
    return Chosen(best, n_iter, converged, np.array(bounds), gap)


def _harmonic(tightening, current, tree, step):
    return tightening.tighten(*stepped(tightening, current, tree, step))


def _armijo(tightening, current, tree, gap, step):
    """The first of steps that are halved to lower the bound enough, or None; that step, and the iterations spent."""
    spent = 0
    for _ in range(_MOST_HALVINGS):
        tried = _harmonic(tightening, current, tree, step)
        spent += tried.n_iter
        if tried.bound <= current.bound - _SUFFICIENT_DECREASE * step * gap:
            return tried, step, spent
        step /= 2
    return None, step, spent


def _steepest_tree(tight):
    """The tree towards which the bound falls fastest, and by how much the bound may be above the best, at most.

    Its derivative by the probability of an edge is the negative mutual information of the edge's ends.
    """
    information = mutual_information(tight.pairs)
    tree = minimum_spanning_tree(tight.scores.graph, -information)
    return tree, float(information @ (tree - tight.scores.probabilities))


def mutual_information(pairs):
    """Mutual information of the two ends of edges, (E,), of their joint marginals, (E, K, K)."""
    ends = pairs.sum(axis=2), pairs.sum(axis=1)
    entropies = [-xlogy(p, p).sum(axis=1) for p in ends]
    return np.maximum(entropies[0] + entropies[1] + xlogy(pairs, pairs).sum(axis=(1, 2)), 0.0)


def stepped(tightening, tight, tree, step):
    """The unknowns after a step towards one more tree, and a start for them: what is known, and an even share for it.

    By that the weighted means of the differences to an even share remain zero, whatever the step.
    """
    before = tight.scores
    trees = before.trees.stepped(tree, step).merged()
    scores = tightening.scores(trees)
    start = np.zeros(scores.shape)
    kept = slice(before.trees.n_trees)
    share = (1 - step) * before.weights / trees.weights[kept] * scores.scale[kept] / before.scale
    start[kept] = share[:, None, None] * tight.x.reshape(before.shape)
    return scores, start.ravel()
