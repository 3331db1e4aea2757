"""What a contrastive field begins with: families and sets of assignments for each batch."""

from itertools import pairwise

import numpy as np

from sklearn_crf.estimators._batch_members import members_of
from sklearn_crf.estimators._complete_labels import require_complete
from sklearn_crf.objectives import (
    AssignmentSets,
    BatchObjectives,
    BlockLikelihood,
    ContrastiveSets,
    Pseudolikelihood,
    SumOfObjectives,
)
from sklearn_crf.objectives._block_likelihood import checked_block

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
