"""Search for labelings with high scores on hard models, by annealing, large neighbourhoods and recombination."""

from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf._numbers import as_array, check_option
from sklearn_crf._options import options
from sklearn_crf._threads import checkpoint, map_tasks
from sklearn_crf.inference._base import Inference, at_least
from sklearn_crf.inference._local_search import search_problem
from sklearn_crf.inference._results import Labeling
from sklearn_crf.inference.local import _tuning
from sklearn_crf.kernels.local.local import (
    SearchWorkspace,
    annealing_sweep,
    keep_better,
    stream_key,
    subgraph_move,
)
from sklearn_crf.models import FactorGraph, PairwiseModel, score


@options(kw_only=False)
class LargeNeighborhoodSearch(Inference):
    r"""Search for high-scoring labelings by annealing, exact solution of subgraphs, and recombination.

    A move draws a random set of nodes :math:`A` whose induced subgraph has low tree width, and maximises over all
    labels of these nodes at once, given the labels of the other nodes :math:`B`,

    .. math::
        y_A \leftarrow \arg\max_{y_A} \; \mathrm{score}(y_A, y_B) .

    Elimination takes time linear in the number of nodes for a move; on a two-state grid, about 85 % of the nodes are in
    :math:`A`. Each restart begins with Gibbs sampling at decreasing temperatures :math:`T`: one node after the other is
    drawn from :math:`p(y_s = k) \propto \exp(f_s(k) / T)`, where :math:`f_s(k)` is the score of state k given the
    neighbours. Then the restart makes moves until they gain nothing. From then on, it perturbs its best labels, either
    by a move with Gumbel noise of scale :math:`T` added to the unary scores, or by a few sweeps at temperature
    :math:`T`, and improves the result by further moves. Old and new labels differ in connected parts that have no
    factor in common, so each part is accepted or rejected separately:

    .. math::
        y_P \leftarrow y_P^{\mathrm{new}} \quad \text{if} \quad
            \mathrm{score}(y_P^{\mathrm{new}}, y_{\bar P}) \ge \mathrm{score}(y_P, y_{\bar P})
            \qquad \text{for each part } P .

    Restarts exchange parts in the same way. The best score never decreases.

    Parameters
    ----------
    max_work : float, optional
        Budget, as the number of table entries that all restarts together read. None stands for the number of entries
        that 30,000 sweeps over the nodes read, but at most 1e9, which take about two seconds. The budget is checked
        between moves.
    n_restarts : int, default=4
        Number of independent starts. All starts share the budget and ``n_threads``, and exchange their results 16
        times.
    max_cells : int, default=8192
        Maximum number of cells of a table in elimination. Larger tables allow more nodes in a subgraph, but fewer moves
        within the budget. The limit is never below the square of the largest number of states, so that trees are
        possible.
    max_options : int, default=4
        Nodes with more states than this choose from all states in a third of the moves, from this number of likely
        states given the neighbours in another third, and from two states in the last third. Wide subgraphs with few
        states find labelings that trees with all states do not find.
    random_state : int, RandomState instance or None, default=None
        An integer gives reproducible results for any number of threads.

    Raises
    ------
    ValueError
        If an option is out of its range or ``init`` is not a labeling of the model.

    See Also
    --------
    ICM : Changes one node at a time: a hundred times faster, but with far lower scores on mixed couplings.
    AlphaExpansion : Searches exponentially many moves by minimum cuts, if edges attract.

    Notes
    -----
    The start is the state with the best unary score at each node, or ``init``: labels of shape (N,). The first restart
    does not anneal these labels, and the result never scores below them. If one subgraph can contain all nodes, the
    result is exact and ``bound`` equals the score; otherwise ``bound`` is inf. ``n_iter`` is the number of moves.
    Except for exact results, the search always uses its whole budget, and ``converged`` is always True.

    References
    ----------
    F. Hamze and N. de Freitas. From fields to trees. UAI 2004, :arxiv:`1207.4149` (trees given the rest). A. Selby.
    Efficient subgraph-based sampling of Ising-type models with frustration. arXiv:1409.3934, 2014 (subgraphs of low
    tree width). S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi. Optimization by simulated annealing. Science 220, 1983,
    :doi:`10.1126/science.220.4598.671`. G. Papandreou and A. Yuille. Perturb-and-MAP random fields. ICCV 2011,
    :doi:`10.1109/ICCV.2011.6126242` (noise). R. Tinos, D. Whitley, F. Chicano. Partition crossover for pseudo-Boolean
    optimization. FOGA 2015 (parts). D. Pisinger and S. Ropke. Large neighborhood search. Handbook of Metaheuristics,
    2010.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import ICM, LargeNeighborhoodSearch
    >>> from sklearn_crf.models import PairwiseModel
    >>> graph, rng = lattice((20, 20)), np.random.default_rng(0)
    >>> spin = np.array([-1.0, 1.0])
    >>> model = PairwiseModel(
    ...     graph,
    ...     np.zeros((400, 2)),
    ...     np.outer(spin, spin)[None],
    ...     edge_weight=rng.normal(size=graph.n_edges),
    ... )
    >>> climbed = ICM(n_restarts=5, random_state=0).map(model).score
    >>> found = LargeNeighborhoodSearch(max_work=1e7, random_state=0).map(model).score
    >>> round(climbed), round(found)
    (436, 499)
    """

    tasks = frozenset({"map"})
    takes = (PairwiseModel, FactorGraph)
    _ranges: ClassVar[dict] = {"n_restarts": at_least(1), "max_cells": at_least(4), "max_options": at_least(2)}
    max_work: float | None = None
    n_restarts: int = 4
    max_cells: int = 2**13
    max_options: int = 4
    random_state: int | np.random.RandomState | None = None

    def _check_model(self, model):
        super()._check_model(model)
        if self.max_work is not None:
            check_option(self.max_work, "max_work", lambda value: value >= 0, "be at least 0")

    def _map(self, model, *, init=None, n_threads=1):
        task = _Task(self, *search_problem(model))
        if not len(task.unary):
            labels = np.zeros(0, dtype=np.int32)
            return Labeling(labels, score(model, labels), bound=score(model, labels), state=labels)
        start = task.unary.argmax(axis=1) if init is None else _check_start(task.arrays.n_states, init)
        first = _Restart(task, 0, start.astype(np.int32))
        is_exact, chains = first.solve(), [first]
        if not is_exact:
            chains += [_Restart(task, number) for number in range(1, self.n_restarts)]
            _search(chains, n_threads, anneal_first=init is None)
        labels = _combine(chains)
        if init is not None and score(model, start) > score(model, labels):
            # Only rounding errors can make the result worse than the start.
            labels = np.array(start, dtype=np.int32)
        reached = score(model, labels)
        n_moves = sum(chain.n_moves for chain in chains)
        return Labeling(labels, reached, bound=reached if is_exact else np.inf, n_iter=n_moves, state=labels)


