"""Parallel tempering: Gibbs chains at several temperatures that exchange their labels."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy.special import logsumexp

from sklearn_crf._threads import make_range_runner
from sklearn_crf.graphs import build_disjoint_union
from sklearn_crf.inference._local_search import allocate_table_buffers, random_labels
from sklearn_crf.inference._results import Marginals, compare_statistics
from sklearn_crf.inference.local import _tuning
from sklearn_crf.inference.local._gibbs import LabelChain
from sklearn_crf.models import FactorGraph, PairwiseModel, Statistics, expand_factors


def compute_tempered_marginals(
    model: PairwiseModel | FactorGraph, most_cells: float, n_threads: int = 1
) -> Marginals | None:
    """Return marginals by parallel tempering, or None if this takes too long or a factor has more than two nodes."""
    if isinstance(model, PairwiseModel):
        return _run_ladders(model, most_cells, n_threads)
    if model.arity.max(initial=0) > 2:
        return None
    expanded = expand_factors(model)
    found = _run_ladders(expanded.model, most_cells, n_threads)
    return None if found is None else found._replace(statistics=expanded.pullback(model, found.statistics))


def _run_ladders(model, most_cells, n_threads):
    r"""Return marginals by two ladders of Gibbs chains, or None if they fail or would take too long.

    .. math:: p_r(y) \propto \exp(\beta_r \, \mathrm{score}(y)), \qquad 0 = \beta_0 < \dots < \beta_R = 1

    After each sweep, neighbouring chains of a ladder exchange their labels with a probability that leaves all
    distributions unchanged. Labels travel from independent draws to the model, so that chains do not stay in one mode
    of a model with strong edges. The inverse temperatures are adapted until exchanges are equally frequent everywhere
    (S. Syed et al. Non-reversible parallel tempering. J. Royal Statistical Society B 84, 2022). ``log_z`` adds up the
    ratios of the partition functions of neighbouring chains. ``error`` is a multiple of the difference between the
    marginals of the two ladders, which start from different labels, and their mean.
    """
    # most_cells: limit of the work, in table cells of elimination; a cell takes as long as a state of a node in a sweep
    n_copies = _tuning.N_LADDERS * _tuning.N_TEMPERATURES
    cells = n_copies * model.n_columns * (model.n_nodes + _tuning.WORK_OF_EDGE * model.graph.n_edges)
    n_sweeps = int(most_cells / max(cells, 1))
    if n_sweeps < _tuning.FEWEST_TEMPERED_SWEEPS:
        return None
    relaxed = _relax_forbidden_pairs(model)
    ladders = _Ladders(relaxed, make_range_runner(n_threads))
    length = n_sweeps // 2**_tuning.N_ADAPTATIONS
    for _ in range(_tuning.N_ADAPTATIONS):
        ladders.adapt(ladders.round(length).rejected)
        length *= 2
    found = ladders.round(length).marginals(relaxed)
    forbidden = np.isneginf(model.tables)
    # If sampled labelings contain too many forbidden pairs, the chains have not found the allowed labelings.
    if found.tables[forbidden].sum() > _tuning.MOST_FORBIDDEN:
        return None
    found.tables[forbidden] = 0
    return found


def _relax_forbidden_pairs(model: PairwiseModel) -> PairwiseModel:
    """Return the model with low scores in place of forbidden pairs.

    Labels of warm chains violate constraints, so chains reach all allowed labelings.
    """
    forbidden = np.isneginf(model.tables)
    if not forbidden.any():
        return model
    # Edge weights of features that forbid pairs are positive.
    weight = np.ones((1, 1)) if model.edge_weight is None else model.edge_weight
    least = weight[:, forbidden.any(axis=(0, 2, 3))].min()
    lowest = np.where(forbidden, 0, model.tables).min() - _tuning.PENALTY / float(least)
    return replace(model, tables=np.where(forbidden, lowest, model.tables))


class _Ladders:
    """Gibbs chains at several temperatures, in several ladders side by side in one model."""

    def __init__(self, model, run):
        self.model = replace(model, unary=model.unary.astype(np.float64), tables=model.tables.astype(np.float64))
        self.run, self.rng = run, np.random.RandomState(0)
        self.n_ladders, self.n_nodes = _tuning.N_LADDERS, model.n_nodes
        # The difference between successive temperatures increases with the temperature.
        self.betas = np.linspace(0, 1, _tuning.N_TEMPERATURES) ** 2
        n_warm = len(self.betas) - 1
        self.graphs = [build_disjoint_union([model.graph] * (n * self.n_ladders)) for n in (n_warm, 1)]
        labels = [random_labels(model, self.rng) for _ in range(self.n_ladders * len(self.betas))]
        self.labels = np.reshape(labels, (self.n_ladders, len(self.betas), self.n_nodes))
        self.tables = self.model.edge_tables()
        self.n_rounds = 0

    def adapt(self, rejected):
        """Choose inverse temperatures so that all exchanges of neighbouring temperatures are rejected equally often."""
        # rejected: (n_temperatures - 1,), fractions of exchanges that were rejected
        barrier = np.concatenate(([0.0], np.cumsum(rejected + _tuning.LEAST_REJECTED)))
        self.betas = np.interp(np.linspace(0, barrier[-1], len(barrier)), barrier, self.betas)
        self.betas[[0, -1]] = 0.0, 1.0

    def round(self, n_sweeps):
        """Sweep all chains at constant temperatures and return the record."""
        betas = np.tile(self.betas[:-1], self.n_ladders), np.ones(self.n_ladders)
        labels = self.labels[:, :-1], self.labels[:, -1]
        warm, cold = (self._build_ladder_chain(k, *own) for k, own in enumerate(zip(betas, labels, strict=True)))
        record = _Round(self.model, self.betas, n_sweeps, self.n_ladders)
        buffers = record.buffers.reshape(len(record.buffers), -1, *self.model.tables.shape[1:])
        step = np.diff(self.betas)
        for sweep in range(n_sweeps):
            warm.sweep()
            cold.sweep(record.totals, buffers)
            self.labels[:, :-1] = warm.values.reshape(self.n_ladders, -1, self.n_nodes)
            self.labels[:, -1] = cold.values.reshape(self.n_ladders, -1)
            scores = record.scores[sweep] = self._score_labels()
            kept = np.exp(np.minimum(step * (scores[:, :-1] - scores[:, 1:]), 0))
            record.rejected += 1 - kept.mean(axis=0)
            # Exchange even and odd pairs alternately, so that labels move in one direction until a rejection.
            is_due = (np.arange(len(step)) + sweep) % 2 == 0
            ladder, lower = np.nonzero(is_due & (self.rng.uniform(size=kept.shape) < kept))
            moved = self.labels[ladder, lower]
            self.labels[ladder, lower] = self.labels[ladder, lower + 1]
            self.labels[ladder, lower + 1] = moved
            warm.values[:] = self.labels[:, :-1].ravel()
            cold.values[:] = self.labels[:, -1].ravel()
        self.n_rounds += 1
        record.rejected /= n_sweeps
        return record

    def _build_ladder_chain(self, number, betas, labels):
        """Return a sampler with one copy of the model per chain; number 0 means warm chains, number 1 cold chains."""
        model, n_copies = self.model, len(betas)
        allowed = np.isfinite(model.unary)
        unary = np.where(allowed, betas[:, None, None] * np.where(allowed, model.unary, 0.0), -np.inf)
        weight = np.ones((model.graph.n_edges, 1)) if model.edge_weight is None else model.edge_weight
        # Each cold chain has its own tables, so that the expected statistics of ladders can be compared.
        n_types, n_tables = len(model.tables), n_copies if number else 1
        copies = PairwiseModel(
            self.graphs[number],
            unary.reshape(-1, model.n_columns),
            np.tile(model.tables, (n_tables, 1, 1, 1)),
            (model.edge_type + n_types * (np.arange(n_copies) % n_tables)[:, None]).ravel(),
            (betas[:, None, None] * weight).reshape(-1, weight.shape[1]),
            n_states=None if model.n_states is None else np.tile(model.n_states, n_copies),
        )
        return LabelChain(copies, np.ravel(labels).astype(np.int32), 0, 2 * self.n_rounds + number, self.run)

    def _score_labels(self):
        """Return the scores of the labels of all chains under the model, (n_ladders, n_temperatures)."""
        tails, heads = self.model.graph.edges.T
        labels, edge = self.labels, np.arange(len(tails))
        nodes = self.model.unary[np.arange(self.n_nodes), labels].sum(axis=2)
        return nodes + self.tables[edge, labels[..., tails], labels[..., heads]].sum(axis=2)


class _Round:
    """Record of sweeps at constant temperatures."""

    def __init__(self, model, betas, n_sweeps, n_ladders):
        self.betas, self.n_ladders = betas, n_ladders
        n_nodes, n_columns = model.unary.shape
        self.totals = np.zeros((n_ladders * n_nodes, n_columns))
        self.buffers = np.stack([allocate_table_buffers(model, len(self.totals))] * n_ladders, axis=1)
        self.scores = np.empty((n_sweeps, n_ladders, len(betas)))
        self.rejected = np.zeros(len(betas) - 1)

    def marginals(self, model):
        """Return the marginals of the model, averaged over sweeps and ladders."""
        n_sweeps = len(self.scores)
        by_ladder = self.totals.reshape(self.n_ladders, model.n_nodes, model.n_columns) / n_sweeps
        tables = self.buffers.sum(axis=0) / n_sweeps
        mean = Statistics(by_ladder.mean(axis=0), tables.mean(axis=0))
        error = np.mean([compare_statistics(model, ladder, mean) for ladder in map(Statistics, by_ladder, tables)])
        log_z = self._estimate_log_z(model)
        unary = mean.unary.astype(model.dtype)
        return Marginals(
            unary,
            Statistics(unary, mean.tables),
            log_z=log_z,
            log_z_terms=np.full(model.n_nodes, log_z / model.n_nodes),
            bound=None,
            n_iter=n_sweeps,
            method="parallel tempering",
            error=min(1.0, _tuning.ERROR_FACTOR * float(error)),
        )

    def _estimate_log_z(self, model):
        """Estimate the log-partition function in steps from zero scores to the scores of the model."""
        total = float(np.log(np.isfinite(model.unary).sum(axis=1)).sum())
        scores = self.scores.reshape(-1, len(self.betas))
        for (r, lower), (_, upper) in pairwise(enumerate(self.betas)):
            up = logsumexp((upper - lower) * scores[:, r])
            down = logsumexp((lower - upper) * scores[:, r + 1])
            total += 0.5 * float(up - down)
        return total
