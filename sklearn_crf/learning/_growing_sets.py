"""Sets of labelings among which the truth is to be probable: those to begin with, and what extends them."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf.graphs import Graph
from sklearn_crf.models import PairwiseModel
from sklearn_crf.objectives import (
    AssignmentSets,
    BlockLikelihood,
    ContrastiveSets,
    MostViolated,
    Objective,
    Pseudolikelihood,
    SetsOfBatches,
    with_known_surroundings,
)
from sklearn_crf.objectives._risk import model_by_weight
from sklearn_crf.objectives.contrastive._block_likelihood import checked_block


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


class ContrastiveObjective(SetsOfBatches):
    """For each batch a family of tractable sub-objectives, and sets of assignments that may grow."""

    # families: list of list of Objective, for each batch
    # sets: list of AssignmentSets, for each batch
    # members: list of list of Member, for each batch the parts that generators run on
    # plan: PlannedSets, whose generators extend the sets
    # node_costs: for each batch the costs of its nodes, (N,) or None, for generators of violated constraints
    # grows: for each batch the nodes of examples whose sets may grow, (N,) of bool

    def __init__(self, families, sets, members, plan, node_costs, grows):
        self.members, self.node_costs, self.grows = members, node_costs, grows
        self.generators, self.n_new, self.are_drawn = plan.generators, plan.options.n_new, plan.options.are_drawn
        super().__init__(list(map(ContrastiveSets, sets, families)))
        self.weighs_nodes = any(isinstance(generator, MostViolated) for generator in self.generators)
        # Last labelings of persistent generators, by generator and repetition, and visits of each batch.
        self.grown = sets, [{} for _ in sets], np.zeros(len(sets), dtype=np.int64)

    @property
    def grown(self):
        """The sets, the last labelings of persistent generators, and how often each batch was visited."""
        return self.sets, self.latest, self.n_visits

    @grown.setter
    def grown(self, grown):
        self.sets, self.latest, self.n_visits = grown
        for whole, sets in zip(self.objectives, self.sets, strict=True):
            whole.sets = sets


class PlannedSets(Objective):
    """A contrastive objective of examples that may be in several places: each makes its own, by one plan."""

    # options: ContrastiveTraining
    # generators: list of Generator
    # n_examples: of all places together
    # first: number of the first example of each place, where there are several
    # observed: (m, *lattice) int32, all labelings seen in training, for init="observed" in several places

    of_examples = True

    def __init__(self, options, n_examples, labels, first=(0,), observed=None):
        self.options, self.n_examples, self.first, self.observed = options, n_examples, first, observed
        self.generators = options.generators(labels)
        blocks = options.blocks
        if isinstance(blocks, list) and options.init == "gpl" and len(blocks) != n_examples:
            raise ValueError(f"blocks holds lists for {len(blocks)} examples, but X has {n_examples}.")
        self._given = None
        if options.given:
            self._given = _checked_sets(options.given, options.given_weight, labels.classes_, n_examples)

    def objective(self, encoded, batches, potentials, place=0):
        """The objective of the examples of one place."""
        options, first = self.options, self.first[place]
        zeros = np.zeros(potentials.n_coef)
        models = [model_by_weight(potentials, zeros, batch) for batch in batches]
        sets = [
            AssignmentSets(
                model,
                # Assignments do not differ near unlabelled nodes: any state that is allowed will do there.
                np.where(batch.labels < 0, np.argmax(model.unary, axis=1), batch.labels).astype(np.int32),
                batch.node_ptr,
                np.diff(batch.node_ptr) if options.generated_weight == "n_nodes" else options.generated_weight,
            )
            for model, batch in zip(models, batches, strict=True)
        ]
        kept = [with_known_surroundings(batch.example, batch.labels) for batch in batches]
        families = [[Pseudolikelihood()] if options.init in ("pl", "observed") else [] for _ in batches]
        if options.init == "gpl":
            blocks = [_blocks_of_batch(options.blocks, encoded, batch, first) for batch in batches]
            families = [
                [BlockLikelihood(batch.example.graph, [block[of_batch[block]] for block in own])]
                for batch, own, of_batch in zip(batches, blocks, kept, strict=True)
            ]
        members = [members_of(batch, encoded) for batch in batches]
        grows = [_nodes_of_growing_sets(batch, options.init) & own for batch, own in zip(batches, kept, strict=True)]
        node_costs = [batch.node_weight for batch in batches]
        objective = ContrastiveObjective(families, sets, members, self, node_costs, grows)
        if options.init == "observed":
            observed = observed_labelings(encoded, batches) if self.observed is None else self.observed
            if not len(observed):
                raise ValueError(
                    "init='observed' needs an example all of whose nodes are labelled, and y has none: take init='pl'."
                )
            _add_sets([observed], np.ones((1, 1)), encoded, batches, potentials, objective, kept)
        if self._given is not None:
            given, weight = self._given
            of_place = weight.reshape(len(given), -1)
            if of_place.shape[1] > 1:
                of_place = of_place[:, first : first + encoded.n_examples]
            _add_sets(given, of_place, encoded, batches, potentials, objective, kept, options.given_log_proposal)
        return objective


def _nodes_of_growing_sets(batch, init):
    """Nodes of examples whose sets to begin with are less than the likelihood, which those of nodes alone are."""
    sizes, has_edges = np.diff(batch.node_ptr), np.full(len(batch.members), init == "empty")
    first_nodes = batch.example.graph.edges[:, 0]
    has_edges[np.searchsorted(batch.node_ptr, first_nodes, side="right") - 1] = True
    return np.repeat(has_edges, sizes)


def _add_sets(given, weight, encoded, batches, potentials, objective, kept, log_proposal=None):
    """Add sets of assignments to all examples of their lattice whose labels are in them."""
    # kept: for each batch the nodes at which assignments may differ, (N,) of bool
    # given: list of (m, *lattice) int32, columns of classes; weight: (n_sets, 1) or (n_sets, n_examples)
    # log_proposal: list of (m,), or None
    log_proposal = [None] * len(given) if log_proposal is None else log_proposal
    zeros = np.zeros(potentials.n_coef)
    weight = np.broadcast_to(weight, (len(given), encoded.n_examples))
    for batch, sets, own in zip(batches, objective.sets, kept, strict=True):
        model = model_by_weight(potentials, zeros, batch)
        for member, i in enumerate(batch.members):
            for labelings, weight_of_set, drawn in zip(given, weight[:, i], log_proposal, strict=True):
                if labelings.shape[1:] == _label_shape(encoded, i):
                    nodes = slice(*batch.node_ptr[member : member + 2])
                    rows = np.where(own[nodes], labelings.reshape(len(labelings), -1), sets.labels[nodes])
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


def observed_labelings(encoded, batches):
    """All different labelings of the training examples that weigh anything."""
    # returns (m, *lattice) int32
    shapes = {_label_shape(encoded, i) for batch in batches for i in batch.members}
    _require_one_lattice(shapes)
    rows = np.concatenate([batch.counted_labels.reshape(len(batch.members), -1) for batch in batches])
    rows = rows[(rows >= 0).all(axis=1)]
    rows = np.unique(rows, axis=0)
    return rows.reshape(len(rows), *shapes.pop())


def joined_labelings(parts):
    """All different labelings of several sets of them."""
    # parts: list of (m, *lattice) int32
    _require_one_lattice({part.shape[1:] for part in parts})
    return np.unique(np.concatenate(parts), axis=0)


def _require_one_lattice(shapes):
    if len(shapes) > 1:
        a, b = sorted(shapes)[:2]
        raise ValueError(f"init='observed' needs examples of one lattice, found labels of shapes {a} and {b}.")


def _blocks_of_batch(blocks, encoded, batch, first_example):
    """Blocks of the examples of a batch, in the numbers of its nodes."""
    # first_example: number, among those that blocks lists, of the first one here
    found: list[np.ndarray] = []
    for (first, stop), i in zip(pairwise(batch.node_ptr), batch.members, strict=True):
        given = isinstance(blocks, list)
        number = first_example + i
        of_example = blocks[number] if given else _blocks_of_lattice(blocks, _label_shape(encoded, i), i)
        # A number too large would be a node of the next example.
        found.extend(
            checked_block(part, stop - first, f"blocks[{number}][{k}]") + first for k, part in enumerate(of_example)
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