def _check_start(n_states, init):
    labels = as_array(init, "init")
    if labels.shape != n_states.shape or labels.dtype.kind not in "iub":
        raise ValueError(
            f"init must be {len(n_states)} integer labels, got an array of {labels.dtype} of shape {labels.shape}."
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= n_states))
    if len(wrong):
        s = wrong[0]
        raise ValueError(f"init[{s}] is {labels[s]}, but node {s} has {n_states[s]} states.")
    return labels


def _search(chains, n_threads, anneal_first):
    """Run all chains until the budget is used; at fixed fractions of the budget, the chains exchange results."""

    def begin(chain, n_threads):
        if anneal_first or chain is not chains[0]:
            chain.anneal()
        chain.settle()

    map_tasks(begin, chains, n_threads)
    for exchange in range(1, _tuning.N_EXCHANGES + 1):

        def proceed(chain, n_threads, share=exchange / _tuning.N_EXCHANGES):
            chain.proceed(share)

        map_tasks(proceed, chains, n_threads)
        found = [chain.best.copy() for chain in chains]
        for number, chain in enumerate(chains[: len(chains) * (len(chains) > 1)]):
            chain.take_over(found[number - 1])


def _combine(chains):
    """Improve and return the first chain's labels: first by parts of other chains' labels, then by single changes."""
    first = chains[0]
    for other in chains[1:]:
        first.take_over(other.best)
    first.climb()
    return first.best


