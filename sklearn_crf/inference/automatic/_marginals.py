"""Automatic choice of an algorithm for marginals: exact if affordable, else belief propagation."""

from typing import Any

import numpy as np
from scipy.special import entr
from sklearn.base import clone

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._base import convergence_left_to_caller
from sklearn_crf.inference._results import compare_statistics
from sklearn_crf.inference.automatic import _phases, _tuning
from sklearn_crf.inference.automatic._base import Automatic, AutoState, join_parts
from sklearn_crf.inference.automatic._cost import Budget, choose_recursion, exact_inference
from sklearn_crf.inference.automatic._error_estimate import estimate_error
from sklearn_crf.inference.exact._junction_tree import JunctionTree
from sklearn_crf.inference.local._gibbs import GibbsSampler
from sklearn_crf.inference.local._tempering import compute_tempered_marginals
from sklearn_crf.inference.messages._belief_propagation import LoopyBP
from sklearn_crf.inference.messages._factor_layers import is_forest_of_factors
from sklearn_crf.models import FactorGraph, FactorStatistics


@options(kw_only=False)
class AutoMarginals(Automatic):
    """Exact marginals if affordable, belief propagation otherwise.

    Forests are solved by :class:`TreeInference`. A connected component with cycles is solved by :class:`JunctionTree`
    if elimination is within the budget (:func:`exact_inference`), else by :class:`LoopyBP`. If messages do not
    converge, they are restarted with damping of at least 0.5. If damped messages do not converge either, marginals are
    averages over 100 further sweeps. The averages are closer to the true marginals than the marginals of any sweep or
    of a convex bound. If edges are so strong that messages may have several fixed points, these are searched for,
    unless a factor joins more than two nodes. The marginals of all fixed points are then averaged, weighted by their
    partition functions. In models of more than 2,000 nodes, the only further starts are a labeling that no change of
    one node improves, or constant labelings. ``method`` of the result names the algorithms used.

    If edges are so strong that messages may have several fixed points, or the estimated error of belief propagation is
    above 0.05, the rest of the budget goes to parallel tempering: Gibbs chains at 24 temperatures that exchange their
    labels. The result with the smaller estimated error is returned. Tempering needs factors of at most two nodes, and a
    budget for 300 sweeps (about 1,200 nodes of two states by default). Forbidden pairs are allowed at high
    temperatures, so chains reach all allowed labelings.

    If the result is not exact, ``error`` is an upper estimate of the mean error of the marginals of nodes, or of
    factors if these have a larger error. It does not cover ``log_z``. An estimate above 0.05 causes a warning. For the
    estimate of belief propagation, the beliefs in the neighbourhoods of 32 nodes are summed exactly and compared with
    the marginals. In large models, the comparison uses messages on parts of the model around these nodes.
    Neighbourhoods do not show that all beliefs belong to one of several modes, so the estimate is at least the
    difference from tempering. Averages of messages that do not converge only have this difference as an estimate.
    Budgets "step" and "fast", which are for many calls, skip the estimate.

    If messages converge to a single fixed point, and all edges of a model of two states favour equal states, ``log_z``
    is the Bethe approximation, which is then a lower bound (``bound="lower"``).

    Samples are exact if marginals are, and Gibbs samples otherwise. For factor graphs they are always exact, by
    :class:`JunctionTree`.

    Parameters
    ----------
    max_iter : int, default=100
        Maximum number of sweeps of belief propagation, both with and without damping.
    tol : float, default=1e-4
        Tolerance of belief propagation: largest change of a normalised message.
    damping : float, default=0.0
        Initial damping of belief propagation, in [0, 1).
    search : bool, default=True
        Whether the search for several fixed points also starts near labelings of high score, in addition to constant
        labelings. Learning does not use these starts, because the labelings may change abruptly from one model to the
        next.
    budget : {"step", "fast", "default", "long"} or float, default="default"
        Maximum number of table cells for elimination in a connected component, see :func:`exact_inference`. "default"
        is about two seconds and 1 GB. Estimators use "fast", because they have many examples.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import AutoMarginals
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [2, 0]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.0, 0.0], [0.5, 0.0]]), [2.0 * np.eye(2)]
    ... )
    >>> found = AutoMarginals().marginals(model)
    >>> found.method, found.bound
    ('JunctionTree', 'exact')
    """

    tasks = frozenset({"marginals", "sample"})
    max_iter: int = 100
    tol: float = 1e-4
    damping: float = 0.0
    search: bool = True

    def for_learning(self) -> Any:
        budget = "fast" if self.budget == "default" else self.budget
        return clone(self).set_params(search=False, budget=budget)

    def is_exact_for(self, model: Any) -> bool:
        return exact_inference(model, budget=self.budget) is not None

    def joined_copies(self, graph: Graph, n_states: int) -> int:
        exact = exact_inference(graph, n_states, budget=self.budget)
        return 1 if exact is None else exact.joined_copies(graph, n_states)

    def _node_marginals(self, model, n_threads):
        chosen = choose_recursion(model)
        return super()._node_marginals(model, n_threads) if chosen is None else chosen._node_marginals(model, n_threads)

    def _marginals(self, model, *, init=None, n_threads=1):
        chosen = choose_recursion(model)
        if chosen is not None:
            found = chosen._marginals(model, n_threads=n_threads)
            return found._replace(method=type(chosen).__name__, error=0.0)
        if isinstance(model, FactorGraph) and is_forest_of_factors(model):
            return LoopyBP()._marginals(model)._replace(method="LoopyBP", state=None, error=0.0)
        budget = Budget.of(self.budget)

        def exactly(part, former):
            state = AutoState.of(former, "JunctionTree")
            found = budget.junction_tree()._marginals(part, init=state, n_threads=n_threads)
            return found._replace(method="JunctionTree", state=AutoState("JunctionTree", found.state), error=0.0)

        parts, places = self._split(
            model, budget, init, exactly, lambda part, former: self._run_belief_propagation(part, former, n_threads)
        )
        return parts[0] if len(parts) == 1 else _join(model, parts, places)

    def _run_belief_propagation(self, model, init, n_threads):
        """Return marginals by belief propagation, with an estimate of their error unless ``search`` is False."""
        with convergence_left_to_caller():
            found = self._run_plain_propagation(model, AutoState.of(init, "LoopyBP"), n_threads)
        state = AutoState("LoopyBP", found.state)
        # A mixture of several fixed points already has an error, and has no bound.
        if self.search and found.converged and found.error is None:
            found = _attach_bethe_bound(model, found)
        is_estimated = self.search and self.budget not in ("step", "fast")
        found = self._estimate_error(model, found, n_threads) if is_estimated else found._replace(error=None)
        self._warn(found)
        return found._replace(state=state)

    def _estimate_error(self, model, found, n_threads):
        """Return marginals with an estimated error, or those of parallel tempering if their estimate is smaller."""
        error: Any = None
        if found.converged:
            messages = LoopyBP(max_iter=self.max_iter, tol=self.tol, damping=max(self.damping, _tuning.DAMPING))
            error = estimate_error(model, found, messages)
            # Neighbourhoods show no errors in a model of several modes, if all beliefs are those of one mode.
            if error is not None and error <= _tuning.MOST_ERROR and not _phases.may_have_phases(model):
                return found._replace(error=error)
        n_cells = _tuning.TEMPERED_SHARE * Budget.of(self.budget).most_cells
        sampled: Any = compute_tempered_marginals(model, n_cells, n_threads)
        if sampled is not None:
            error = max(error or 0.0, compare_statistics(model, found, sampled))
        return sampled if sampled is not None and sampled.error < error else found._replace(error=error)

    def _warn(self, found):
        """Warn of marginals that have not converged, or have a large estimated error."""
        if not found.converged:
            n_sweeps = found.n_iter - _tuning.N_AVERAGED_PARTS * _tuning.SWEEPS_OF_A_PART
            error = "" if found.error is None else f", with an estimated average error of {found.error:.2g}"
            warn_unconverged(
                f"Messages of belief propagation did not converge in {n_sweeps} sweeps, so marginals are averages over "
                f"further sweeps{error}: increase budget (now {self.budget!r}) for exact marginals, or use sampling, "
                'inference="gibbs", or a convex bound, inference="trw".'
            )
        elif found.error is not None and found.error > _tuning.MOST_ERROR:
            warn_unconverged(
                f"Marginals have an average error of {found.error:.2g}, estimated for {found.method}: increase budget "
                f'(now {self.budget!r}) for exact marginals, or use sampling, inference="gibbs".'
            )

    def _run_plain_propagation(self, model, init, n_threads):
        """Return marginals by belief propagation, without an estimated error."""
        if _phases.can_be_favoured(model):
            found = self._average_over_phases(_phases.add_node_factors(model), init, n_threads)
            cells, defaults = found.statistics
            return found._replace(
                statistics=FactorStatistics(cells[: len(model.log_table)], defaults[: model.n_tables])
            )
        return self._average_over_phases(model, init, n_threads)

    def _average_over_phases(self, model, init, n_threads):
        phases = init if isinstance(init, _phases.PhaseState) else None
        found, inference = self._converge(model, init if phases is None else phases.plain, n_threads)
        is_left_out = _phases.is_large(model) and not self.search
        if not found.converged or is_left_out or not _phases.may_have_phases(model):
            return found
        with convergence_left_to_caller():
            return _phases.mix_phases(inference, model, found, phases, self.search, n_threads)

    def _converge(self, model, init, n_threads):
        """Run plain, then damped, then averaged belief propagation until it converges.

        Return the marginals, and the inference that was used last.
        """
        inference = LoopyBP(max_iter=self.max_iter, tol=self.tol, damping=self.damping)
        with convergence_left_to_caller():
            found = inference._marginals(model, init=init, n_threads=n_threads)
            if found.converged:
                return found._replace(method="LoopyBP"), inference
            inference.set_params(damping=max(self.damping, _tuning.DAMPING))
            again = inference._marginals(model, n_threads=n_threads)
            n_iter = found.n_iter + again.n_iter
            method = f"LoopyBP(damping={inference.damping:g})"
            if again.converged:
                return again._replace(method=method, n_iter=n_iter), inference
            found = _average_runs(
                clone(inference).set_params(max_iter=_tuning.SWEEPS_OF_A_PART), model, again, n_threads
            )
        n_iter += _tuning.N_AVERAGED_PARTS * _tuning.SWEEPS_OF_A_PART
        found = found._replace(method=f"{method}, averaged", n_iter=n_iter)
        return found, inference

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        by_any = JunctionTree() if isinstance(model, FactorGraph) else GibbsSampler()
        sampler = exact_inference(model, budget=self.budget) or by_any
        return sampler.sample(model, n_samples, random_state=random_state, n_threads=n_threads)


