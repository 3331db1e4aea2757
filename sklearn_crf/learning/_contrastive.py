"""Contrastive constraint generation: optimise, look for assignments that the model likes too well, add them, repeat."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from numbers import Integral, Real
from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._reports import progress_reporter
from sklearn_crf._threads import map_tasks
from sklearn_crf.encoding import require_complete
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import ICM, LoopyBP, convergence_left_to_caller
from sklearn_crf.learning._rules import map_inference
from sklearn_crf.learning._solvers import SGD, Solver, warn_of_lbfgs
from sklearn_crf.learning._training import PenalisedRisk, TrainingRecord, TrainingRun, cost_matrix
from sklearn_crf.models import PairwiseModel
from sklearn_crf.objectives import (
    AssignmentSets,
    BatchObjectives,
    BlockLikelihood,
    ContrastiveSets,
    Generator,
    GibbsGenerator,
    MapGenerator,
    MostViolated,
    Pseudolikelihood,
    SumOfObjectives,
)
from sklearn_crf.objectives.contrastive._block_likelihood import checked_block
from sklearn_crf.optimize import minimize_lbfgs


class Member(NamedTuple):
    """Examples of a batch on which inference runs together: one, or all where they are forests."""

    # nodes, edges: those of the batch that belong to it

    graph: Graph
    nodes: slice
    edges: slice

    def part_of(self, model):
        """Model of the member."""
        # model: that of the batch; returns views of it
        if self.graph is model.graph:
            return model
        return PairwiseModel(
            self.graph,
            model.unary[self.nodes],
            model.tables,
            model.edge_type[self.edges],
            None if model.edge_weight is None else model.edge_weight[self.edges],
            None if model.n_states is None else model.n_states[self.nodes],
        )


def members_of(batch, encoded):
    """Examples that inference must keep apart in a batch."""
    # returns list of Member, in the order of the nodes
    graph = batch.example.graph
    if len(batch.members) == 1 or graph.is_forest:
        return [Member(graph, slice(0, graph.n_nodes), slice(0, graph.n_edges))]
    # All lattices of one array share their graph, and the properties derived from it.
    graphs = [encoded.graph if encoded.layout == "array" else encoded.items[i].graph for i in batch.members]
    edge_ptr = np.concatenate(([0], np.cumsum([part.n_edges for part in graphs])))
    return [
        Member(part, slice(*batch.node_ptr[k : k + 2]), slice(*edge_ptr[k : k + 2])) for k, part in enumerate(graphs)
    ]


#: Sub-objectives to begin with.
INITS = ("pl", "gpl", "observed", "empty")

#: Generators of labelings by name; those that end in "mv" look for violated constraints.
GENERATORS = ("icm", "map", "gibbs", "icm_mv", "map_mv", "gibbs_mv")


class GrowingSets(BaseEstimator):
    r"""Sets of labelings among which the truth is to be probable, and how they grow.

    Parameters
    ----------
    init : {"pl", "gpl", "observed", "empty"}, default="pl"
        Sub-objectives to begin with: the pseudolikelihood; the generalised one of ``blocks``; the pseudolikelihood and
        one set of all labelings seen in training, for examples of one lattice ("Contrastive" of the paper); or none.
    generator : str, Generator, list or None, default="map"
        What finds further labelings: "map", max-product from random messages; "icm", iterated conditional modes from
        random labels, quicker and more varied; "gibbs", ten Gibbs sweeps from the truth. "icm_mv", "map_mv" and
        "gibbs_mv" add the number of errors to the scores (most violated constraints). Or a
        :class:`~sklearn_crf.objectives.MapGenerator`, :class:`~sklearn_crf.objectives.GibbsGenerator` or
        :class:`~sklearn_crf.objectives.MostViolated`; a list takes all that it holds, None generates nothing.
    blocks : {"rows", "columns"}, int or list, default=2
        Blocks of ``init="gpl"``: lines of a lattice, windows of so many nodes a side, or for each example a list of
        arrays of nodes. Nodes are numbered in the order of the labels.
    given : list of array-like of shape (m, \\*lattice), optional
        Labelings of further sets ("Simple Contrastive"); each is for the examples of its lattice whose labels it holds.
    given_weight : array-like of shape (n_sets,) or (n_sets, n_examples), optional
        :math:`w_j(x_i)` of ``given``; None is one. See :func:`~sklearn_crf.objectives.decomposed_weights`.
    given_log_proposal : list of array-like of shape (m,), optional
        Logarithm of the probability with which each labeling of ``given`` was drawn, up to a constant: labelings weigh
        its inverse. See :meth:`AssignmentSets.add_set <sklearn_crf.objectives.AssignmentSets.add_set>`.
    generated_weight : float or "n_nodes", default=1.0
        :math:`w_j` of the set of an example that collects generated labelings: one in the paper. Pseudolikelihood has a
        term for each node; "n_nodes" weighs the set as much.
    are_drawn : bool, default=False
        Whether generated labelings weigh the inverse of their probability under the weights that generated them. Those
        of a persistent :class:`~sklearn_crf.objectives.GibbsGenerator` are draws, and the set is then an estimate of
        the likelihood near these weights.
    n_new : int, default=1
        Labelings of each example, generator and round.
    max_rounds : int, default=10
        Most rounds of generation; for stochastic gradient descent, epochs with generation.
    max_round_iter : int or None, default=10
        Most iterations of L-BFGS in a round that is followed by generation. The last round has ``max_iter`` of the
        estimator, and so does the one after a round cut short that found nothing new; None gives it to all rounds.

    Examples
    --------
    >>> from sklearn_crf import ContrastiveCRF
    >>> from sklearn_crf.learning import GrowingSets
    >>> ContrastiveCRF(sets=GrowingSets(generator="icm")).set_params(
    ...     sets__max_rounds=5
    ... ).sets
    GrowingSets(generator='icm', max_rounds=5)
    """

    _parameter_constraints: ClassVar[dict] = {
        "init": [StrOptions(set(INITS))],
        "generator": [StrOptions(set(GENERATORS)), Generator, list, None],
        "blocks": [StrOptions({"rows", "columns"}), Interval(Integral, 1, None, closed="left"), list],
        "given": [list, None],
        "given_weight": ["array-like", None],
        "given_log_proposal": [list, None],
        "are_drawn": ["boolean"],
        "generated_weight": [Interval(Real, 0, None, closed="neither"), StrOptions({"n_nodes"})],
        "n_new": [Interval(Integral, 1, None, closed="left")],
        "max_rounds": [Interval(Integral, 0, None, closed="left")],
        "max_round_iter": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        init: str = "pl",
        generator: str | Generator | list | None = "map",
        blocks: str | int | list = 2,
        given: list | None = None,
        given_weight=None,
        given_log_proposal: list | None = None,
        generated_weight: float | str = 1.0,
        are_drawn: bool = False,
        n_new: int = 1,
        max_rounds: int = 10,
        max_round_iter: int | None = 10,
    ):
        self.init = init
        self.generator = generator
        self.blocks = blocks
        self.given = given
        self.given_weight = given_weight
        self.given_log_proposal = given_log_proposal
        self.generated_weight = generated_weight
        self.are_drawn = are_drawn
        self.n_new = n_new
        self.max_rounds = max_rounds
        self.max_round_iter = max_round_iter

    def check(self, labels) -> None:
        """Raise where a parameter is out of its range, or has no meaning beside another or for the classes.

        Parameters
        ----------
        labels : EncodedLabels
        """
        self._validate_params()
        self._generators(labels)
        if self.given_weight is not None and not self.given:
            raise ValueError("given_weight weighs the sets that given names, but there are none.")
        n_given = len(self.given or [])
        if self.given_log_proposal is not None and len(self.given_log_proposal) != n_given:
            raise ValueError(
                f"given_log_proposal must hold an array for each set of given, which has {n_given}, got "
                f"{len(self.given_log_proposal)}."
            )

    def _generators(self, labels):
        several = self.generator if isinstance(self.generator, list) else [self.generator]
        return [_generator(item, labels) for item in several if item is not None]

    def objective(self, encoded, batches, labels, potentials):
        """The contrastive objective of the sets to begin with, and the generators that extend them.

        Parameters
        ----------
        encoded : Encoded
        batches : list of Batch
        labels : EncodedLabels
        potentials : LinearPotentials

        Returns
        -------
        ContrastiveObjective
        """
        if isinstance(self.blocks, list) and self.init == "gpl" and len(self.blocks) != encoded.n_examples:
            raise ValueError(f"blocks holds lists for {len(self.blocks)} examples, but X has {encoded.n_examples}.")
        objective = _initial_objective(self, encoded, batches, potentials)
        if self.given:
            given = _checked_sets(self.given, self.given_weight, labels.classes_, encoded.n_examples)
            _add_sets(*given, encoded, batches, potentials, objective, self.given_log_proposal)
        objective.generate_by(self._generators(labels), [batch.node_weight for batch in batches])
        return objective


def resolve_sets(sets: str | GrowingSets) -> GrowingSets:
    """The sets of a constructor parameter: the name of the initial sets, or an object."""
    return clone(sets) if isinstance(sets, GrowingSets) else GrowingSets(init=sets)


def _generator(item, labels):
    if isinstance(item, MostViolated):
        generator = _generator(item.generator, labels)
        return clone(item).set_params(generator=generator, cost=cost_matrix(item.cost, None, labels))
    if isinstance(item, MapGenerator):
        return clone(item).set_params(inference=_generating_inference(item.inference))
    if isinstance(item, Generator):
        return item
    if item not in GENERATORS:
        raise ValueError(f"generator must hold names among {', '.join(GENERATORS)} or generators, got {item!r}.")
    kind, _, violated = item.partition("_")
    generator = GibbsGenerator(10) if kind == "gibbs" else MapGenerator(ICM() if kind == "icm" else "auto")
    return _generator(MostViolated(generator, "hamming") if violated else generator, labels)


def _generating_inference(inference):
    if isinstance(inference, str) and inference == "auto":
        # Residual scheduling is the paper's.
        return LoopyBP(schedule="residual")
    return map_inference(inference, "a generator of labelings")


class ContrastiveObjective(BatchObjectives):
    """For each batch a family of tractable sub-objectives, and sets of assignments that may grow."""

    # families: list of list of Objective, for each batch
    # sets: list of AssignmentSets, for each batch
    # members: list of list of Member, for each batch the parts that generators run on
    # generators: list of Generator, which extend the sets
    # node_costs: for each batch the costs of its nodes, (N,) or None, for generators of violated constraints

    def __init__(self, families, sets, members):
        self.sets, self.members = sets, members
        self.generate_by([], [None] * len(sets))
        parts = zip(families, sets, strict=True)
        super().__init__([SumOfObjectives([*family, ContrastiveSets(part)]) for family, part in parts])

    def generate_by(self, generators, node_costs):
        """Set what extends the sets."""
        self.generators, self.node_costs = generators, node_costs
        self.weighs_nodes = any(isinstance(generator, MostViolated) for generator in generators)


def _initial_objective(options, encoded, batches, potentials):
    """Objective without any assignments but those that ``options.init`` names."""
    zeros = np.zeros(potentials.n_coef)
    sets = [
        AssignmentSets(
            potentials.model(zeros, batch.example),
            require_complete(batch, "contrastive learning"),
            batch.node_ptr,
            np.diff(batch.node_ptr) if options.generated_weight == "n_nodes" else options.generated_weight,
        )
        for batch in batches
    ]
    init = options.init
    families = [[Pseudolikelihood()] if init in ("pl", "observed") else [] for _ in batches]
    if init == "gpl":
        families = [[BlockLikelihood(b.example.graph, _blocks_of_batch(options.blocks, encoded, b))] for b in batches]
    objective = ContrastiveObjective(families, sets, [members_of(batch, encoded) for batch in batches])
    if init == "observed":
        _add_sets([_observed(encoded, batches)], np.ones(1), encoded, batches, potentials, objective)
    return objective


def _add_sets(given, weight, encoded, batches, potentials, objective, log_proposal=None):
    """Add sets of assignments to all examples of their lattice whose labels are in them."""
    # given: list of (m, *lattice) int32, columns of classes; weight: (n_sets,) or (n_sets, n_examples)
    # log_proposal: list of (m,), or None
    log_proposal = [None] * len(given) if log_proposal is None else log_proposal
    zeros = np.zeros(potentials.n_coef)
    weight = np.broadcast_to(weight.reshape(len(given), -1), (len(given), encoded.n_examples))
    for batch, sets in zip(batches, objective.sets, strict=True):
        model = potentials.model(zeros, batch.example)
        for member, i in enumerate(batch.members):
            for labelings, weight_of_set, drawn in zip(given, weight[:, i], log_proposal, strict=True):
                if labelings.shape[1:] == _label_shape(encoded, i):
                    rows = labelings.reshape(len(labelings), -1)
                    sets.add_set(model, rows, member=member, weight=weight_of_set, log_proposal=drawn)


def _checked_sets(sets, set_weight, classes, n_examples):
    """Given sets as columns of classes, and their weights."""
    columns = []
    for j, labelings in enumerate(sets):
        labelings = np.asarray(labelings)
        if labelings.ndim < 1 or labelings.dtype == object:
            raise ValueError(f"given[{j}] must be an array of labelings, (m, *lattice), got shape {labelings.shape}.")
        found = np.searchsorted(classes, labelings).clip(max=len(classes) - 1)
        wrong = labelings[classes[found] != labelings]
        if wrong.size:
            raise ValueError(f"given[{j}] holds the label {wrong.flat[0]}, which is not among the classes.")
        columns.append(found.astype(np.int32))
    weight = np.ones(len(columns)) if set_weight is None else np.asarray(set_weight, dtype=np.float64)
    if weight.shape not in ((len(columns),), (len(columns), n_examples)):
        raise ValueError(
            f"given_weight must have shape ({len(columns)},) or ({len(columns)}, {n_examples}), got {weight.shape}."
        )
    if not np.all(np.isfinite(weight) & (weight >= 0)):
        raise ValueError(f"given_weight must be finite and not negative, got {weight.min()} to {weight.max()}.")
    return columns, weight


def _label_shape(encoded, i):
    return () if encoded.layout == "nodes" else encoded.label_shape(i)


def _observed(encoded, batches):
    """All different labelings of the training examples."""
    shapes = {_label_shape(encoded, i) for batch in batches for i in batch.members}
    if len(shapes) > 1:
        a, b = sorted(shapes)[:2]
        raise ValueError(f"init='observed' needs examples of one lattice, found labels of shapes {a} and {b}.")
    (shape,) = shapes
    rows = np.concatenate([batch.labels.reshape(len(batch.members), -1) for batch in batches])
    rows = np.unique(rows, axis=0)
    return rows.reshape(len(rows), *shape)


def _blocks_of_batch(blocks, encoded, batch):
    """Blocks of the examples of a batch, in the numbers of its nodes."""
    found = []
    for (first, stop), i in zip(pairwise(batch.node_ptr), batch.members, strict=True):
        given = isinstance(blocks, list)
        of_example = blocks[i] if given else _blocks_of_lattice(blocks, _label_shape(encoded, i), i)
        # A number too large would be a node of the next example.
        found.extend(
            checked_block(part, stop - first, f"blocks[{i}][{k}]") + first for k, part in enumerate(of_example)
        )
    return found


def _blocks_of_lattice(blocks, shape, i):
    index = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    if isinstance(blocks, str):
        if len(shape) < 2:
            raise ValueError(f"blocks={blocks!r} needs lattices of two axes or more, X[{i}] has shape {shape}.")
        lines = index if blocks == "rows" else index.swapaxes(-1, -2)
        return lines.reshape(-1, lines.shape[-1])
    # A window is no longer than the lattice.
    window = tuple(min(blocks, length) for length in shape)
    return np.lib.stride_tricks.sliding_window_view(index, window).reshape(-1, int(np.prod(window)))


@dataclass(eq=False)
class RoundsRecord(TrainingRecord):
    """Iterates of training in rounds, and how its sets grew."""

    # n_generated: list of int, new assignments of each round
    # round_starts: list of int, entries of the record at which rounds begin
    # converged: whether the last round found nothing new, and its weights converged
    # n_assignments: number of assignments in all sets at the end
    # inference: what predicts with the weights, where training chose it
    # warn: tells of a last round that did not converge; the caller calls it, who may have better weights

    n_generated: list = field(default_factory=list)
    round_starts: list = field(default_factory=list)
    converged: bool = False
    n_assignments: int = 0
    inference: str | None = None
    warn: Callable[[], None] = lambda: None


@dataclass(eq=False)
class _Progress:
    """Entries of a progress bar, one a round or an epoch."""

    record: RoundsRecord
    loss: list = field(default_factory=list)

    def summary(self):
        text = self.record.summary()
        return f"{text}, {self.record.n_generated[-1]} new" if self.record.n_generated else text


class Generation:
    """Assignments for some batches under the weights of now.

    Every batch, and every visit to it, has random numbers of its own, so that nothing depends on the number of threads.
    """

    def __init__(self, risk, sets):
        self.risk = risk
        self._n_repetitions, self._are_drawn = sets.n_new, sets.are_drawn
        # Last labelings of persistent generators, by batch, generator and repetition.
        self._latest = [{} for _ in risk.batches]
        self._n_visits = np.zeros(len(risk.batches), dtype=np.int64)

    def __call__(self, coef, members=None):
        """Extend the sets; number of assignments that are new."""
        members = range(len(self.risk.batches)) if members is None else [int(i) for i in members]
        counts = map_tasks(lambda i, n_threads: self._extend(i, coef, n_threads), members, self.risk.n_jobs)
        self._n_visits[list(members)] += 1
        return sum(counts)

    def _extend(self, i, coef, n_threads):
        batch, objective = self.risk.batches[i], self.risk.objective
        model = self.risk.potentials.model(coef, batch.example)
        parts = [(member, member.part_of(model)) for member in objective.members[i]]
        n_new = 0
        for number, generator in enumerate(objective.generators):
            for repetition in range(self._n_repetitions):
                rng = _random_state(self.risk.seed, i, self._n_visits[i], number, repetition)
                with convergence_left_to_caller(), batch.named_in_errors():
                    latest = self._latest[i].get((number, repetition))
                    labels = self._generate(generator, i, parts, rng, n_threads, latest)
                if generator.persistent:
                    self._latest[i][number, repetition] = labels
                n_new += objective.sets[i].extend(model, _of_weight(batch, labels), are_drawn=self._are_drawn)
        return n_new

    def _generate(self, generator, i, parts, rng, n_threads, latest):
        """One labeling of all members of batch i."""
        batch, cost = self.risk.batches[i], self.risk.objective.node_costs[i]

        def start_of(member):
            return {"start": None if latest is None else latest[member.nodes]} if generator.persistent else {}

        return np.concatenate(
            [
                generator(
                    part,
                    batch.labels[member.nodes],
                    rng,
                    node_weight=None if cost is None else cost[member.nodes],
                    n_threads=n_threads,
                    **start_of(member),
                )
                for member, part in parts
            ]
        )


def _random_state(*key):
    return np.random.RandomState(np.random.SeedSequence([int(part) for part in key]).generate_state(4))


def _of_weight(batch, labels):
    """Labels generated, the true ones where an example weighs nothing: it is as if it were not there."""
    if batch.weight is None or batch.weight.all():
        return labels
    return np.where(np.repeat(batch.weight > 0, np.diff(batch.node_ptr)), labels, batch.labels)


def train_by_rounds(risk, start: np.ndarray, sets: GrowingSets, solver: Solver, run: TrainingRun) -> RoundsRecord:
    """Minimise a contrastive objective whose sets grow on the way."""
    # risk: EmpiricalRisk of a ContrastiveObjective
    # start: (n_coef,)
    # run: ``on_iteration`` is called after every round, or epoch of stochastic gradient descent
    # run.held_out: chooses among rounds of which none came to an end, or None
    # returns RoundsRecord; after Ctrl-C with ``run.keeps_interrupted`` it carries the interruption
    by_epochs = isinstance(solver, SGD)
    n_steps = run.max_iter if by_epochs else sets.max_rounds + 1
    n_visits = n_steps if by_epochs else n_steps * run.max_iter
    problem = PenalisedRisk(risk, run.C, n_visits, run.edge_C, run.outer_gradient)
    problem.record = record = RoundsRecord(coef=np.array(start))
    train = _train_by_epochs if by_epochs else _train_in_rounds
    progress = _Progress(record)
    with progress_reporter(run.verbose, n_steps, "contrastive") as show:

        def report(coef):
            progress.loss.append(record.loss[-1])
            show(progress)
            return run.on_iteration(coef)

        try:
            train(problem, Generation(risk, sets), sets, solver, run, report)
        except KeyboardInterrupt as interruption:
            if not run.keeps_interrupted or record.latest is None:
                raise
            record.coef, record.interrupted = record.latest, interruption
    record.n_assignments = sum(part.n_assignments for part in risk.objective.sets)
    return record


# Shares of C that edges may have, and iterations for each. Labels of noisy squares and street scenes are best by the
# largest, those of photographs of horses by the least; the labels of training examples tell which.
_EDGE_SHARES, _N_ITER_OF_SHARE = (1e-6, 1e-5, 1e-4, 1e-3), 30


def choose_edge_penalty(risk, start: np.ndarray, run: TrainingRun, score) -> tuple[float, np.ndarray, float]:
    """Inverse strength of the penalty on edges under which the first sets label training examples best, the weights
    and their score."""
    # score: share of the nodes that weights label right
    chosen = run.C, start, -np.inf
    for share in _EDGE_SHARES:
        problem = PenalisedRisk(risk, run.C, _N_ITER_OF_SHARE, share * run.C)
        start = minimize_lbfgs(problem.evaluate, start, max_iter=_N_ITER_OF_SHARE, tol=run.tol).x
        found = score(start)
        if found > chosen[2]:
            chosen = share * run.C, start, found
    return chosen


def _train_in_rounds(problem, generate, sets, solver, run, report):
    record, generators = problem.record, problem.risk.objective.generators
    n_rounds = sets.max_rounds if generators else 0
    n_short = run.max_iter if sets.max_round_iter is None else min(run.max_iter, sets.max_round_iter)
    is_last, round_ends = not n_rounds, []
    while True:
        # The same weights have another loss since the sets have grown.
        problem.evaluate(record.coef)
        record.round_starts.append(record.n_iter)
        problem.visit(record.coef)
        max_iter = run.max_iter if is_last else n_short
        found = minimize_lbfgs(
            problem.evaluate, record.coef, callback=lambda p: problem.visit(p.x), max_iter=max_iter, tol=run.tol
        )
        record.coef = found.x
        round_ends.append(record.n_iter - 1)
        if generators and run.held_out is not None:
            run.held_out.visit(found.x)
        if report(found.x):
            break
        if len(record.n_generated) == n_rounds:
            record.converged = not generators
            break
        record.n_generated.append(generate(found.x))
        is_finished = found.success or max_iter == run.max_iter
        if not record.n_generated[-1] and is_finished:
            record.converged = True
            break
        # Weights of a round cut short may miss what better ones find.
        is_last = not record.n_generated[-1] or len(record.n_generated) == n_rounds
    record.stop_reason, record.best_iter = found.message, record.n_iter - 1
    if not found.success:
        record.converged = False
        record.warn = partial(warn_of_lbfgs, found, problem)
    if generators and run.held_out is not None and not record.converged:
        run.held_out.choose(record)
        record.best_iter = round_ends[record.best_iter]


def _train_by_epochs(problem, generate, sets, solver, run, report):
    record = problem.record
    n_epochs, n_with_generation = 0, sets.max_rounds if problem.risk.objective.generators else 0

    def gradient(members, coef):
        if n_epochs < n_with_generation:
            if n_epochs == len(record.n_generated):
                record.n_generated.append(0)
                record.round_starts.append(n_epochs)
            record.n_generated[n_epochs] += generate(coef, members)
        return problem.evaluate(coef, members)

    def callback(point):
        nonlocal n_epochs
        n_epochs += 1
        problem.visit(point.x)
        return report(point.x)

    found = solver.minimize_by_epochs(problem, record.coef, run, gradient, callback)
    record.coef, record.stop_reason, record.best_iter = found.x, found.message, record.n_iter - 1
    record.converged = bool(found.success and (not record.n_generated or record.n_generated[-1] == 0))