class Region(NamedTuple):
    """Limits on a random subgraph."""

    largest_table: float  # base-2 logarithm of the number of cells of the largest table
    most_cells: float
    most_nodes: int
    connected: bool


class _Task:
    """Model, budget and seed, which all restarts share."""

    def __init__(self, options, arrays, unary):
        self.arrays, self.unary = arrays, unary
        self.seed = int(check_random_state(options.random_state).randint(np.iinfo(np.int64).max, dtype=np.int64))
        default = min(_tuning.DEFAULT_SWEEPS * arrays.work_of_sweep, _tuning.DEFAULT_WORK)
        self.work_of_chain = (default if options.max_work is None else options.max_work) / options.n_restarts
        self.most_states = int(arrays.n_states.max(initial=1))
        self.n_options = sorted({2, min(options.max_options, self.most_states), self.most_states})
        n_nodes, arity = len(unary), np.diff(arrays.slot_ptr)
        # Regions that are trees must be possible, however many states the nodes have.
        largest = max(np.log2(options.max_cells), 2 * np.log2(self.most_states))
        degree = float((arity * (arity - 1.0)).sum()) / max(n_nodes, 1)
        # If nodes have many neighbours, few nodes can be free at once, and larger regions would only take time.
        few, most = max(64, int(4 * largest * n_nodes / max(degree, 1.0))), min(n_nodes, _tuning.MOST_NODES)
        self.region = Region(largest, _tuning.MOST_CELLS, min(most, few), few >= most)
        self.smallest_table = min(max(4.0, 2 * np.log2(self.most_states)), self.region.largest_table)


