"""Batches: disjoint unions of examples on which inference runs together."""

from dataclasses import replace
from functools import partial
from itertools import islice
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from sklearn_crf._numbers import MAX_INT32, as_reals, is_sparse_matrix
from sklearn_crf._threads import count_threads, map_tasks
from sklearn_crf.encoding import _tuning
from sklearn_crf.encoding._compact_lists import ChainList
from sklearn_crf.encoding._edge_features import constant
from sklearn_crf.encoding._examples import (
    Batch,
    ComputedEdges,
    choose_edge_types,
    join_factors,
    make_trusted_example,
    replace_fields,
    stack_types,
    stacked,
)
from sklearn_crf.encoding._node_features import OperatorFeatures
from sklearn_crf.graphs import build_disjoint_union, build_trusted_graph, lattice


def validate_sample_weight(sample_weight, n_examples):
    """Return one weight per example, or None if ``sample_weight`` is None; raise ValueError if all weights are 0."""
    weight = read_sample_weight(sample_weight, n_examples)
    if weight is not None and n_examples:
        require_weight(weight.any())
    return weight


def require_weight(found: object) -> None:
    """Raise ValueError unless some example was found to have a positive weight."""
    if not found:
        raise ValueError("Sample weights must contain at least one non-zero number.")


def read_sample_weight(sample_weight: Any, n_examples: int) -> np.ndarray | None:
    """Return one weight per example, or None if ``sample_weight`` is None. The weights of a shard may all be 0."""
    # sample_weight: None, number or (n_examples,); returns: None or (n_examples,), float64
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        weight = np.full(n_examples, float(sample_weight))
    else:
        is_object = getattr(sample_weight, "dtype", None) == np.dtype(object)
        may_be_ragged = isinstance(sample_weight, list | tuple) or is_object
        if may_be_ragged and any(isinstance(weight, list | tuple) or np.ndim(weight) for weight in sample_weight):
            raise ValueError(_format_node_weight_error("a sequence of arrays"))
        weight = check_array(
            as_reals(sample_weight, "sample_weight"),
            ensure_2d=False,
            allow_nd=True,
            dtype=np.float64,
            order="C",
            ensure_min_samples=0,
            input_name="sample_weight",
        )
        if weight.ndim != 1:
            raise ValueError(_format_node_weight_error(f"an array of shape {weight.shape}"))
        if weight.shape != (n_examples,):
            raise ValueError(f"sample_weight.shape == {weight.shape}, expected {(n_examples,)}!")
    if not np.all(np.isfinite(weight)):
        raise ValueError("sample_weight must be finite, found NaN or infinity.")
    if np.any(weight < 0):
        i = int(np.argmax(weight < 0))
        raise ValueError(f"Negative values in data passed to `sample_weight`: sample_weight[{i}] is {weight[i]}.")
    return weight


def scale_sample_weight(weight):
    """Rescale very large or very small weights, so that weighted losses and their sums neither overflow nor vanish."""
    if weight is None:
        return None
    largest = float(np.max(weight, initial=0.0))
    if not largest or 1e-100 <= largest <= 1e100:
        return weight
    return np.ldexp(weight, -int(np.frexp(largest)[1]))


def _format_node_weight_error(found):
    return (
        f"Sample weights must be 1D array or scalar, one weight per example, got {found}: weights per node have no "
        "meaning here."
    )


def make_object_array(parts):
    """Collect arrays in a 1-D object array, which is the form of results if X is a list."""
    # returns: object array of shape (len(parts),)
    # Parts are assigned one by one, because NumPy would merge parts of equal shape into a single array.
    array = np.empty(len(parts), dtype=object)
    for i, part in enumerate(parts):
        array[i] = part
    return array


class _Limits(NamedTuple):
    """Maximum number of nodes of a batch of forests, of examples with cycles, or of examples with factors."""

    forests: int
    cyclic: int
    factors: int
    mixes: bool  # whether a batch may hold both forests and examples with cycles


