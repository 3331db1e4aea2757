"""Cutting planes and dual problem of structured hinges, computed by kernels for forests and small graphs."""

from dataclasses import replace

import numpy as np

from sklearn_crf.encoding import OperatorFeatures, group_batches_to_join, replace_fields, unite_batches
from sklearn_crf.inference import n_labelings
from sklearn_crf.kernels.learning.learning import frank_wolfe_steps, sum_planes
from sklearn_crf.objectives.margin._forest_examples import build_forest_examples
from sklearn_crf.objectives.margin._hinges import RelaxedHinge, StructuredHinge
from sklearn_crf.objectives.margin._planes import PlaneOracle
from sklearn_crf.potentials import LinearPotentials, SparsePotentials


def _scale_features(batch, potentials, scale):
    """Multiply the features of a batch by the scales of their weights, so that kernels can use the solver's weights."""
    parts, example = potentials.unpack(scale), batch.example
    unit = parts.coef[:, 0] if parts.coef.ndim == 3 else None  # (n_node_types, n_features), scales
    if unit is not None and np.any(unit != 1):
        example = replace_fields(example, node_features=_rescale(example.node_features, example.node_type, unit))
    if example.graph.n_edges and np.any(parts.edge_coef != 1):
        features = example.edge_features
        features = np.ones((example.graph.n_edges, 1)) if features is None else features
        example = replace_fields(example, edge_features=_rescale(features, example.edge_type, parts.edge_coef[..., 0]))
    return batch if example is batch.example else replace(batch, example=example)


def _build_sparse_rows(features, potentials, scale):
    """Multiply node features by the scales of their weights; return CSR rows with separate columns per node type."""
    rows = features.by_node()
    unit = potentials.unpack(scale).coef[:: potentials.n_columns]
    rows.data *= unit[rows.indices].astype(rows.dtype)
    return rows


def _rescale(features, kind, unit):
    """Multiply the features of nodes or edges by factors that depend on their type, without a change of precision."""
    # unit: (n_types, n_features), factor for each feature of each type
    return features * unit.astype(features.dtype)[0 if kind is None else kind]