def _attach_bethe_bound(model: Any, found: Any) -> Any:
    r"""Return marginals with a lower bound on the log-partition, if all pairs of two states attract each other.

    .. math::
        \log Z \ge \sum_s \Big( \sum_a q_s(a) \theta_s(a) + (1 - d_s) H(q_s) \Big)
        + \sum_e \Big( \sum_{a, b} q_e(a, b) \theta_e(a, b) + H(q_e) \Big)

    holds for all distributions of nodes q_s, with degrees d_s, and all consistent distributions of edges q_e (N.
    Ruozzi, The Bethe partition function of log-supermodular graphical models, Advances in Neural Information Processing
    Systems 25, 2012). The best q_e given the q_s has a closed form (M. Welling and Y. W. Teh, Belief optimization for
    binary networks, Uncertainty in Artificial Intelligence, 2001).
    """
    if isinstance(model, FactorGraph) or model.n_columns != 2:
        return found
    with np.errstate(invalid="ignore"):
        tables = model.edge_tables().astype(np.float64)
        gain = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
    if not np.all((gain >= 0) & (gain < _tuning.LARGEST_GAIN)):
        return found
    unary = model.unary.astype(np.float64)
    q = np.where(np.isneginf(unary), 0.0, found.unary.astype(np.float64))
    q /= q.sum(axis=1, keepdims=True)
    tails, heads = model.graph.edges.T
    a, b, alpha = q[tails, 1], q[heads, 1], np.expm1(gain)
    # The probability that both ends are in state 1 is the smaller root of a quadratic, in a form without cancellation.
    linear = 1 + alpha * (a + b)
    root = np.sqrt(np.maximum(linear**2 - 4 * alpha * (1 + alpha) * a * b, 0.0))
    both = np.clip(2 * (1 + alpha) * a * b / (linear + root), np.maximum(0.0, a + b - 1), np.minimum(a, b))
    pairs = np.stack([1 - a - b + both, b - both, a - both, both], axis=1).clip(0.0)
    edges = (pairs * tables.reshape(-1, 4)).sum(axis=1) + entr(pairs).sum(axis=1)
    degree = np.bincount(np.ravel(model.graph.edges), minlength=model.n_nodes)
    terms = np.where(q > 0, q * np.where(q > 0, unary, 0.0), 0.0).sum(axis=1) + (1 - degree) * entr(q).sum(axis=1)
    terms += 0.5 * (np.bincount(tails, edges, model.n_nodes) + np.bincount(heads, edges, model.n_nodes))
    return found._replace(log_z=float(terms.sum()), log_z_terms=terms, bound="lower")


