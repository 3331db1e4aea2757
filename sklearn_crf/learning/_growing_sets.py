"""Sets of labelings for contrastive learning: initial sets, and rounds of training that extend them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_crf._reports import open_progress_reporter
from sklearn_crf._threads import map_tasks
from sklearn_crf.distributed import ClusterGoneError
from sklearn_crf.encoding import OperatorFeatures
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import ICM, convergence_left_to_caller
from sklearn_crf.inference._local_search import label_nodes_independently
from sklearn_crf.learning._convergence import minimize_in_bulk, warn_of_lbfgs
from sklearn_crf.learning._plan import FitPlan
from sklearn_crf.learning._solvers import SGD, Solver
from sklearn_crf.learning._training import PenalisedRisk, TrainingRecord
from sklearn_crf.models import FactorGraph, PairwiseModel, clamped
from sklearn_crf.objectives import (
    AssignmentSets,
    BlockLikelihood,
    ContrastiveSets,
    Generator,
    MapGenerator,
    MostViolated,
    Objective,
    Pseudolikelihood,
    SetsOfBatches,
    mask_known_surroundings,
)
from sklearn_crf.objectives._risk import build_model_by_weight
from sklearn_crf.objectives.contrastive._block_likelihood import check_block
from sklearn_crf.optimize import SHARE_LEFT, minimize_lbfgs, scaling_by_differences


class Member(NamedTuple):
    """Part of a batch that is passed to one call of a generator: one example, or a whole batch of forests."""

    # nodes, edges: ranges of the nodes and edges of the batch that belong to this part
    # key: number that identical examples share

    graph: Graph
    nodes: slice
    edges: slice
    key: int

    def part_of(self, model):
        """Return views of the part of a batch's model that belongs to this member."""
        # model: model of the whole batch
        # A batch of a factor graph contains a single example.
        if isinstance(model, FactorGraph) or self.graph is model.graph:
            return model
        return PairwiseModel(
            self.graph,
            model.unary[self.nodes],
            model.tables,
            model.edge_type[self.edges],
            None if model.edge_weight is None else model.edge_weight[self.edges],
            None if model.n_states is None else model.n_states[self.nodes],
        )


def split_into_members(batch, encoded, joins_forests=False):
    """Split a batch into the parts that generators process separately."""
    # joins_forests: whether a batch of forests stays one part, instead of being split into one part per example
    # returns list of Member, in the order of the nodes
    graph = batch.example.graph
    if joins_forests and graph.is_forest:
        return [Member(graph, slice(0, graph.n_nodes), slice(0, graph.n_edges), 0)]
    members: list[Member] = []
    # All examples of an array share one graph object, whose properties are cached.
    shared = Graph(1, []) if encoded.layout == "nodes" else encoded.graph
    for ends, i in zip(pairwise(batch.node_ptr.tolist()), batch.members.tolist(), strict=True):
        example = encoded.items[i] if encoded.layout == "list" else None
        features, own = (encoded.array[i], shared) if example is None else (example.node_features, example.graph)
        start = members[-1].edges.stop if members else 0
        key = _hash_example(features, batch.labels[slice(*ends)])
        members.append(Member(own, slice(*ends), slice(start, start + own.n_edges), key))
    return members


def _hash_example(features: Any, labels: np.ndarray) -> int:
    """Return a hash of an example's labels and node features; features given as operators are left out."""
    parts, found = [labels], blake2b(digest_size=8)
    if not isinstance(features, OperatorFeatures):
        parts += [features.data, features.indices] if sp.issparse(features) else [features]
    for values in parts:
        found.update(np.ascontiguousarray(values).data)
    return int.from_bytes(found.digest())


