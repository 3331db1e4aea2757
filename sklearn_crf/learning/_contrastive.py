"""Contrastive constraint generation: optimise, look for assignments that the model likes too well, add them, repeat."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf._callbacks import progress_reporter
from sklearn_crf._threads import map_tasks
from sklearn_crf.encoding import require_complete
from sklearn_crf.estimators._training import Outcome, PenalisedRisk, minimize_by_epochs, warn_of_lbfgs
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.models import PairwiseModel
from sklearn_crf.objectives import (
    AssignmentSets,
    BatchObjectives,
    BlockLikelihood,
    ContrastiveSets,
    Pseudolikelihood,
    SumOfObjectives,
)
from sklearn_crf.objectives.contrastive._block_likelihood import checked_block
from sklearn_crf.optimize import minimize_lbfgs


class Member(NamedTuple):
    """Examples of a batch on which inference runs at once: one, or all where they are forests.

    Attributes
    ----------
    graph : Graph
    nodes, edges : slice
        Which of the batch.
    """

    graph: Graph
    nodes: slice
    edges: slice

    def part_of(self, model):
        """Model of the member.

        Parameters
        ----------
        model : PairwiseModel
            Of the batch.

        Returns
        -------
        PairwiseModel
            Views of it.
        """
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
    """What inference must keep apart in a batch.

    Parameters
    ----------
    batch : Batch
    encoded : Encoded

    Returns
    -------
    list of Member
        In the order of the nodes.
    """
    graph = batch.example.graph
    if len(batch.members) == 1 or graph.is_forest:
        return [Member(graph, slice(0, graph.n_nodes), slice(0, graph.n_edges))]
    # All lattices of one array share their graph, and what is derived of it.
    graphs = [encoded.graph if encoded.layout == "array" else encoded.items[i].graph for i in batch.members]
    edge_ptr = np.concatenate(([0], np.cumsum([part.n_edges for part in graphs])))
    return [
        Member(part, slice(*batch.node_ptr[k : k + 2]), slice(*edge_ptr[k : k + 2])) for k, part in enumerate(graphs)
    ]


#: Sub-objectives to begin with.
INITS = ("pl", "gpl", "observed", "empty")


class ContrastiveObjective(BatchObjectives):
    """For each batch a family of tractable sub-objectives, and sets of assignments that may grow.

    Parameters
    ----------
    families : list of list of Objective
        For each batch.
    sets : list of AssignmentSets
        For each batch.
    members : list of list of Member
        For each batch what generators run on.

    Attributes
    ----------
    generators : list of Generator
        What extends the sets.
    node_costs : list of ndarray of shape (N,), or None
        For each batch what its nodes cost, for generators that look for violated constraints.
    """

    def __init__(self, families, sets, members):
        self.sets, self.members = sets, members
        self.generate_by([], [None] * len(sets))
        parts = zip(families, sets, strict=True)
        super().__init__([SumOfObjectives([*family, ContrastiveSets(part)]) for family, part in parts])

    def generate_by(self, generators, node_costs):
        """Set what extends the sets."""
        self.generators, self.node_costs = generators, node_costs


def initial_objective(init, blocks, generated_weight, encoded, batches, potentials):
    """Objective without any assignments but those that ``init`` names.

    Parameters
    ----------
    init : str
        One of ``INITS``.
    blocks : "rows", "columns", int or list
        Blocks of ``"gpl"``.
    generated_weight : "n_nodes" or float
        Of the set of each example that gathers what is generated.
    encoded : Encoded
    batches : list of Batch
    potentials : LinearPotentials

    Returns
    -------
    ContrastiveObjective
    """
    zeros = np.zeros(potentials.n_coef)
    sets = [
        AssignmentSets(
            potentials.model(zeros, batch.example),
            require_complete(batch, "contrastive learning"),
            batch.node_ptr,
            np.diff(batch.node_ptr) if generated_weight == "n_nodes" else generated_weight,
        )
        for batch in batches
    ]
    families = [[Pseudolikelihood()] if init in ("pl", "observed") else [] for _ in batches]
    if init == "gpl":
        families = [[BlockLikelihood(b.example.graph, _blocks_of_batch(blocks, encoded, b))] for b in batches]
    objective = ContrastiveObjective(families, sets, [members_of(batch, encoded) for batch in batches])
    if init == "observed":
        add_sets([_observed(encoded, batches)], np.ones(1), encoded, batches, potentials, objective)
    return objective


def add_sets(given, weight, encoded, batches, potentials, objective):
    """Add sets of assignments to all examples of their lattice whose labels are in them.

    Parameters
    ----------
    given : list of ndarray of shape (m, *lattice), int32
        Columns of classes.
    weight : ndarray of shape (n_sets,) or (n_sets, n_examples)
    encoded : Encoded
    batches : list of Batch
    potentials : LinearPotentials
    objective : ContrastiveObjective
    """
    zeros = np.zeros(potentials.n_coef)
    weight = np.broadcast_to(weight.reshape(len(given), -1), (len(given), encoded.n_examples))
    for batch, sets in zip(batches, objective.sets, strict=True):
        model = potentials.model(zeros, batch.example)
        for member, i in enumerate(batch.members):
            for labelings, weight_of_set in zip(given, weight[:, i], strict=True):
                if labelings.shape[1:] == _label_shape(encoded, i):
                    rows = labelings.reshape(len(labelings), -1)
                    sets.add_set(model, rows, member=member, weight=weight_of_set)


def checked_sets(sets, set_weight, classes, n_examples):
    """Given sets as columns of classes, and their weights.

    Parameters
    ----------
    sets : list of array-like
    set_weight : array-like or None
    classes : ndarray of shape (n_classes,)
    n_examples : int

    Returns
    -------
    sets : list of ndarray, int32
    weight : ndarray

    Raises
    ------
    ValueError
        If a label is no class or the weights do not fit.
    """
    columns = []
    for j, labelings in enumerate(sets):
        labelings = np.asarray(labelings)
        if labelings.ndim < 1 or labelings.dtype == object:
            raise ValueError(f"sets[{j}] must be an array of labelings, (m, *lattice), got shape {labelings.shape}.")
        found = np.searchsorted(classes, labelings).clip(max=len(classes) - 1)
        wrong = labelings[classes[found] != labelings]
        if wrong.size:
            raise ValueError(f"sets[{j}] holds the label {wrong.flat[0]}, which is not among the classes.")
        columns.append(found.astype(np.int32))
    weight = np.ones(len(columns)) if set_weight is None else np.asarray(set_weight, dtype=np.float64)
    if weight.shape not in ((len(columns),), (len(columns), n_examples)):
        raise ValueError(
            f"set_weight must have shape ({len(columns)},) or ({len(columns)}, {n_examples}), got {weight.shape}."
        )
    if not np.all(np.isfinite(weight) & (weight >= 0)):
        raise ValueError("set_weight must be finite and not negative.")
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


class ContrastiveOptions(NamedTuple):
    """Constructor parameters that govern training."""

    solver: str
    C: float
    n_new: int
    max_rounds: int
    step_size: float
    step_schedule: str
    batch_size: int
    max_iter: int
    tol: float
    keeps_interrupted: bool
    verbose: int


@dataclass(eq=False)
class RoundsOutcome(Outcome):
    """What training found, and how its sets grew."""

    n_generated: list = field(default_factory=list)  # new assignments of each round
    round_starts: list = field(default_factory=list)  # entries of the trace at which rounds begin
    converged: bool = False
    n_assignments: int = 0


@dataclass(eq=False)
class Progress:
    """What a progress bar shows: an entry a round, or an epoch."""

    outcome: RoundsOutcome
    loss: list = field(default_factory=list)

    def summary(self):
        """The latest entry in words."""
        text = self.outcome.trace.summary()
        return f"{text}, {self.outcome.n_generated[-1]} new" if self.outcome.n_generated else text


class Generation:
    """Assignments for some batches under the weights of now.

    Every batch, and every visit to it, has random numbers of its own, so that nothing depends on the number of threads.
    """

    def __init__(self, risk, n_repetitions):
        self.risk = risk
        self._n_repetitions = n_repetitions
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
                    labels = self._generate(generator, i, parts, rng, n_threads)
                n_new += objective.sets[i].extend(model, _of_weight(batch, labels))
        return n_new

    def _generate(self, generator, i, parts, rng, n_threads):
        """One labeling of all members of batch i."""
        batch, cost = self.risk.batches[i], self.risk.objective.node_costs[i]
        return np.concatenate(
            [
                generator(
                    part,
                    batch.labels[member.nodes],
                    rng,
                    node_weight=None if cost is None else cost[member.nodes],
                    n_threads=n_threads,
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


def train_by_rounds(risk, start, options, rng, on_iteration):
    """Minimise a contrastive objective whose sets grow on the way.

    Parameters
    ----------
    risk : EmpiricalRisk
        Of a :class:`~sklearn_crf.estimators._contrastive_training.ContrastiveObjective`.
    start : ndarray of shape (n_coef,)
    options : ContrastiveOptions
    rng : RandomState
        For the order of mini-batches.
    on_iteration : callable(coef) -> bool
        Called after every round, or epoch of stochastic gradient descent; True asks to stop.

    Returns
    -------
    RoundsOutcome
        After Ctrl-C with ``keeps_interrupted`` it carries the interruption, to be raised once stored.
    """
    by_epochs = options.solver == "sgd"
    n_steps = options.max_iter if by_epochs else options.max_rounds + 1
    problem = PenalisedRisk(risk, options.C, n_steps if by_epochs else n_steps * options.max_iter)
    outcome = RoundsOutcome(np.array(start), problem.trace, 0)
    with progress_reporter(options.verbose, n_steps, "contrastive") as show:
        progress = Progress(outcome)

        def report(coef):
            progress.loss.append(problem.trace.loss[-1])
            show(progress)
            return on_iteration(coef)

        try:
            run = _train_sgd if by_epochs else _train_rounds
            run(problem, Generation(risk, options.n_new), options, outcome, rng, report)
        except KeyboardInterrupt as interruption:
            if not options.keeps_interrupted or problem.trace.latest is None:
                raise
            outcome.coef, outcome.interrupted = problem.trace.latest, interruption
    outcome.n_iter = len(problem.trace.loss)
    outcome.n_assignments = sum(sets.n_assignments for sets in risk.objective.sets)
    return outcome


def _train_rounds(problem, generate, options, outcome, rng, report):
    limits = {"max_iter": options.max_iter, "tol": options.tol}
    while True:
        # The same weights have another loss since the sets have grown.
        problem.evaluate(outcome.coef)
        outcome.round_starts.append(len(problem.trace.loss))
        problem.record(outcome.coef)
        found = minimize_lbfgs(problem.evaluate, outcome.coef, callback=lambda p: problem.record(p.x), **limits)
        outcome.coef = found.x
        if report(found.x):
            break
        if len(outcome.n_generated) == options.max_rounds or not problem.risk.objective.generators:
            outcome.converged = not problem.risk.objective.generators
            break
        outcome.n_generated.append(generate(found.x))
        if not outcome.n_generated[-1]:
            outcome.converged = True
            break
    if not found.success:
        warn_of_lbfgs(found, problem)


def _train_sgd(problem, generate, options, outcome, rng, report):
    n_epochs, n_with_generation = 0, options.max_rounds if problem.risk.objective.generators else 0

    def gradient(members, coef):
        if n_epochs < n_with_generation:
            if n_epochs == len(outcome.n_generated):
                outcome.n_generated.append(0)
                outcome.round_starts.append(n_epochs)
            outcome.n_generated[n_epochs] += generate(coef, members)
        return problem.evaluate(coef, members)

    def callback(point):
        nonlocal n_epochs
        n_epochs += 1
        problem.record(point.x)
        return report(point.x)

    found = minimize_by_epochs(problem, outcome.coef, options, rng, gradient, callback)
    outcome.coef = found.x
    outcome.converged = not outcome.n_generated or outcome.n_generated[-1] == 0