def _join(model, parts, places):
    """Join the results of connected components; only the last result may be approximate."""
    # places: nodes of each component
    unary = np.zeros((sum(map(len, places)), model.n_columns), dtype=model.dtype)
    terms = np.zeros(len(unary))
    for found, nodes in zip(parts, places, strict=True):
        unary[nodes, : found.unary.shape[1]], terms[nodes] = found.unary, found.log_z_terms
    names = [name for name in parts[0].statistics._fields if name != "unary"]
    sums = {name: sum(getattr(found.statistics, name) for found in parts) for name in names}
    # The results of all other components are exact, with error 0.
    error = parts[-1].error and parts[-1].error * len(places[-1]) / len(unary)
    return parts[-1].with_values(
        unary,
        error=0.0 if parts[-1].bound == "exact" else error,
        log_z=sum(found.log_z for found in parts),
        log_z_terms=terms,
        **join_parts(parts),
        **sums,
    )


def _average_runs(inference, model, found, n_threads):
    """Continue message passing from a result in several runs, and return the average of their marginals."""
    parts = []
    for _ in range(_tuning.N_AVERAGED_PARTS):
        found = inference._marginals(model, init=found.state, n_threads=n_threads)
        parts.append(found)
    means = _phases.average_results(parts, np.full(len(parts), 1 / len(parts)))
    return found.with_values(**means, log_z=float(means["log_z_terms"].sum()), converged=False)