class ContrastiveObjective(SetsOfBatches):
    """Contrastive objective with tractable sub-objectives and a growing set of assignments for each batch."""

    # families: list of list of Objective, the sub-objectives of each batch
    # sets: list of AssignmentSets, the sets of each batch
    # members: list of list of Member, the parts of each batch on which generators run
    # plan: PlannedSets, whose generators extend the sets
    # node_costs: for each batch (N,) or None, factors of node costs in generators of violated constraints
    # grows: list of (N,) bool, for each batch a mask of the nodes in examples whose sets may grow

    def __init__(self, families, sets, members, plan, node_costs, grows):
        self.members, self.node_costs, self.grows = members, node_costs, grows
        self.generators, self.n_new, self.are_drawn = plan.generators, plan.options.n_new, plan.options.are_drawn
        super().__init__(list(map(ContrastiveSets, sets, families)))
        self.weighs_nodes = any(isinstance(generator, MostViolated) for generator in self.generators)
        # State: sets; last labelings for each persistent generator and repetition; number of visits to each batch.
        self.grown = sets, [{} for _ in sets], np.zeros(len(sets), dtype=np.int64)

    @property
    def grown(self):
        """State that changes in training: sets, last labelings of persistent generators, and visits to each batch."""
        return self.sets, self.latest, self.n_visits

    @grown.setter
    def grown(self, grown):
        self.sets, self.latest, self.n_visits = grown
        for whole, sets in zip(self.objectives, self.sets, strict=True):
            whole.sets = sets


class PlannedSets(Objective):
    """Plan of a contrastive objective, from which each shard of the examples builds its own objective."""

    # options: ContrastiveTraining, the learning method
    # generators: list of Generator, which generate labelings in training
    # n_examples: total number of examples in all shards
    # first: number of the first example of each shard
    # observed: (m, *lattice) int32, labelings in all shards if init is "observed" and examples are in shards; else None

    of_examples = True

    def __init__(self, options, n_examples, labels, first=(0,), observed=None):
        self.options, self.n_examples, self.first, self.observed = options, n_examples, first, observed
        self.generators = options.generators(labels)
        blocks = options.blocks
        if isinstance(blocks, list) and options.init == "gpl" and len(blocks) != n_examples:
            raise ValueError(f"blocks holds lists for {len(blocks)} examples, but X has {n_examples}.")
        self._given = None
        if options.given:
            self._given = _check_sets(options.given, options.given_weight, labels.classes_, n_examples)

    def objective(self, encoded, batches, potentials, place=0):
        """Return the objective of the examples of one shard."""
        options, first = self.options, self.first[place]
        zeros = np.zeros(potentials.n_coef)
        models = [build_model_by_weight(potentials, zeros, batch) for batch in batches]
        sets = [
            AssignmentSets(
                model,
                # Near unlabelled nodes, all assignments of a set agree.
                # Unlabelled nodes can therefore have any allowed state.
                np.where(batch.labels < 0, label_nodes_independently(model), batch.labels),
                batch.node_ptr,
                np.diff(batch.node_ptr) if options.generated_weight == "n_nodes" else options.generated_weight,
            )
            for model, batch in zip(models, batches, strict=True)
        ]
        kept = [mask_known_surroundings(model, batch.labels) for model, batch in zip(models, batches, strict=True)]
        families = [[Pseudolikelihood()] if options.init in ("pl", "observed") else [] for _ in batches]
        if options.init == "gpl":
            blocks = [_build_batch_blocks(options.blocks, encoded, batch, first) for batch in batches]
            families = [
                [BlockLikelihood(batch.example.graph, [block[of_batch[block]] for block in own])]
                for batch, own, of_batch in zip(batches, blocks, kept, strict=True)
            ]
        joins_forests = all(map(_is_unique_on_forests, self.generators))
        members = [split_into_members(batch, encoded, joins_forests) for batch in batches]
        grows = [_mask_growing_nodes(batch, options.init) & own for batch, own in zip(batches, kept, strict=True)]
        node_costs = [batch.node_weight for batch in batches]
        objective = ContrastiveObjective(families, sets, members, self, node_costs, grows)
        if options.init == "observed":
            observed = collect_observed_labelings(encoded, batches) if self.observed is None else self.observed
            if not len(observed):
                raise ValueError(
                    "init='observed' needs an example whose nodes are all labelled, but y has none: use init='pl'."
                )
            _add_sets([observed], np.ones((1, 1)), encoded, batches, potentials, objective, kept)
        if self._given is not None:
            given, weight = self._given
            of_place = weight.reshape(len(given), -1)
            if of_place.shape[1] > 1:
                of_place = of_place[:, first : first + encoded.n_examples]
            _add_sets(given, of_place, encoded, batches, potentials, objective, kept, options.given_log_proposal)
        return objective