class _Restart:
    """One restart, with the best labels that it has found and the budget that it has used."""

    def __init__(self, task: _Task, number: int, labels: np.ndarray | None = None) -> None:
        self.task, self.number = task, number
        self.rng = np.random.default_rng([task.seed, number])
        n_nodes, n_columns = task.unary.shape
        self.workspace = SearchWorkspace(n_nodes, len(task.arrays.table), n_columns)
        self.labels = self._draw_random_labels() if labels is None else labels
        self.best = self.labels.copy()
        self.cells = task.arrays.cells(task.unary, self.labels)
        self.scale = 0.0
        self.work = self.n_moves = self.n_draws = 0
        self.largest_table = min(_tuning.FIRST_TABLE, task.region.largest_table)
        # Work and number of successes of each kind of perturbation.
        self.spent, self.won = [0, 0], [1, 1]

    def _draw_random_labels(self):
        weight = np.where(np.isneginf(self.task.unary), 0.0, self.rng.random(self.task.unary.shape) + 1e-9)
        weight[np.arange(weight.shape[1]) >= self.task.arrays.n_states[:, None]] = 0.0
        return weight.argmax(axis=1).astype(np.int32)

    def solve(self) -> bool:
        """Try to solve the whole model at once and keep the labels; return whether the labels are exact."""
        self.largest_table = self.task.region.largest_table
        self._move(self.task.most_states, 0.0)
        whole = self.task.region.most_nodes == len(self.labels)
        self.best[:] = self.labels
        self.largest_table = self.task.smallest_table + 2
        return whole and self.workspace.n_kept == 0

    def anneal(self) -> None:
        """Make Gibbs sweeps at decreasing temperatures; the first temperature is the mean cost of a random change."""
        task = self.task
        affordable = _tuning.ANNEALED_SHARE * task.work_of_chain / task.arrays.work_of_sweep
        n_sweeps = int(min(_tuning.MOST_ANNEALING_SWEEPS, affordable))
        self.scale = self._compute_change_cost()
        for share in np.linspace(0, 1, n_sweeps):
            checkpoint()
            self._sweep(self.scale * _tuning.FROZEN**share)
        self._keep()

    def settle(self) -> None:
        """Make moves until they gain nothing, and set the scale of later temperatures."""
        for _ in range(_tuning.N_FIRST_DESCENTS):
            checkpoint()
            if self.work >= self.task.work_of_chain or self._move(self._choose_some_options(), 0.0) <= 0:
                break
        self._keep()
        self.scale = self._compute_change_cost()

    def proceed(self, share):
        """Perturb and improve the best labels until the given fraction of the budget is used."""
        while self.work < share * self.task.work_of_chain:
            checkpoint()
            before = self.work
            # Prefer the kind of perturbation with more successes per unit of work.
            kind = int(self.won[1] * (1 + self.spent[0]) > self.won[0] * (1 + self.spent[1]))
            temperature = self.scale * _tuning.COOLEST * (_tuning.HOTTEST / _tuning.COOLEST) ** self.rng.random()
            region_key = self._key()
            if kind == 0:
                self._move(self._choose_some_options(), temperature, temperature, region_key)
            else:
                for part in (1.0, 0.75, 0.5, 0.25, 0.0):
                    self._sweep(2 * temperature * part)
            for _ in range(_tuning.N_DESCENTS if kind == 0 else 1):
                self._move(self._choose_some_options(), temperature, 0.0, region_key)
            self.won[kind] += self._keep() > 0
            self.spent[kind] += self.work - before

    def take_over(self, labels):
        """Replace parts of the best labels by parts of other labels that have higher scores."""
        self.labels[:] = labels
        self.cells = self.task.arrays.cells(self.task.unary, self.labels)
        self._keep()

    def climb(self) -> None:
        """Change single nodes until no change increases the score."""
        while self._sweep(0.0):
            checkpoint()
        self.best[:] = self.labels

    def _compute_change_cost(self):
        return self.task.arrays.compute_mean_change_cost(self.task.unary, self.labels, self.cells, self.workspace)

    def _choose_some_options(self):
        return self.task.n_options[self.rng.integers(len(self.task.n_options))]

    def _key(self):
        self.n_draws += 1
        return stream_key(self.task.seed, self.number, self.n_draws)

    def _sweep(self, temperature):
        _, work, n_changes = annealing_sweep(
            self.task.arrays, self.task.unary, temperature, self._key(), self.labels, self.cells, self.workspace
        )
        self.work += work
        return n_changes

    def _move(self, most_options, temperature, noise=0.0, region_key=None):
        task = self.task
        gain, work, _ = subgraph_move(
            task.arrays,
            task.unary,
            task.region._replace(largest_table=self.largest_table),
            most_options,
            temperature,
            noise,
            self._key() if region_key is None else region_key,
            self._key(),
            self.labels,
            self.cells,
            self.workspace,
        )
        self.work += work
        self.n_moves += 1
        # Tables grow while the budget allows enough moves of the current cost, and shrink otherwise.
        growth = 1 if work * _tuning.N_MOVES < task.work_of_chain else -1
        self.largest_table = max(min(self.largest_table + growth, task.region.largest_table), task.smallest_table)
        return gain

    def _keep(self):
        """Undo changes where the current labels are worse than the best labels; return the gain of kept changes."""
        gain, work, _ = keep_better(
            self.task.arrays, self.task.unary, self.best, self.labels, self.cells, self.workspace
        )
        self.work += work
        self.best[:] = self.labels
        return gain