def make_batches(
    encoded,
    labels=None,
    sample_weight=None,
    *,
    max_nodes=4096,
    max_cyclic_nodes=1,
    max_factor_nodes=1,
    mixes_forests=True,
    prepare=None,
    keeps_edges=True,
    n_jobs=1,
    is_pending=False,
):
    """Join consecutive examples to batches. By default, only forests are joined, to at most ``max_nodes`` nodes.

    The composition of batches does not depend on the number of threads or on the weights of examples.
    """
    # sample_weight: (n_examples,)
    # prepare: callable(Example) -> Example, applied to the joined example of each batch
    filled = encoded.filled
    if filled is not None:
        labels = None if labels is None else [labels[i] for i in filled]
        sample_weight = None if sample_weight is None else sample_weight[filled]
        encoded = encoded.take(filled)
    if encoded.has_sparse_edges:
        max_nodes, max_cyclic_nodes = (min(n, _tuning.MOST_NODES_OF_TABLES) for n in (max_nodes, max_cyclic_nodes))
    limits = _Limits(max_nodes, max_cyclic_nodes, max_factor_nodes, mixes_forests)
    made = _MAKERS["list" if encoded.has_factors else encoded.layout](encoded, labels, sample_weight, limits)
    if filled is not None:
        made = (replace(batch, members=filled[batch.members]) for batch in made)
    settle = partial(_finish_batch, encoded=encoded, prepare=prepare, keeps_edges=keeps_edges)
    if is_pending and isinstance(encoded.items, ChainList):
        return [_postpone_joining(batch, settle) for batch in made]
    lots = [made] if count_threads(n_jobs) == 1 else iter(lambda: list(islice(made, _tuning.BATCHES_OF_A_LOT)), [])
    return [batch for lot in lots for batch in map_tasks(settle, lot, n_jobs)]


class _PendingExample:
    """Joined example of a batch of chains. It is not stored, but joined anew each time it is used."""

    def __init__(self, make, encoded, start, stop):
        self.make = make
        self._encoded, self._start, self._stop = encoded, start, stop

    def made_by(self, make):
        """Return a pending example of the same chains that is joined by another function, ``make``."""
        return _PendingExample(make, self._encoded, self._start, self._stop)

    @property
    def chain_features(self):
        """Node features of the chains at their original addresses, or None if edge tables depend on features."""
        if self._encoded.edge_feature_function is not constant:
            return None
        items, part = self._encoded.items, slice(self._start, self._stop)
        return ChainFeatures(items.dtype, items.is_dense, 0, items.lengths[part], items.places[part], (items,))

    def __reduce__(self):
        # Another process gets only the joined example, not all examples of X.
        return _keep_example, (self.make(),)


def _keep_example(example):
    return example


_NO_EDGES = np.zeros((0, 2), dtype=np.int32)


def _postpone_joining(batch, settle):
    return replace(batch, example=batch.example.made_by(lambda: settle(batch, n_threads=1).example))


def complete_batch(batch):
    """Return the batch with its joined example; if the example is pending, it is joined now."""
    example = batch.example
    return replace(batch, example=example.make()) if isinstance(example, _PendingExample) else batch


class ChainFeatures(NamedTuple):
    """Addresses of the node features of a batch of chains, for kernels that read the features only once."""

    dtype: np.dtype
    is_dense: bool
    length: int  # number of nodes of each chain; 0 if lengths differ
    lengths: np.ndarray | None  # (n_chains,) int64; None if all lengths are equal
    places: np.ndarray | None  # (n_chains, 1 or 4) int64, addresses of the features of each chain
    arrays: tuple  # arrays to keep alive; if places is None, the features of all nodes, dense or as CSR arrays

    def fields(self, first_node: int) -> list[int]:
        """Return the values of the fields of the C++ structure ChainBatch."""
        of_chains = [0 if each is None else each.ctypes.data for each in (self.lengths, self.places)]
        of_nodes = [0 if self.places is not None else each.ctypes.data for each in self.arrays]
        return [first_node, self.length, *of_chains, *of_nodes, *[0] * (3 - len(of_nodes))]