def _is_unique_on_forests(generator: Generator) -> bool:
    """Return whether the labelings that a generator finds on forests are the same for any random numbers."""
    if isinstance(generator, MostViolated):
        return _is_unique_on_forests(generator.generator)
    return isinstance(generator, MapGenerator) and not isinstance(generator.inference, ICM)


def _mask_growing_nodes(batch, init):
    """Return a mask of the nodes that belong to examples with growing contrastive sets.

    If init is "empty", all sets may grow. Otherwise sets only grow in examples with edges, because the initial
    objective of an example without edges already is the likelihood.
    """
    sizes, has_edges = np.diff(batch.node_ptr), np.full(len(batch.members), init == "empty")
    first_nodes = batch.example.graph.edges[:, 0]
    scopes = [found.scope for found in batch.example.factors.values()]
    scopes += [np.array([list(scope)]) for scope, _ in batch.example.fixed_factors]
    first_nodes = np.concatenate((first_nodes, *(scope[:, 0] for scope in scopes if scope.shape[1])))
    has_edges[np.searchsorted(batch.node_ptr, first_nodes, side="right") - 1] = True
    return np.repeat(has_edges, sizes)


def _add_sets(given, weight, encoded, batches, potentials, objective, kept, log_proposal=None):
    """Add each set of assignments to the examples that have its lattice shape and whose true labeling it contains."""
    # kept: list of (N,) bool, for each batch a mask of the nodes at which assignments may differ
    # given: list of (m, *lattice) int32, labelings of each set, as class indices
    # weight: (n_sets, 1) or (n_sets, n_examples), weights of the sets
    # log_proposal: list of (m,), log-probability with which each labeling was drawn; or None
    log_proposal = [None] * len(given) if log_proposal is None else log_proposal
    zeros = np.zeros(potentials.n_coef)
    weight = np.broadcast_to(weight, (len(given), encoded.n_examples))
    for batch, sets, own in zip(batches, objective.sets, kept, strict=True):
        model = build_model_by_weight(potentials, zeros, batch)
        for member, i in enumerate(batch.members):
            for labelings, weight_of_set, drawn in zip(given, weight[:, i], log_proposal, strict=True):
                if labelings.shape[1:] == encoded.label_shape(i):
                    nodes = slice(*batch.node_ptr[member : member + 2])
                    rows = np.where(own[nodes], labelings.reshape(len(labelings), -1), sets.labels[nodes])
                    sets.add_set(model, rows, member=member, weight=weight_of_set, log_proposal=drawn)


def _check_sets(sets, set_weight, classes, n_examples):
    """Check the given sets; return their labelings as class indices, and the weights of the sets."""
    columns = []
    for j, labelings in enumerate(sets):
        labelings = np.asarray(labelings)
        if labelings.ndim < 1 or labelings.dtype == object:
            raise ValueError(f"given[{j}] must be an array of labelings, (m, *lattice), got shape {labelings.shape}.")
        found = np.searchsorted(classes, labelings).clip(max=len(classes) - 1)
        wrong = labelings[classes[found] != labelings]
        if wrong.size:
            raise ValueError(f"given[{j}] contains the label {wrong.flat[0]}, which is not one of the classes.")
        columns.append(found.astype(np.int32))
    weight = np.ones(len(columns)) if set_weight is None else np.asarray(set_weight, dtype=np.float64)
    if weight.shape not in ((len(columns),), (len(columns), n_examples)):
        raise ValueError(
            f"given_weight must have shape ({len(columns)},) or ({len(columns)}, {n_examples}), got {weight.shape}."
        )
    if not np.all(np.isfinite(weight) & (weight >= 0)):
        raise ValueError(
            f"given_weight must be finite and not negative, got values from {weight.min()} to {weight.max()}."
        )
    return columns, weight