class ForestPlanes(PlaneOracle):
    """Oracle for the highest cutting planes of a block of examples that are forests or have few labelings.

    The results equal those of :class:`PlaneOracle`, but no model is built. One kernel call computes the scores, the
    best labelings and the slopes of a block. Solvers use the weights in the order of the kernel, in which all columns
    of a feature are adjacent.
    """

    # risk: risk of a StructuredHinge for which ``applies`` is true
    # n_blocks: minimum number of blocks of examples
    # scale: (n_coef,), numbers by which weights are divided for the solver
    # The scale must be equal for all columns of a node feature, and for all table entries of an edge feature.
    # The scale of intercepts is the value of the constant feature, whose weights are the intercepts.

    path = name = "planes of forests"
    objectives = StructuredHinge, RelaxedHinge

    def __init__(self, risk, C, scale, n_threads=1, n_blocks=64):
        self.risk, potentials = risk, risk.potentials
        joined = [unite_batches(group) for group in group_batches_to_join(risk.batches, _LARGEST)]
        batches = [_scale_features(batch, potentials, scale) for batch in joined]
        self.n_inference_calls, self.n_threads = 0, n_threads
        #: Whether features are sparse.
        self.are_sparse = isinstance(potentials, SparsePotentials)
        rows = [None] * len(batches)
        if self.are_sparse:
            rows = [_build_sparse_rows(batch.example.node_features, potentials, scale) for batch in batches]
        places = potentials.unpack(np.arange(potentials.n_coef))
        constant = float(scale[places.intercept.flat[0]]) if places.intercept.size else 0.0
        cost = risk.objective.cost
        self.examples = [
            build_forest_examples(batch, potentials, cost, C, constant, matrix)
            for batch, matrix in zip(batches, rows, strict=True)
        ]
        #: For kernels: addresses of the examples of all batches; empty array in the precision of the features.
        self.for_kernel = np.array([examples.for_kernel() for examples in self.examples], dtype=np.int64)
        self.precision = np.empty(0, self.examples[0].features.dtype)
        coef = places.coef if self.are_sparse else places.coef.transpose(0, 2, 1)
        parts = coef, places.intercept, places.edge_coef
        #: Index of each kernel weight in the flat weight vector.
        self.places = np.concatenate([part.ravel() for part in parts])
        self._scale = scale[self.places]
        n_nodes = sum(len(batch.labels) for batch in batches)
        self._blocks = self._cut(np.clip(n_nodes // n_blocks, 1, _LARGEST))
        self._parts = self._cut(np.clip(n_nodes // _PARTS, 1, _LARGEST))
        self.sizes = (self._blocks[:, 2] - self._blocks[:, 1]).tolist()

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether features are dense, and the kernel's exact inference is fast on all examples."""
        return type(potentials) is LinearPotentials and _are_quick(objective, potentials, batches)

    is_of_forests = True

    def dual(self, bounded):
        """Return the dual variables, which include multipliers for the non-negative weights of the mask ``bounded``."""
        return ForestDual(self, bounded)

    def value_grad(self, x):
        """Return the sum of all hinges, and a subgradient."""
        self.n_inference_calls += sum(self.sizes)
        slopes, sums = self._sum(self._parts, x)
        return sum(sums[:, 0].tolist()), slopes.sum(axis=0)

    def value(self, x):
        """Return the sum of all hinges."""
        self.n_inference_calls += sum(self.sizes)
        return sum(self._sum(self._parts, x, with_slopes=False)[1][:, 0].tolist())

    def __call__(self, block, x):
        """Return slopes (m, n_coef) and offsets (m,) of the highest plane at x of each of the m examples of a block."""
        batch, start, stop = self._blocks[block]
        members = np.arange(start, stop)
        self.n_inference_calls += len(members)
        slopes, sums = self._sum(np.stack((np.full_like(members, batch), members, members + 1), axis=1), x)
        return slopes, sums[:, 1]

    def _sum(self, parts, x, with_slopes=True):
        """Add the planes of each part; return the summed slopes, (n_parts, n), and values and offsets, (n_parts, 2)."""
        slopes, sums = np.zeros((len(parts), len(x) if with_slopes else 0)), np.empty((len(parts), 2))
        sum_planes(self.for_kernel, self.precision, parts, x, slopes, sums, self.n_threads)
        return slopes, sums

    def _cut(self, n_nodes):
        """Divide each batch into parts of about ``n_nodes`` nodes; return the batch, start and stop of each part."""
        parts = []
        for batch, examples in enumerate(self.examples):
            first = np.unique(examples.node_ptr[:-1] // n_nodes, return_index=True)[1]
            parts.append(
                np.stack((np.full_like(first, batch), first, np.append(first[1:], examples.n_members)), axis=1)
            )
        return np.concatenate(parts)


class SparseForestPlanes(ForestPlanes):
    """Version of :class:`ForestPlanes` for sparse features, only for the dual, because slopes would be too large."""

    path = name = "duals of sparse forests"

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether features are sparse, all pairs of features and states have weights, and inference is fast."""
        is_read = type(potentials) is SparsePotentials and potentials.pairs.are_all
        return is_read and _are_quick(objective, potentials, batches)


# Maximum number of labelings of an example with cycles. The kernel enumerates these labelings at each step.
_ENUMERABLE = 4096


def _are_quick(objective, potentials, batches):
    """Return whether the kernel and the inference of the hinge both find the worst labelings exactly."""
    if objective.exact_on not in ("any", "forest"):
        return False
    if any(isinstance(b.example.node_features, OperatorFeatures) or np.min(b.labels, initial=0) < 0 for b in batches):
        return False
    limit = _ENUMERABLE if objective.exact_on == "any" else min(objective.inference.enumerates, _ENUMERABLE)
    return all(
        batch.example.graph.is_forest or n_labelings(batch.example.n_nodes, potentials.n_classes) <= limit
        for batch in batches
    )


# Maximum number of nodes of a joined batch, of a block, and of a part; minimum number of parts in a pass.
_LARGEST = 4096
_PARTS = 16

# Maximum number of steps in one kernel call. Training can be interrupted between kernel calls.
_STEPS_OF_CALL = 4096

# Minimum number of groups in a pass; maximum number of examples in a group.
_GROUPS, _LARGEST_GROUP = 64, 16


class ForestDual:
    """Dual variables of the hinges of forests and small graphs, as a convex combination of planes for each example.

    This is the dual of :class:`~sklearn_crf.optimize._frank_wolfe.BlockDual` with random groups of examples as blocks.
    Threads compute the worst labelings of a group at the same weights. Each example has its own step size, and the step
    sizes of a group are optimised jointly, so the dual never decreases. The first group is one example. The group size
    is doubled while the joint steps of a group gain nearly as much as separate steps would, and halved if the steps
    hinder each other, for example because nearly all examples share their features.

    With dense features, the combination is stored as its slope, with one row of all weights for each example. Sparse
    features have many weights, so the combination is stored as the weight of each label at each node, and as the slopes
    of the table weights that the labels have touched so far.
    """

    # bounded: (n_coef,) bool, mask of the weights that must not be negative, in the order of the kernel
    # group: maximum number of examples in a group; None means 1/64 of all examples, but at least 1 and at most 16

    def __init__(self, planes, bounded, group=None):
        n = len(bounded)
        self.x, self.mean = np.zeros(n), np.zeros(n)
        self.offset = 0.0
        self._planes = planes
        self._bounded = np.flatnonzero(bounded).astype(np.int32)
        self._free = np.zeros(len(self._bounded))  # bounded entries of x, before projection
        self._n_steps = 0
        sizes = [(examples.n_members, len(examples.labels)) for examples in planes.examples]
        self._first = np.cumsum([(0, 0), *sizes], axis=0).T.copy()  # first example and node of each batch
        n_members = self._first[0, -1]
        self._shares, self._rows = np.zeros((0, 0)), _TableRows(np.zeros(0, dtype=np.int64))
        if planes.are_sparse:
            # Do not use rows of an identity matrix, which would need much memory if there are many labels.
            self._shares = np.concatenate([_encode_one_hot(each.labels, len(each.cost)) for each in planes.examples])
            # A plane has entries for the table weights of the worst and of the true labeling.
            touched = [2 * np.diff(each.edge_ptr) * each.n_edge_features for each in planes.examples]
            self._rows = _TableRows(np.concatenate(touched))
        self._slopes = np.zeros((n_members, 0 if planes.are_sparse else n))
        self._offsets = np.zeros(n_members)
        self._largest = int(np.clip(n_members // _GROUPS, 1, _LARGEST_GROUP)) if group is None else group
        self._group = 1  # number of examples of the next group
        self._lag = np.zeros(n)  # difference between x and mean, up to a constant factor
        self._most_features = max(examples.most_features for examples in planes.examples)

    @property
    def dual(self):
        """Dual objective D at the current dual variables."""
        return self.offset - 0.5 * float(self.x @ self.x)

    def pass_over(self, rng):
        """Make one step for each example, in random order, and return the sum of the gaps of the examples."""
        # The gap of an example is the value of its highest plane minus the value of its combination of planes.
        members = rng.permutation(len(self._offsets)).astype(np.int32)
        self._rows.reserve()
        calls = range(0, len(members), _STEPS_OF_CALL)
        slack = sum(self._step(members[k : k + _STEPS_OF_CALL]) for k in calls)
        self.mean = self.x - 2.0 / (self._n_steps * (self._n_steps + 1.0)) * self._lag
        return slack

    def _step(self, members):
        """Make steps for the given examples, and return the sum of their gaps."""
        gained, slack, self._group = frank_wolfe_steps(
            self._planes.for_kernel,
            self._planes.precision,
            members,
            self._first,
            self._offsets,
            self._slopes,
            self._shares,
            self._rows,
            self.x,
            self._lag,
            self._free,
            self._bounded,
            self._most_features,
            self._n_steps,
            self._group,
            self._largest,
            self._planes.n_threads,
        )
        self.offset += gained
        self._n_steps += len(members)
        self._planes.n_inference_calls += len(members)
        return slack


class _TableRows:
    """Sparse rows of table weights, one for each example, with space to add the entries of another plane."""

    # most_touched: (m,), for each example, the maximum number of entries of one of its planes

    def __init__(self, most_touched):
        self._most_touched = most_touched
        self.sizes = np.zeros(len(most_touched), dtype=np.int64)
        self.ptr = np.zeros(len(most_touched) + 1, dtype=np.int64)
        self.index, self.values = np.zeros(1, dtype=np.int32), np.zeros(1)

    def reserve(self):
        """Reserve space for one more plane of each example."""
        room = np.diff(self.ptr) - self.sizes
        if np.all(room >= self._most_touched):
            return
        # Reserve additional space for a quarter of the current entries, so that not every pass moves all entries.
        ptr = np.concatenate(([0], np.cumsum(self.sizes + self._most_touched + self.sizes // 4)))
        before, after = (np.repeat(first[:-1], self.sizes) for first in (self.ptr, ptr))
        within = np.arange(len(before)) - np.repeat(np.cumsum(self.sizes) - self.sizes, self.sizes)
        index, values = np.zeros(ptr[-1] + 1, dtype=np.int32), np.zeros(ptr[-1] + 1)
        index[after + within], values[after + within] = self.index[before + within], self.values[before + within]
        self.ptr, self.index, self.values = ptr, index, values


def _encode_one_hot(labels, n_states):
    """Return one row for each label, with 1 at the label and 0 elsewhere."""
    shares = np.zeros((len(labels), n_states))
    shares[np.arange(len(labels)), labels] = 1.0
    return shares
