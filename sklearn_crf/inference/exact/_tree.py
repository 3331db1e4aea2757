"""Exact inference on graphs without cycles."""

from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf._threads import make_range_runner
from sklearn_crf.inference import _field
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._results import Labeling
from sklearn_crf.inference.exact import _chains, _tuning
from sklearn_crf.inference.exact._copies import compute_forest_marginals, compute_forest_node_marginals
from sklearn_crf.inference.exact._edge_marginals import EdgeMarginals, compute_edge_beliefs
from sklearn_crf.kernels.exact.labelings import decode, sample_forest
from sklearn_crf.kernels.messages.edge_messages import READS_ALL_ABOVE, send
from sklearn_crf.models import score

_NO_OLD_MESSAGES = -1.0


class TreeInference(EdgeMarginals, Inference):
    r"""Exact inference on forests: chains, trees and disjoint unions of them.

    A message is sent along every edge in both directions, from the leaves to the roots and back,

    .. math::
        m_{s \to t}(b) = \sum_a \exp(u_s(a) + \theta_{st}(a, b)) \prod_{q \ne t} m_{q \to s}(a),

    with a maximum in place of the sum for the best labeling. On a chain these are forward-backward and Viterbi.
    Messages are stored as normalised probabilities if the range of the model's scores permits it, otherwise as scores,
    so that scores of any size can be handled. A call takes O(E K^2) time, or O(E K) for Potts tables.

    References
    ----------
    J. Pearl. Probabilistic Reasoning in Intelligent Systems, 1988, chapter 4. L. Rabiner. A tutorial on hidden Markov
    models, Proc. IEEE 77, 1989, :doi:`10.1109/5.18626`, section III for chains.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.models import PairwiseModel
    >>> unary = np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]])
    >>> model = PairwiseModel(lattice((3,)), unary, [0.5 * np.eye(2)])
    >>> TreeInference().map(model).labels
    array([1, 1, 1], dtype=int32)
    >>> round(TreeInference().marginals(model).log_z, 3)
    3.977
    """

    tasks = frozenset({"map", "marginals", "sample"})
    _starts_from: ClassVar[tuple[type, ...]] = ()
    exact_on = "forest"

    def _edge_marginals(self, model, edges, init, n_threads):
        run = make_range_runner(n_threads)
        return _call_with_messages(
            model, lambda field, _, messages: compute_edge_beliefs(field, model, messages, edges, run)
        )

    def _check_model(self, model):
        super()._check_model(model)
        if not model.graph.is_forest:
            raise ValueError(
                f"TreeInference needs a graph without cycles, but edge {_find_closing_edge(model.graph)} closes a "
                "cycle: use LoopyBP, which supports any graph."
            )

    def transitions_of_chains(self, model: Any, rule: str) -> Any:
        self._require("map" if rule == "map" else "marginals", model)
        return _chains.transitions_of(model, rule)

    def _map(self, model, *, init=None, n_threads=1):
        field, _ = _field.make_field(model, maximum=True)
        order, _, rank = model.graph.forest
        messages = _collect(model.graph, field)
        labels = np.empty(model.graph.n_nodes, dtype=np.int32)
        failed = decode(field, messages, order, rank, labels, field.workspace())
        if failed >= 0:
            raise _field.make_infeasible_error(failed)
        best = score(model, labels)
        return Labeling(labels, best, bound=best)

    def _node_marginals(self, model, n_threads):
        for found in (quick(model) for quick in (_chains.compute_chain_node_marginals, compute_forest_node_marginals)):
            if found is not None:
                return found
        run = make_range_runner(n_threads)
        return _call_with_messages(
            model, lambda field, _, messages: _field.compute_node_marginals(field, model.dtype, messages, run)
        )

    def _marginals(self, model, *, init=None, n_threads=1):
        for found in (quick(model) for quick in (_chains.compute_chain_marginals, compute_forest_marginals)):
            if found is not None:
                return found
        # If a message is 0, the product of a node's other messages cannot be computed from its belief.
        options = {"exact": not _forbids_pairs(model), "bound": "exact", "n_iter": 1}
        run = make_range_runner(n_threads)
        return _call_with_messages(
            model,
            lambda field, unary_shift, messages: _field.marginals_of(
                field, model.dtype, unary_shift, messages, run, **options
            ),
        )

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        rng = check_random_state(random_state)
        order, n_nodes = model.graph.forest.order, model.graph.n_nodes
        labels = np.empty((n_samples, n_nodes), dtype=np.int32)
        step = max(1, _tuning.UNIFORM_BUDGET // max(n_nodes, 1))
        run = make_range_runner(n_threads)
        field, upward = _call_with_messages(
            model,
            lambda field, _, messages: (field, _compute_subtree_scores(field, messages, run)),
            both_ways=False,
        )
        parent_slot = model.graph.forest.parent_slot
        for first in range(0, n_samples, step):
            drawn = labels[first : first + step]
            uniform = rng.random_sample(drawn.shape)

            def part(start, stop, uniform=uniform, drawn=drawn):
                work = field.workspace()
                sample_forest(field, upward, order, parent_slot, uniform, drawn, start, stop, work)

            run(part, len(drawn), smallest_range=1)
        return labels


def _find_closing_edge(graph):
    """Return the index of an edge that is not in a spanning forest."""
    _, to_parent = graph.parents
    return int(np.setdiff1d(np.arange(graph.n_edges), to_parent[to_parent >= 0] >> 1)[0])


def _collect(graph, field):
    """Return the messages from the leaves to the roots; all other messages are uninitialised."""
    # Allocate a block larger than all other arrays of a call, so that the C library reuses it in the next call.
    # Otherwise, in training with many calls on a few thousand nodes, page faults take as long as everything else.
    n_slots = len(field.neighbor)
    messages = np.empty((n_slots + len(field.unary), field.width), dtype=field.unary.dtype)[:n_slots]
    if graph.largest_degree > READS_ALL_ABOVE:
        _set_neutral(field, messages, graph.forest.parent_slot[graph.degree > READS_ALL_ABOVE])
    # In reverse order, each node sends to its neighbours of lower rank, of which it has only one, its parent.
    _send(field, messages, graph.forest, -1)
    return messages


def send_exact_messages(graph, field):
    """Return the sum-product messages on a forest, which are sent to the roots and back."""
    messages = _collect(graph, field)
    _send(field, messages, graph.forest, 1)
    return messages


def _set_neutral(field, messages, slots):
    """Set messages to the neutral element of their product or sum, ignoring negative slots."""
    messages[slots[slots >= 0]] = 1.0 if field.semiring == _field.SUM_PROBABILITY else 0.0


def _call_with_messages(model, use, both_ways=True):
    """Call ``use`` with a field, the shift of its unary rows and its sum-product messages, and return the result.

    Without ``both_ways``, messages are only sent to the roots, and messages to the leaves are neutral. Messages are
    probabilities if none can underflow. With forbidden pairs, the range of messages is not known in advance, so
    probabilities are tried and checked. Otherwise, messages are scores. With scores, a node is left without a possible
    state only if the model has no allowed labeling.
    """
    if _forbids_pairs(model):
        field, unary_shift = _field.make_field(model, maximum=False, unbounded=True)
        # A node that seems to have no state left may have lost its states by underflow.
        with suppress(ValueError):
            if field.semiring == _field.SUM_PROBABILITY:
                messages = _messages(model.graph, field, both_ways)
                if not _may_have_underflowed(model, field, messages):
                    return use(field, unary_shift, messages)
    field, unary_shift = _field.make_field(model, maximum=False)
    return use(field, unary_shift, _messages(model.graph, field, both_ways))


def _messages(graph, field, both_ways):
    if both_ways:
        return send_exact_messages(graph, field)
    messages = _collect(graph, field)
    _set_neutral(field, messages, graph.forest.parent_slot)
    return messages


def _forbids_pairs(model):
    return model.tables.min(initial=0.0) == -np.inf


def _may_have_underflowed(model, field, messages):
    """Return whether a product of messages and factors at a node may have underflowed.

    If every message was so large that the next message could not underflow, then, by induction along the tree, no
    message underflowed.
    """
    below_best = model.unary - model.unary.max(axis=1, keepdims=True)
    range_unary = -np.min(below_best, where=below_best > -np.inf, initial=0.0)
    range_messages = -np.log(np.min(messages, where=messages > 0, initial=1.0))
    together = range_unary + model.graph.largest_degree * range_messages + _field.compute_largest_factor_range(model)
    return together > _field.LARGEST_RANGE[field.unary.dtype]


def _send(field, messages, forest, direction):
    order, _, rank = forest
    status = send(field, messages, order, rank, direction, _NO_OLD_MESSAGES, 0, len(order), field.workspace())
    if status < 0:
        raise _field.make_infeasible_error(int(-1 - status))


def _compute_subtree_scores(field, messages, run):
    """Return scores of the states of each node with its subtree summed out, given messages to the roots only."""
    beliefs, _ = _field.compute_beliefs(field, messages, run)
    if field.semiring != _field.SUM_PROBABILITY:
        return beliefs
    with np.errstate(divide="ignore"):
        return np.log(beliefs)