def chain_features(batch):
    """Return the :class:`ChainFeatures` of a batch of chains with one node type and one edge type, otherwise None."""
    example = batch.example
    if isinstance(example, _PendingExample):
        return example.chain_features
    features, graph = example.node_features, example.graph
    if example.node_type is not None or example.n_states is not None or example.has_factors:
        return None
    if graph.n_edges and (example.edge_features is not None or not np.array_equal(graph.chain_ptr, batch.node_ptr)):
        return None
    arrays = _list_arrays(features)
    if arrays is None or (not graph.n_edges and graph.n_nodes != len(batch.members)):
        return None
    lengths = np.diff(batch.node_ptr)
    is_one = not graph.n_edges or bool(np.all(lengths == lengths[0]))
    length = int(lengths[0]) if is_one else 0
    kept = None if is_one else lengths.astype(np.int64, copy=False)
    return ChainFeatures(features.dtype, len(arrays) == 1, length, kept, None, arrays)


def _list_arrays(features):
    """Return a tuple with the array of dense features or the three arrays of CSR features; None for other features."""
    if isinstance(features, np.ndarray):
        return (features,) if features.flags.c_contiguous else None
    if isinstance(features, sp.csr_matrix | sp.csr_array) and features.nnz <= MAX_INT32:
        return features.data, *(part.astype(np.int32, copy=False) for part in (features.indices, features.indptr))
    return None


def _finish_batch(batch, encoded, prepare, keeps_edges, n_threads):
    """Join the examples of a batch into one example, store its edge features if they are small, and prepare it."""
    batch = complete_batch(batch)
    example = batch.example
    if isinstance(example, ComputedEdges):
        # With ``keeps_edges=False``, edge features are not stored, except constant features of small graphs.
        is_constant = example.has_constant_edges and (
            keeps_edges or example.graph.n_edges <= _tuning.MOST_CONSTANT_EDGES
        )
        if is_constant or (keeps_edges and encoded.n_edges * encoded.n_edge_features <= _tuning.MOST_KEPT):
            example = replace_fields(example, edge_features=example.edge_features)
    return replace(batch, example=example if prepare is None else prepare(example))


def _build_row_batches(encoded, labels, sample_weight, limits):
    max_nodes = limits.forests
    graphs = {}
    for start in range(0, encoded.n_examples, max_nodes):
        part = slice(start, min(start + max_nodes, encoded.n_examples))
        n_rows = part.stop - start
        if n_rows not in graphs:
            graphs[n_rows] = build_trusted_graph(n_rows, _NO_EDGES), np.arange(n_rows + 1)
        graph, node_ptr = graphs[n_rows]
        yield Batch(
            example=make_trusted_example(encoded.array[part], graph),
            members=np.arange(start, part.stop),
            node_ptr=node_ptr,
            labels=None if labels is None else labels[part],
            weight=None if sample_weight is None else sample_weight[part],
        )


def _build_array_batches(encoded, labels, sample_weight, limits):
    n_nodes = encoded.graph.n_nodes
    if not n_nodes:
        return
    most = encoded.n_together(limits.forests if encoded.graph.is_forest else limits.cyclic)
    unions = {}
    for start in range(0, encoded.n_examples, most):
        stop = min(start + most, encoded.n_examples)
        n_members = stop - start
        if n_members not in unions:
            # Batches of equal size share a graph, so that neighbour lists and traversal orders are computed only once.
            edge_type, node_type = encoded.edge_type, encoded.node_type
            if n_members > 1:
                edge_type = np.tile(choose_edge_types(edge_type, encoded.graph), n_members)
                node_type = None if node_type is None else np.tile(node_type, n_members)
            unions[n_members] = build_disjoint_union([encoded.graph] * n_members), edge_type, node_type
        graph, edge_type, node_type = unions[n_members]
        features = encoded.features_of(start, stop)
        example = make_trusted_example(features, graph, node_type=node_type, edge_type=edge_type)
        sizes = np.full(n_members, n_nodes)
        yield _make_batch(_store_edge_features(encoded, example), start, sizes, labels, sample_weight)