def collect_observed_labelings(encoded, batches):
    """Return the distinct labelings among the fully labelled training examples with positive weight."""
    # returns (m, *lattice) int32
    shapes = {encoded.label_shape(i) for batch in batches for i in batch.members}
    _require_one_lattice(shapes)
    rows = np.concatenate([batch.counted_labels.reshape(len(batch.members), -1) for batch in batches])
    rows = rows[(rows >= 0).all(axis=1)]
    rows = np.unique(rows, axis=0)
    return rows.reshape(len(rows), *shapes.pop())


def join_labelings(parts):
    """Return the distinct labelings of several arrays of labelings."""
    # parts: list of (m, *lattice) int32, arrays of labelings
    _require_one_lattice({part.shape[1:] for part in parts})
    return np.unique(np.concatenate(parts), axis=0)


def _require_one_lattice(shapes):
    if len(shapes) > 1:
        a, b = sorted(shapes)[:2]
        raise ValueError(f"init='observed' needs examples with one lattice shape, found labels of shapes {a} and {b}.")


def _build_batch_blocks(blocks, encoded, batch, first_example):
    """Return the blocks of all examples in a batch, as arrays of the batch's node numbers."""
    # first_example: position in the list `blocks` of the first encoded example
    found: list[np.ndarray] = []
    for (first, stop), i in zip(pairwise(batch.node_ptr), batch.members, strict=True):
        given = isinstance(blocks, list)
        number = first_example + i
        of_example = blocks[number] if given else _build_lattice_blocks(blocks, encoded.label_shape(i), i)
        # Node numbers have to be checked: a number that is too large would belong to the next example of the batch.
        found.extend(
            check_block(part, stop - first, f"blocks[{number}][{k}]") + first for k, part in enumerate(of_example)
        )
    return found


def _build_lattice_blocks(blocks, shape, i):
    index = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    if isinstance(blocks, str):
        if len(shape) < 2:
            raise ValueError(f"blocks={blocks!r} needs lattices of two axes or more, but X[{i}] has shape {shape}.")
        lines = index if blocks == "rows" else index.swapaxes(-1, -2)
        return lines.reshape(-1, lines.shape[-1])
    # Clip the window to the lattice.
    window = tuple(min(blocks, length) for length in shape)
    return np.lib.stride_tricks.sliding_window_view(index, window).reshape(-1, int(np.prod(window)))


@dataclass(eq=False)
class RoundsRecord(TrainingRecord):
    """Record of training in rounds: iterates, and growth of the sets."""

    # n_generated: list of int, number of new assignments of each round
    # round_starts: list of int, index of the record entry at which each round begins
    # converged: whether the last round generated no new assignments and its weights converged
    # n_assignments: number of assignments in all sets at the end
    # inference: name of the inference for prediction, if training has chosen one; else None
    # warn: function that warns if the last round did not converge; not called if the caller uses other weights

    n_generated: list = field(default_factory=list)
    round_starts: list = field(default_factory=list)
    n_assignments: int = 0
    inference: str | None = None
    warn: Callable[[], None] = lambda: None

    def fitted(self):
        found = super().fitted() | {
            "n_rounds_": len(self.n_generated),
            "n_generated_": np.array(self.n_generated, dtype=np.int64),
            "n_assignments_": self.n_assignments,
            "round_starts_": np.array(self.round_starts, dtype=np.int64),
        }
        return found if self.inference is None else found | {"inference_": self.inference}


def extend_sets(risk, coef, members=None):
    """Generate labelings of the given batches, add them to the sets, and return the number of new labelings.

    The random seed of an example depends on its labels and features. The result therefore depends neither on the number
    of threads nor on the order of the examples, and copies of an example get the same labelings.
    """
    members = range(len(risk.batches)) if members is None else [int(i) for i in members]
    counts = map_tasks(lambda i, n_threads: _extend(risk, i, coef, n_threads), members, risk.n_jobs)
    risk.objective.n_visits[list(members)] += 1
    return sum(counts)


