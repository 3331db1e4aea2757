"""Sets of labelings among which the truth is to be probable: those to begin with, and what extends them."""

from itertools import pairwise
from numbers import Integral, Real
from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._versions import HoldsOptions
from sklearn_crf.encoding import in_class_order, require_complete
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import ICM, LoopyBP
from sklearn_crf.learning._rules import map_inference
from sklearn_crf.learning._training import cost_matrix
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
    Objective,
    Pseudolikelihood,
    SumOfObjectives,
)
from sklearn_crf.objectives.contrastive._block_likelihood import checked_block
from sklearn_crf.objectives.contrastive._contrastive_sets import PassOfSets


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
_BY_COSTS = ("icm_mv", "map_mv", "gibbs_mv")


class GrowingSets(HoldsOptions):
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
        self.generators(labels)
        if self.given_weight is not None and not self.given:
            raise ValueError("given_weight weighs the sets that given names, but there are none.")
        n_given = len(self.given or [])
        if self.given_log_proposal is not None and len(self.given_log_proposal) != n_given:
            raise ValueError(
                f"given_log_proposal must hold an array for each set of given, which has {n_given}, got "
                f"{len(self.given_log_proposal)}."
            )

    def check_shards(self) -> None:
        """Raise where a parameter needs the labels of all examples in memory."""
        for item in self._items():
            while isinstance(item, MostViolated):
                if isinstance(item.cost, str) and item.cost == "weighted":
                    raise ValueError(
                        "MostViolated(cost='weighted') counts labels in memory, not in Shards: pass the matrix of "
                        "costs."
                    )
                item = item.generator

    def _items(self):
        several = self.generator if isinstance(self.generator, list) else [self.generator]
        return [item for item in several if item is not None]

    @property
    def has_costs(self) -> bool:
        """Whether a generator looks for labelings by what errors cost at each node."""
        return any(isinstance(item, MostViolated) or str(item) in _BY_COSTS for item in self._items())

    def generators(self, labels) -> list[Generator]:
        """Generators of further labelings, as objects.

        Parameters
        ----------
        labels : EncodedLabels

        Returns
        -------
        list of Generator
        """
        return [_generator(item, labels) for item in self._items()]

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
        return PlannedSets(self, encoded.n_examples, labels).objective(encoded, batches, potentials)


def resolve_sets(sets: str | GrowingSets, classes=None) -> GrowingSets:
    """The sets of a constructor parameter: the name of the initial sets, or an object."""
    # classes: as the estimator names them, in the order of the costs
    if not isinstance(sets, GrowingSets):
        return GrowingSets(init=sets)
    sets = clone(sets)
    for item in sets._items():
        while isinstance(item, MostViolated):
            item.set_params(cost=in_class_order(item.cost, classes))
            item = item.generator
    return sets


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
    # plan: PlannedSets, whose generators extend the sets
    # node_costs: for each batch the costs of its nodes, (N,) or None, for generators of violated constraints
    # grows: for each batch the nodes of examples whose sets may grow, (N,) of bool

    def __init__(self, families, sets, members, plan, node_costs, grows):
        self.members, self.node_costs, self.grows = members, node_costs, grows
        self.generators, self.n_new, self.are_drawn = plan.generators, plan.options.n_new, plan.options.are_drawn
        parts = zip(families, sets, strict=True)
        super().__init__([SumOfObjectives([*family, ContrastiveSets(part)]) for family, part in parts])
        self.weighs_nodes = any(isinstance(generator, MostViolated) for generator in self.generators)
        # Last labelings of persistent generators, by generator and repetition, and visits of each batch.
        self.grown = sets, [{} for _ in sets], np.zeros(len(sets), dtype=np.int64)

    def whole_pass(self, potentials, batches, n_jobs=1):
        return PassOfSets.of(self, potentials, batches, n_jobs)

    @property
    def grown(self):
        """The sets, the last labelings of persistent generators, and how often each batch was visited."""
        return self.sets, self.latest, self.n_visits

    @grown.setter
    def grown(self, grown):
        self.sets, self.latest, self.n_visits = grown
        for whole, sets in zip(self.objectives, self.sets, strict=True):
            whole.parts[-1].sets = sets


class PlannedSets(Objective):
    """A contrastive objective of examples that may be in several places: each makes its own, by one plan."""

    # options: GrowingSets
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
        sets = [
            AssignmentSets(
                potentials.model(zeros, batch.example),
                require_complete(batch, "contrastive learning"),
                batch.node_ptr,
                np.diff(batch.node_ptr) if options.generated_weight == "n_nodes" else options.generated_weight,
            )
            for batch in batches
        ]
        families = [[Pseudolikelihood()] if options.init in ("pl", "observed") else [] for _ in batches]
        if options.init == "gpl":
            blocks = [_blocks_of_batch(options.blocks, encoded, batch, first) for batch in batches]
            families = [[BlockLikelihood(b.example.graph, own)] for b, own in zip(batches, blocks, strict=True)]
        members = [members_of(batch, encoded) for batch in batches]
        grows = [_nodes_of_growing_sets(batch, options.init) for batch in batches]
        node_costs = [batch.node_weight for batch in batches]
        objective = ContrastiveObjective(families, sets, members, self, node_costs, grows)
        if options.init == "observed":
            observed = observed_labelings(encoded, batches) if self.observed is None else self.observed
            _add_sets([observed], np.ones((1, 1)), encoded, batches, potentials, objective)
        if self._given is not None:
            given, weight = self._given
            of_place = weight.reshape(len(given), -1)
            if of_place.shape[1] > 1:
                of_place = of_place[:, first : first + encoded.n_examples]
            _add_sets(given, of_place, encoded, batches, potentials, objective, options.given_log_proposal)
        return objective


def _nodes_of_growing_sets(batch, init):
    """Nodes of examples whose sets to begin with are less than the likelihood, which those of nodes alone are."""
    sizes, has_edges = np.diff(batch.node_ptr), np.full(len(batch.members), init == "empty")
    first_nodes = batch.example.graph.edges[:, 0]
    has_edges[np.searchsorted(batch.node_ptr, first_nodes, side="right") - 1] = True
    return np.repeat(has_edges, sizes)


def _add_sets(given, weight, encoded, batches, potentials, objective, log_proposal=None):
    """Add sets of assignments to all examples of their lattice whose labels are in them."""
    # given: list of (m, *lattice) int32, columns of classes; weight: (n_sets, 1) or (n_sets, n_examples)
    # log_proposal: list of (m,), or None
    log_proposal = [None] * len(given) if log_proposal is None else log_proposal
    zeros = np.zeros(potentials.n_coef)
    weight = np.broadcast_to(weight, (len(given), encoded.n_examples))
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


def observed_labelings(encoded, batches):
    """All different labelings of the training examples."""
    # returns (m, *lattice) int32
    shapes = {_label_shape(encoded, i) for batch in batches for i in batch.members}
    _require_one_lattice(shapes)
    rows = np.concatenate([batch.labels.reshape(len(batch.members), -1) for batch in batches])
    return np.unique(rows, axis=0).reshape(-1, *shapes.pop())


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
    found = []
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
