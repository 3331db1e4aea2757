"""Labels of a window by message passing, with proofs that the rest of the graph cannot change them."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import compute_row_maxima
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._field import Messages
from sklearn_crf.inference._relaxed_problem import iterate_table_blocks
from sklearn_crf.inference.messages import _tuning
from sklearn_crf.inference.messages._belief_propagation import LoopyBP, TRWMessagePassing
from sklearn_crf.inference.messages._edge_probabilities import choose_edge_probabilities
from sklearn_crf.models import PairwiseModel, clamped

# For larger numbers, an upper bound replaces the exponential.
_LARGE = 30.0


class WindowLabels(NamedTuple):
    """Labels of a window, with a mask of certain labels."""

    labels: np.ndarray  # (N,)
    certain: np.ndarray  # (N,) bool, True for labels at every fixed point of the messages of the whole graph


def can_bound_messages(inference: Inference) -> bool:
    """Return whether message errors can be bounded: edge probabilities must depend only on near edges."""
    is_local = isinstance(inference, TRWMessagePassing) and inference.edge_probabilities == "chains"
    return (isinstance(inference, LoopyBP) or is_local) and getattr(inference, "schedule", "") != "convergent"


def label_between_extremes(
    inference: Inference, model: PairwiseModel, outside: np.ndarray, *, maximum: bool, n_threads: int
) -> WindowLabels:
    r"""Label a window of a two-state model with attractive edges, by belief propagation between two extremes.

    If edges prefer equal states, the messages that a node sends increase with the messages it receives. Start with the
    smallest messages that edges can send, and fix all nodes that receive unknown messages to the first state. Messages
    then never exceed the messages of any fixed point of the whole graph. The opposite holds for the other extreme.
    Nodes with equal labels in both cases have this label at every fixed point.
    """
    # outside: (N,) bool, nodes that receive unknown messages
    low, high = (
        _run_and_decode(
            inference,
            clamped(model, np.where(outside, state, -1).astype(np.int32)),
            maximum,
            n_threads,
            _build_extreme_messages(model, state, maximum),
        )[0]
        for state in (0, 1)
    )
    certain = (low == high) & ~outside
    if not certain.all():
        low = np.where(certain, low, _run_and_decode(inference, model, maximum, n_threads)[0])
    return WindowLabels(low, certain)


def label_with_error_bounds(
    inference: Inference, model: PairwiseModel, outside: np.ndarray, *, maximum: bool, n_threads: int
) -> WindowLabels:
    """Label a window with any number of states; labels are certain if unknown messages cannot change them."""
    # outside: (N,) bool, nodes that receive unknown messages
    labels, state = _run_and_decode(inference, model, maximum, n_threads)
    with np.errstate(divide="ignore"):
        messages = state.values if state.as_scores else np.log(state.values)
    probabilities = np.ones(model.graph.n_edges)
    if isinstance(inference, TRWMessagePassing):
        probabilities = choose_edge_probabilities(model.graph, inference.edge_probabilities)
    found = bound_belief_errors(model, messages, outside, probabilities, maximum=maximum)
    return WindowLabels(labels, found.certain & (labels == found.beliefs.argmax(axis=1)))


def _run_and_decode(inference, model, maximum, n_threads, init=None):
    """Run an inference algorithm, and return its labels and its messages."""
    if maximum:
        found = inference.map(model, init=init, n_threads=n_threads)
        return found.labels, found.state
    found = inference.marginals(model, init=init, n_threads=n_threads)
    return np.argmax(found.unary, axis=1).astype(np.int32), found.state


def _build_extreme_messages(model, state, maximum):
    """Return the messages of nodes that are certain of a state."""
    slot_of_half_edge = np.argsort(model.graph.incidence.half_edge)
    scores = np.empty((2 * model.graph.n_edges, model.n_columns), dtype=model.dtype)
    for edges, tables in iterate_table_blocks(model):
        numbers = np.arange(model.graph.n_edges)[edges]
        scores[slot_of_half_edge[2 * numbers]] = tables[:, :, state]
        scores[slot_of_half_edge[2 * numbers + 1]] = tables[:, state, :]
    scores -= compute_row_maxima(scores)
    if maximum:
        return Messages(scores, as_scores=True)
    share = np.exp(scores)
    return Messages(share / share.sum(axis=1, keepdims=True), as_scores=False)


class BeliefErrors(NamedTuple):
    """Beliefs of a window, with bounds on their errors."""

    beliefs: np.ndarray  # (N, K) float64, log-beliefs up to a constant for each node
    # (N,): bound on the error of differences between two entries of a row, at any fixed point of the whole graph
    errors: np.ndarray

    @property
    def certain(self):
        """Mask (N,) of the nodes whose largest belief is the largest at every fixed point of the whole graph."""
        highest = np.partition(self.beliefs, -2, axis=1)
        return highest[:, -1] - highest[:, -2] > self.errors


def bound_belief_errors(model, messages, outside, probabilities, *, maximum):
    r"""Bound how much unknown messages to some nodes can change the beliefs.

    The error of a message is the range of the error of its logarithm, which is not affected by constants. Let
    :math:`p_b(a)` be the share of state a in the message for state b, and let :math:`t_{st}` be the maximum total
    variation distance between two of these distributions. Then

    .. math::
        \delta_{s \to t} \le \nu_{st} \log\bigl(1 + t_{st} (e^{\delta} - 1)\bigr), \qquad
        \delta = \sum_{q \ne t} \delta_{q \to s} + (1 / \nu_{st} - 1) \, \delta_{t \to s}

    for sums. For maxima, the bound is :math:`\nu_{st} \max(0, \delta - g_{st})` if one state is best for all b, by at
    least :math:`g_{st}`. No error exceeds the limit that the tables imply for any message. The bounds start from this
    limit and then decrease.

    A. Ihler, J. Fisher, A. Willsky. Loopy belief propagation: convergence and effects of message errors. JMLR 6, 2005,
    with the share of the actual messages in place of the dynamic range of tables.
    """
    # messages: (2E, K) scores by the slot of the receiving node, raised to the power of the edge probability
    # outside: (N,) bool, nodes that receive unknown messages
    # probabilities: (E,) edge probabilities, one for belief propagation
    incidence = model.graph.incidence
    messages = messages.astype(np.float64)
    owner = np.repeat(np.arange(model.graph.n_nodes), model.graph.degree)
    beliefs = model.unary.astype(np.float64)
    np.add.at(beliefs, owner, messages)
    nu = probabilities[incidence.half_edge >> 1]
    limits = _limits(model, messages, beliefs, nu, maximum)
    is_unknown = outside[incidence.neighbor]
    bounds = limits.most.copy()
    for _ in range(_tuning.MOST_STEPS):
        total = np.bincount(owner, bounds, minlength=model.graph.n_nodes)
        received = total[incidence.neighbor] + (1 / nu - 2) * bounds[incidence.reverse]
        sent = nu * _bound_sent_errors(received, limits, maximum) + limits.missing
        renewed = np.where(is_unknown, limits.most, np.minimum(limits.most, sent))
        change = np.max(bounds - renewed, initial=0.0)
        bounds = renewed
        if change <= _tuning.LEAST_CHANGE:
            break
    return BeliefErrors(beliefs, np.bincount(owner, bounds, minlength=model.graph.n_nodes))


class _Limits(NamedTuple):
    """Limits on the errors of messages, by slot."""

    share: np.ndarray  # for sum-product: maximum total variation distance between distributions of the sender
    gap: np.ndarray  # for max-product: difference by which one state is best for all states of the receiver
    most: np.ndarray  # maximum error that the tables allow
    missing: np.ndarray  # range of the difference between the message and a fixed point of the window


def _bound_sent_errors(received, limits, maximum):
    """Return error bounds of the messages sent, given error bounds of the messages received."""
    if maximum:
        return np.maximum(0.0, received - limits.gap)
    with np.errstate(divide="ignore"):
        from_above = np.logaddexp(0.0, received + np.log(limits.share))
    return np.where(received > _LARGE, from_above, np.log1p(limits.share * np.expm1(np.minimum(received, _LARGE))))


def _limits(model, messages, beliefs, nu, maximum):
    incidence = model.graph.incidence
    slot_of_half_edge = np.argsort(incidence.half_edge)
    found = _Limits(*(np.zeros(len(messages)) for _ in _Limits._fields))
    for edges, tables in iterate_table_blocks(model):
        numbers = np.arange(model.graph.n_edges)[edges]
        for side in (0, 1):
            slot = slot_of_half_edge[2 * numbers + side]
            # Scores for state a of the sender and state b of the receiver, with axes in the order (n, b, a).
            scores = tables if side == 0 else tables.transpose(0, 2, 1)
            scores = scores.astype(np.float64) / nu[slot][:, None, None]
            back = messages[incidence.reverse[slot]] / nu[slot][:, None]
            scores_in = beliefs[incidence.neighbor[slot]] - back
            of_slots = _compute_message_limits(scores, scores_in, messages[slot], nu[slot], maximum)
            for values, own in zip(found, of_slots, strict=True):
                values[slot] = own
    return found


def _compute_message_limits(scores, received, message, nu, maximum):
    """Return the limits on the errors of some messages."""
    n, n_states = len(scores), scores.shape[1]
    terms = scores + received[:, None, :]
    best = terms.max(axis=2)
    share, gap, most = np.zeros(n), np.zeros(n), np.zeros(n)
    with np.errstate(invalid="ignore", over="ignore"):
        if maximum:
            sent = best
            state = terms.argmax(axis=2)
            second = np.partition(terms, -2, axis=2)[..., -2] if n_states > 1 else np.full(best.shape, -np.inf)
            gap = np.where(np.all(state == state[:, :1], axis=1), np.min(best - second, axis=1), 0.0)
        else:
            weight = np.exp(terms - best[:, :, None])
            total = weight.sum(axis=2)
            sent = best + np.log(total)
            weight /= total[:, :, None]
        for b in range(n_states):
            for other in range(b):
                difference = scores[:, b] - scores[:, other]
                most = np.maximum(most, np.ptp(difference, axis=1))
                if not maximum:
                    share = np.maximum(share, 0.5 * np.abs(weight[:, b] - weight[:, other]).sum(axis=1))
        missing = np.ptp(nu[:, None] * sent - message, axis=1)
    # With forbidden states, differences are infinite, so the error is unknown.
    is_finite = np.isfinite(scores).all(axis=(1, 2)) & np.isfinite(received).all(axis=1) & np.isfinite(missing)
    if maximum:
        share = np.ones(n)
    return (
        np.where(is_finite, share, 1.0),
        np.where(is_finite, gap, 0.0),
        np.where(is_finite, nu * most, np.inf),
        np.where(is_finite, missing, 0.0),
    )