def _extend(risk, i, coef, n_threads):
    batch, objective = risk.batches[i], risk.objective
    grows = objective.grows[i]
    if not grows.any():
        return 0
    model, _ = risk.build_model_by_weight(i, coef)
    whole = model
    truth, known, counts = objective.sets[i].labels, batch.labels >= 0, grows
    if batch.weight is not None:
        # Examples of weight zero must have no effect.
        counts = grows & np.repeat(batch.weight > 0, np.diff(batch.node_ptr))
    if not known.all():
        # The nodes that may change have only labelled neighbours. Unlabelled nodes therefore need not be clamped.
        model = clamped(model, np.where(grows | ~known, -1, truth))
    parts = [(member, member.part_of(model)) for member in objective.members[i]]
    n_new = 0
    for number, generator in enumerate(objective.generators):
        for repetition in range(objective.n_new):
            key = risk.seed, objective.n_visits[i], number, repetition
            with convergence_left_to_caller(), batch.named_in_errors():
                latest = objective.latest[i].get((number, repetition))
                labels = _generate(generator, truth, objective.node_costs[i], parts, key, n_threads, latest)
            if generator.persistent:
                objective.latest[i][number, repetition] = labels
            labels = np.where(counts, labels, truth)
            n_new += objective.sets[i].extend(whole, labels, are_drawn=objective.are_drawn)
    return n_new


def _generate(generator, truth, cost, parts, key, n_threads, latest):
    """Run a generator on each member of a batch, and return the joined labeling of the batch."""
    # key: numbers that, together with the key of a member, form the seed of the member's random numbers

    def start_of(member):
        return {"start": None if latest is None else latest[member.nodes]} if generator.persistent else {}

    return np.concatenate(
        [
            generator(
                part,
                truth[member.nodes],
                np.random.RandomState(np.array([*key, member.key], dtype=np.uint64).view(np.uint32)),
                node_weight=None if cost is None else cost[member.nodes],
                n_threads=n_threads,
                **start_of(member),
            )
            for member, part in parts
        ]
    )


def _count_assignments(risk):
    return sum(part.n_assignments for part in risk.objective.sets)


def train_by_rounds(risk, start: np.ndarray, sets, solver: Solver, run: FitPlan) -> RoundsRecord:
    """Minimise a contrastive objective while its sets grow."""
    # risk: EmpiricalRisk of a ContrastiveObjective, or ShardedRisk whose shards have one objective each
    # start: (n_coef,), initial weights
    # sets: ContrastiveTraining, the learning method
    # run: options; ``on_iteration`` is called after every round or, if the solver is SGD, after every epoch
    # run.held_out: object that chooses the best round if training did not converge, or None
    # returns RoundsRecord. With ``run.keeps_interrupted``, Ctrl-C ends training and is stored in the record.
    by_epochs = isinstance(solver, SGD)
    n_steps = run.max_iter if by_epochs else sets.max_rounds + 1
    n_visits = n_steps if by_epochs else n_steps * run.max_iter
    problem = PenalisedRisk(risk, run.C, n_visits, run.edge_C, run.outer_gradient)
    problem.record = record = RoundsRecord(risk.path, coef=np.array(start))
    train = _train_by_epochs if by_epochs else _train_in_rounds
    n_given = risk.summed(_count_assignments)
    with open_progress_reporter(run.verbose, n_steps, "contrastive") as show:

        def report(coef):
            n_new = f", {record.n_generated[-1]} new" if record.n_generated else ""
            show(lambda: record.summary() + n_new)
            return run.on_iteration(coef)

        try:
            train(problem, partial(risk.summed, extend_sets, changes=True), sets, solver, run, report)
        except (KeyboardInterrupt, ClusterGoneError) as interruption:
            if not run.keeps_interrupted or record.latest is None:
                raise
            record.coef, record.interrupted = record.latest, interruption
    record.n_assignments = n_given + sum(record.n_generated)
    return record


# Candidate ratios of edge_C to C; number of iterations for each ratio.
# The largest ratio gives the best labels for noisy squares and street scenes, the smallest for photographs of horses.
# The ratio with the best accuracy on training examples is chosen.
_EDGE_SHARES, _N_ITER_OF_SHARE = (1e-6, 1e-5, 1e-4, 1e-3), 30