def _list_batches(encoded, labels, sample_weight, limits):
    unions: dict[int, tuple] = {}
    items = encoded.items
    are_chains = isinstance(items, ChainList)
    if are_chains:
        sizes = items.lengths
        packs = _pack_chains(sizes, limits)
    else:
        sizes = np.array([example.n_nodes for example in items])
        packs = _pack_examples(items, limits)
    for start, stop in packs:
        if are_chains:
            make = partial(lambda *ends: _store_edge_features(encoded, items.joined(*ends)), start, stop)
            join = _PendingExample(make, encoded, start, stop)
        else:
            join = _store_edge_features(encoded, _join_examples(items[start:stop], encoded.n_node_types, unions))
        yield _make_batch(join, start, sizes[start:stop], labels, sample_weight)


_MAKERS = {"nodes": _build_row_batches, "array": _build_array_batches, "list": _list_batches}


def _pack_chains(lengths, limits):
    """Yield the start and stop of each batch of chains.

    For many thousands of chains, this function is much faster than :func:`_pack_examples`.
    """
    ends, start = np.concatenate(([0], np.cumsum(lengths))), 0
    n_packs = -(-int(ends[-1]) // limits.forests)
    if n_packs > 1:
        # The number of batches is even and their sizes are similar, so that two threads finish at about the same time.
        n_packs += n_packs % 2
    most = min(limits.forests, -(-int(ends[-1]) // n_packs) + int(lengths.max()))
    while start < len(lengths):
        stop = int(np.searchsorted(ends, ends[start] + most, side="right")) - 1
        yield start, max(stop, start + 1)
        start = max(stop, start + 1)


def _pack_examples(examples, limits):
    """Yield the start and stop of each batch of consecutive examples that can be joined."""
    if not examples:
        return
    start, n_nodes, has_cycles, kind = 0, 0, False, None
    for i, example in enumerate(examples):
        is_cyclic, edge_features = not example.graph.is_forest, example.edge_features
        # Only examples of the same kind can be joined.
        own_kind = (
            example.has_factors,
            is_sparse_matrix(example.node_features),
            isinstance(example.node_features, OperatorFeatures),
            None if edge_features is None else is_sparse_matrix(edge_features),
            example.n_states is None,
            limits.mixes or is_cyclic,
        )
        has_cycles = has_cycles or is_cyclic
        n_nodes += example.n_nodes
        most = limits.factors if example.has_factors else limits.cyclic if has_cycles else limits.forests
        if i > start and (n_nodes > most or own_kind != kind):
            yield start, i
            start, n_nodes, has_cycles = i, example.n_nodes, is_cyclic
        if i == start:
            kind = own_kind
    yield start, len(examples)


def _join_examples(members, n_node_types, unions):
    """Join examples to one example, their disjoint union.

    Calls with equal lists of graphs share one joined graph, which is cached in the dict ``unions``.
    """
    if len(members) == 1 and n_node_types == 1 and members[0].node_type is None and not members[0].has_factors:
        return members[0]
    key = tuple(id(example.graph) for example in members)
    if key not in unions:
        unions[key] = build_disjoint_union([example.graph for example in members])
    joined = make_trusted_example(
        stacked([example.node_features for example in members]),
        unions[key],
        stacked([example.edge_features for example in members]),
        None if n_node_types == 1 else stack_types([x.node_type for x in members], [x.n_nodes for x in members]),
        stack_types([x.edge_type for x in members], [x.graph.n_edges for x in members]),
        stacked([example.n_states for example in members]),
    )
    factors, fixed_factors = join_factors(members)
    return replace_fields(joined, factors=factors, fixed_factors=fixed_factors)


def _store_edge_features(encoded, example):
    """Wrap an example in :class:`ComputedEdges` if it has edges without features."""
    if example.edge_features is None and example.graph.n_edges:
        return ComputedEdges(example, encoded.edge_feature_function)
    return example


def _make_batch(example, start, sizes, labels, sample_weight):
    stop = start + len(sizes)
    return Batch(
        example=example,
        members=np.arange(start, stop),
        node_ptr=np.concatenate(([0], np.cumsum(sizes))),
        labels=None if labels is None else np.concatenate(labels[start:stop]),
        weight=None if sample_weight is None else sample_weight[start:stop],
    )


def tie_constant_edges(example):
    """Remove the edge features of an example if there is a single feature, equal to 1 on every edge.

    Edges without features share tables. Inference then prepares each table once, not once per edge.
    """
    if isinstance(example, ComputedEdges):
        return replace_fields(example, edge_features=None) if example.has_constant_edges else example
    edge_features = example.edge_features
    if edge_features is None or edge_features.shape[1] != 1 or np.any(edge_features != 1):
        return example
    return replace_fields(example, edge_features=None)


def group_batches_to_join(batches, max_nodes, may_join=None, one_weight=False):
    """Group consecutive batches that can be joined."""
    # may_join: function that tells whether a batch with cycles may be joined with others; None allows all batches
    # one_weight: whether all examples of a group must have the same weight
    groups: list[list] = []
    n_nodes = 0
    for batch in batches:
        alone = batch.example.graph.is_forest or not (may_join is None or may_join(batch))
        n_nodes += len(batch.labels)
        if alone or not groups or n_nodes > max_nodes or not _can_join(groups[-1][-1], batch, one_weight):
            groups.append([batch])
            # A batch that must not be joined is a group of its own, to which no other batch is added.
            n_nodes = np.inf if alone else len(batch.labels)
        else:
            groups[-1].append(batch)
    return groups


def _can_join(a, b, one_weight):
    """Return whether the examples of two batches can be joined."""
    first, second = a.example, b.example
    return (
        (first.edge_features is None) == (second.edge_features is None)
        and (first.n_states is None) == (second.n_states is None)
        and (not one_weight or a.weight is None or a.weight[0] == b.weight[0])
    )


def unite_batches(batches, as_lattice=False):
    """Join several batches into one batch."""
    # as_lattice: whether lattices of equal shape are joined to a lattice with an additional axis
    # The reason for ``as_lattice`` is that kernels of minimum cuts are faster on lattices.
    if len(batches) == 1:
        return batches[0]
    examples = [batch.example for batch in batches]
    graphs = [example.graph for example in examples]
    graph, order = _stack_lattices(graphs) if as_lattice else (None, slice(None))
    example = make_trusted_example(
        stacked([example.node_features for example in examples]),
        build_disjoint_union(graphs) if graph is None else graph,
        _in_order(stacked([example.edge_features for example in examples]), order),
        _types([example.node_type for example in examples], [example.n_nodes for example in examples]),
        _in_order(_types([example.edge_type for example in examples], [own.n_edges for own in graphs]), order),
        stacked([example.n_states for example in examples]),
    )
    runs = [each.run_features for each in examples]
    if runs[0] is not None:
        joined = type(runs[0])(*map(stacked, zip(*runs, strict=True)))
        example = replace_fields(example, run_features=joined)
    sizes = np.concatenate([np.diff(batch.node_ptr) for batch in batches])
    return Batch(
        example,
        np.concatenate([batch.members for batch in batches]),
        np.concatenate(([0], np.cumsum(sizes))),
        np.concatenate([batch.labels for batch in batches]),
        stacked([batch.weight for batch in batches]),
        stacked([batch.node_weight for batch in batches]),
    )


def _stack_lattices(graphs):
    """Stack equal lattices along a new axis; return the lattice and its edge order, or None if lattices differ."""
    first = graphs[0]
    if first.offsets is None or any(
        graph is not first
        and (graph.offsets is None or graph.shape != first.shape or not np.array_equal(graph.offsets, first.offsets))
        for graph in graphs
    ):
        return None, slice(None)
    stacked = lattice((len(graphs), *first.shape), np.pad(first.offsets, ((0, 0), (1, 0))))
    return stacked, np.argsort(np.tile(first.lattice_edge_type, len(graphs)), kind="stable")


def _in_order(values, order):
    return None if values is None else values[order]


def _types(parts, lengths):
    return None if all(part is None for part in parts) else stack_types(parts, lengths)