def choose_edge_penalty(risk, start: np.ndarray, run: FitPlan, score) -> tuple[float, np.ndarray, float]:
    """Choose the inverse penalty strength of edges by training accuracy; return the strength, weights and accuracy."""
    # score: function of weights that returns the fraction of correctly labelled nodes
    chosen = run.C, start, -np.inf
    for share in _EDGE_SHARES:
        problem = PenalisedRisk(risk, run.C, _N_ITER_OF_SHARE, share * run.C)
        scaling = _choose_scaling(problem, start)
        start = minimize_lbfgs(problem.evaluate, start, max_iter=_N_ITER_OF_SHARE, tol=run.tol, scaling=scaling).x
        found = score(start)
        if found > chosen[2]:
            chosen = share * run.C, start, found
    return chosen


# Maximum number of weights for which curvatures are estimated by finite differences, with one evaluation per weight.
# Minimum curvature, as a fraction of the largest curvature; smaller curvatures are raised to the minimum.
# Weights are scaled because edges are penalised up to 1e6 times as strongly as nodes.
# Without scaling, L-BFGS would be far from the minimum after hundreds of iterations.
_MOST_DIFFERENCES, _LEAST_CURVATURE = 64, 1e-6


def _choose_scaling(problem: PenalisedRisk, coef: np.ndarray) -> np.ndarray | None:
    """Return the scaling of the weights by the curvature of a penalised risk, or None if there are too many weights."""
    if len(coef) > _MOST_DIFFERENCES:
        return None
    return scaling_by_differences(problem.evaluate, coef, floor=_LEAST_CURVATURE)


_STILL_NEW = "STOP: max_rounds reached while the sets were still growing"


def _train_in_rounds(problem, generate, sets, solver, run, report):
    record, generators = problem.record, problem.risk.objective.generators
    n_rounds = sets.max_rounds if generators else 0
    n_short = run.max_iter if sets.max_round_iter is None else min(run.max_iter, sets.max_round_iter)
    is_last, round_ends = not n_rounds, []
    while True:
        # The sets have grown, so the loss at the same weights has changed and must be evaluated again.
        problem.evaluate(record.coef)
        record.round_starts.append(record.n_iter)
        problem.visit(record.coef)
        max_iter = run.max_iter if is_last else n_short
        options = {"tol": run.tol, "most_left": SHARE_LEFT, "callback": lambda point: problem.visit(point.x)}
        n_left = partial(_n_left, record, record.n_iter + max_iter)
        # Short rounds end before convergence, so that more rounds generate labelings.
        scaling = _choose_scaling(problem, record.coef) if max_iter == run.max_iter else None
        found = minimize_lbfgs(problem.evaluate, record.coef, max_iter=max_iter, scaling=scaling, **options)
        found = minimize_in_bulk(minimize_lbfgs, problem, found, n_left, **options)
        record.coef = found.x
        round_ends.append(record.n_iter - 1)
        if generators and run.held_out is not None:
            run.held_out.visit(found.x)
        record.stopped = report(found.x)
        if record.stopped:
            break
        if len(record.n_generated) == n_rounds:
            record.converged = not generators
            break
        record.n_generated.append(generate(found.x))
        is_finished = found.success or max_iter == run.max_iter
        if not record.n_generated[-1] and is_finished:
            record.converged = True
            break
        # If a shortened round generates no new labelings, the next round is a full round.
        # The better weights of a full round may still generate new labelings.
        is_last = not record.n_generated[-1] or len(record.n_generated) == n_rounds
    record.stop_reason, record.best_iter = found.message, record.n_iter - 1
    if record.stopped:
        record.stop_reason = "STOP: by the callback"
    elif generators and found.success and not record.converged:
        record.stop_reason = _STILL_NEW
    elif not found.success:
        record.converged = False
        record.warn = partial(warn_of_lbfgs, found, problem, run.max_iter)
    if generators and run.held_out is not None and not record.converged:
        run.held_out.choose(record)
        record.best_iter = round_ends[record.best_iter]


def _n_left(record, last):
    return last - record.n_iter


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
        record.stopped = report(point.x)
        return record.stopped

    found = solver.minimize_by_epochs(problem, record.coef, run, gradient, callback)
    record.coef, record.stop_reason, record.best_iter = found.x, found.message, record.n_iter - 1
    record.converged = bool(found.success and (not record.n_generated or record.n_generated[-1] == 0))
