"""Messages on factor graphs for given counting numbers, including belief propagation: sweeps and results."""

from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._numbers import offsets_from_lengths
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._field import make_infeasible_error
from sklearn_crf.inference._results import Labeling, Marginals, convert_factor_marginals, score_labeling
from sklearn_crf.inference.messages._counting_numbers import Split
from sklearn_crf.inference.messages._extrapolation import choose_factor_extrapolation
from sklearn_crf.inference.messages._factor_layers import LayeredModel
from sklearn_crf.kernels.messages.factors import decode_factors, factor_excess, leaf_statistics, read_factors, sweep
from sklearn_crf.kernels.messages.sweeps import SweepExtrapolation


class FactorMessages(NamedTuple):
    """Messages of a finished message-passing run on factors, stored for a warm start."""

    values: np.ndarray  # (n_ends, K), float64
    cross: np.ndarray


class Numbers(NamedTuple):
    """Counting numbers in the form that the kernels expect."""

    unit: float  # temperature, or 1 for max-product
    node_scores: np.ndarray  # (N, K)
    node: np.ndarray  # (N,), c_ss plus the c_FF of the node's factors
    own: np.ndarray  # (F,), c_FF
    toward: np.ndarray  # (n_slots,), c_FF + c_sF
    cross_ptr: np.ndarray  # (n_slots,), -1 if all c_sF of a factor are 0


def build_initial_messages(shape, cross_size, init):
    """Return uniform messages, or the messages of an earlier result."""
    if init is None:
        return np.zeros(shape), np.zeros(cross_size)
    if not isinstance(init, FactorMessages):
        raise ValueError(
            f"init must be the state of an earlier result of message passing on factors, got {type(init).__name__}."
        )
    if init.values.shape != shape or init.cross.shape != (cross_size,):
        raise ValueError(
            f"init must hold messages of shapes {shape} and {(cross_size,)} for this model and these counting numbers, "
            f"got {init.values.shape} and {init.cross.shape}."
        )
    if not (np.all(np.isfinite(init.values)) and np.all(np.isfinite(init.cross))):
        raise ValueError("init must hold finite numbers only.")
    return np.array(init.values, dtype=np.float64), np.array(init.cross, dtype=np.float64)


class Reader:
    """Positions of the paths through all factors, and the labels that these positions determine."""

    # unit: temperature, or 1 for max-product; own: (F,), c_FF; conditional: (n_slots,), c_sF; node: (N,) or None, c_ss
    # layers: for sum-product or max-product, with scales for the sums of ``own`` and ``conditional``

    def __init__(self, layered, layers, unit, own, conditional, node=0.0):
        own_of_slot = own[layers.slot_factor]
        at_nodes = np.bincount(layers.slot_node, weights=own_of_slot, minlength=len(layers.n_states))
        used = np.bincount(layers.slot_factor, weights=conditional, minlength=layers.n_factors) > 0
        length = np.where(used, layers.arity, 0)[layers.slot_factor] * layers.n_columns
        starts = offsets_from_lengths(length)
        cross_ptr, self.cross_size = np.where(used[layers.slot_factor], starts[:-1], -1), int(starts[-1])
        self.layered, self.layers = layered, layers
        self.numbers = Numbers(unit, layered.node_scores, node + at_nodes, own, own_of_slot + conditional, cross_ptr)
        self.no_cross = np.zeros(1)
        self.left, self.right = np.zeros((2, int(layers.position_ptr[-1]) + 1))
        largest_degree = int(np.diff(layers.node_ptr).max(initial=0))
        largest_table = int(np.diff(layers.leaf_ptr).max(initial=0))
        self.work = np.empty((4 + largest_degree) * layers.n_columns + largest_table + 1)

    def read(self, messages: np.ndarray, cross: np.ndarray, beliefs: np.ndarray) -> None:
        """Prepare the positions of paths for a forward sweep, and for decoding labels."""
        read_factors(self.layers, self.numbers, messages, cross, beliefs, self.left, self.right, self.work)

    def labels(self, beliefs: np.ndarray) -> tuple:
        """Label node by node; return labels, and the index (in the model) of a node without a possible state, or -1."""
        layered = self.layered
        labels = np.zeros(len(layered.order), dtype=np.int32)
        failed = decode_factors(self.layers, layered.node_scores, beliefs, self.left, self.right, labels, self.work)
        return layered.reorder_by_node(labels), int(layered.order[failed]) if failed >= 0 else -1


class MessageRun:
    """Current messages, with the sweeps that update them."""

    # split: parts of the counting numbers. If parts of nodes are negative, convergence is not guaranteed.
    # tol: a component is skipped once no message in it changes by more than tol in an iteration.
    # The number of iterations and the final messages of a component thus do not depend on other components.

    def __init__(self, layered, split, temperature, init, damping=0.0, tol=-1.0):
        layers = layered.layers
        unit = 1.0 if temperature == 0 else float(temperature)
        factor = split.own + np.bincount(layers.slot_factor, weights=split.conditional, minlength=layers.n_factors)
        self.layered, self.damping, self.tol = layered, damping, tol
        scale = 1 / (unit * factor)
        self.layers = layers._replace(maximum=True, scale=scale) if temperature == 0 else layers.scale_for_sums(scale)
        self.reader = Reader(layered, self.layers, unit, split.own, split.conditional, split.node)
        shape = len(layers.slot_node), layers.n_columns
        self.messages, cross = build_initial_messages(shape, self.reader.cross_size, init)
        self.cross = np.append(cross, 0.0)
        self.beliefs = np.where(np.isneginf(layered.node_scores), -np.inf, 0.0)
        self.values = np.zeros(len(self.beliefs))
        self.bound = np.inf
        self.moving = layered.components
        self.reader.read(self.messages, self.cross, self.beliefs)

    def iterate(self) -> float:
        """Make a forward and a backward sweep, and return the largest change of a message."""
        reader, changes = self.reader, np.zeros(len(self.moving))
        for direction in (1, -1):
            failed = sweep(
                self.layers,
                reader.numbers,
                self.messages,
                self.cross,
                self.beliefs,
                self.values,
                reader.left,
                reader.right,
                direction,
                self.damping,
                self.moving,
                changes,
                reader.work,
            )
            if failed >= 0:
                raise make_infeasible_error(int(self.layered.order[failed]))
        changes /= 1 - self.damping
        self.moving = self.moving[changes > self.tol]
        self.bound = float(self.values.sum()) + self.layered.constant
        return float(changes.max(initial=0.0))

    def extrapolate(self, extrapolation: SweepExtrapolation) -> None:
        """Record the latest iteration, and replace the messages if an extrapolation is due."""
        if extrapolation.advance():
            self.reader.read(self.messages, self.cross, self.beliefs)

    def lower(self) -> float:
        """Make an iteration and return the decrease of the bound."""
        before = self.bound
        self.iterate()
        return before - self.bound

    def add_excess(self, largest: bool) -> None:
        """Replace the terms of nodes by terms whose sum is the value of these messages, or a bound.

        The value is stationary at a fixed point. The bound holds for any messages, if counting numbers are those of
        forests. It is derived in :func:`~sklearn_crf.inference._relaxed_problem.compute_bound_rise`, and any node of a
        factor may be its root.
        """
        if self.damping:
            # Beliefs contain the undamped messages.
            self.damping, self.moving = 0.0, self.layered.components
            self.iterate()
        layers, reader = self.layers, self.reader
        attained, most = np.empty((2, layers.n_factors))
        factor_excess(
            layers,
            reader.numbers,
            self.messages,
            self.cross,
            self.beliefs,
            reader.left,
            reader.right,
            attained,
            most,
            reader.work,
        )
        first = layers.slot_node[layers.slot_ptr[:-1]]
        np.add.at(self.values, first, most if largest else attained)
        self.bound = float(self.values.sum()) + self.layered.constant

    @property
    def state(self):
        """State for the warm start of another run."""
        return FactorMessages(self.messages, self.cross[:-1])

    def labels(self) -> np.ndarray:
        """Return labels determined from the messages."""
        return self.decode_labels()[0]

    def decode_labels(self) -> tuple:
        """Return labels, and a node for which earlier labels leave no state, or -1 if there is none."""
        self.reader.read(self.messages, self.cross, self.beliefs)
        return self.reader.labels(self.beliefs)

    def marginals(self, **fields):
        """Return marginals of the type that belongs to the model."""
        layered, reader = self.layered, self.reader
        leaves = np.zeros(len(self.layers.leaf))
        failed = leaf_statistics(
            self.layers,
            reader.numbers,
            self.messages,
            self.cross,
            self.beliefs,
            reader.left,
            reader.right,
            leaves,
            reader.work,
        )
        if failed >= 0:
            node = layered.order[self.layers.slot_node[self.layers.slot_ptr[failed]]]
            raise make_infeasible_error(int(node))
        return marginals_of(layered, np.exp(self.beliefs), leaves, self.values, state=self.state, **fields)


def marginals_of(layered, beliefs, leaves, values, **fields):
    """Return marginals of the type that belongs to the model, given values of positions and leaves."""
    # leaves: (n_leaves,); values: (N,), terms of positions in ``log_z``; **fields: further fields of the result
    # beliefs: (N, K), probabilities of the states by position
    unary = layered.reorder_by_node(beliefs)
    terms = layered.terms(values)
    return convert_factor_marginals(layered.source, terms, unary, *layered.statistics(unary, leaves), **fields)


def compute_bethe_marginals(algorithm, model, init):
    """Compute marginals of a factor graph by belief propagation."""
    # algorithm: has ``max_iter``, ``tol`` and ``damping``
    run, n_iter, converged = _propagate(algorithm, layered := LayeredModel(model), _split_bethe(layered), 1, init)
    bound = "exact" if layered.is_forest else None
    return run.marginals(bound=bound, n_iter=n_iter, converged=converged)


def compute_bethe_labeling(algorithm, model, init):
    """Compute labels of a factor graph by max-product belief propagation."""
    layered = LayeredModel(model)
    return _compute_labeling(model, *_propagate(algorithm, layered, _split_bethe(layered), 0, init))


def compute_reweighted_marginals(
    algorithm: Any, layered: LayeredModel, node: np.ndarray, factor: np.ndarray, init: Any, bounded: bool
) -> Marginals:
    """Compute marginals by tree-reweighted messages; ``log_z`` is a bound if they have not converged or if asked."""
    # node, factor: counting numbers of forests of factors
    run, n_iter, converged = _propagate(algorithm, layered, _split_own(layered, node, factor), 1, init, is_unique=True)
    if layered.is_forest:
        return run.marginals(bound="exact", n_iter=n_iter, converged=converged)
    run.add_excess(largest := bounded or not converged)
    return run.marginals(bound="upper" if largest else None, n_iter=n_iter, converged=converged)


def compute_reweighted_labeling(
    algorithm: Any, model: Any, layered: LayeredModel, node: np.ndarray, factor: np.ndarray, init: Any
) -> Labeling:
    """Compute labels by tree-reweighted max-product messages, with a bound that holds for any messages."""
    run, n_iter, converged = _propagate(algorithm, layered, _split_own(layered, node, factor), 0, init)
    found = _compute_labeling(model, run, n_iter, converged)
    if layered.is_forest:
        return found
    run.add_excess(largest=True)
    return found._replace(bound=max(run.bound, found.score))


def propagate_reweighted(algorithm: Any, model: Any, probabilities: np.ndarray) -> tuple:
    """Return the last tree-reweighted messages, with the node that receives and the factor that sends each message."""
    # probabilities: (F,), of the factors in the order of the layers; messages: (n_slots, K), 0 for impossible states
    layered = LayeredModel(model)
    layers, of_slot = layered.layers, np.repeat(probabilities, layered.layers.arity)
    node = 1.0 - np.bincount(layers.slot_node, of_slot, len(layers.n_states))
    run, _, _ = _propagate(algorithm, layered, _split_own(layered, node, probabilities), 1, None, is_unique=True)
    sent = run.messages + of_slot[:, np.newaxis] * run.beliefs[layers.slot_node]
    messages = np.where(np.isneginf(sent), 0.0, sent)[:, : model.n_columns]
    return messages, layered.order[layers.slot_node], layers.slot_factor


def _compute_labeling(model: Any, run: MessageRun, n_iter: int, converged: bool) -> Labeling:
    """Return the labels of max-product messages, which are optimal on forests."""
    labels, dead_end = run.decode_labels()
    is_forest = run.layered.is_forest
    if dead_end >= 0 and is_forest:
        raise make_infeasible_error(dead_end)
    found = score_labeling(model, labels, n_iter=n_iter, converged=converged, state=run.state)
    return found._replace(bound=found.score) if is_forest else found


def run_over_forest(layered, temperature, init):
    """Return messages of belief propagation, which are exact if factors and nodes form no cycle."""
    run = MessageRun(layered, _split_bethe(layered), temperature, init)
    # Send messages from the leaves to the roots and back, then once more for every node.
    run.iterate()
    run.iterate()
    return run


def _split_bethe(layered: LayeredModel) -> Split:
    layers = layered.layers
    return _split_own(layered, 1.0 - np.diff(layers.node_ptr), np.ones(layers.n_factors))


def _split_own(layered: LayeredModel, node: np.ndarray, factor: np.ndarray) -> Split:
    """Return counting numbers of nodes and factors as they are, without concave terms of both."""
    return Split(node, factor, np.zeros(len(layered.layers.slot_node)))


def _propagate(
    algorithm: Any, layered: LayeredModel, split: Split, temperature: float, init: Any, *, is_unique: bool = False
) -> tuple[MessageRun, int, bool]:
    """Send messages until they converge; return them, the number of iterations, and whether they converged."""
    # is_unique: whether there is only one fixed point, to which sweeps may be extrapolated
    if layered.is_forest:
        return run_over_forest(layered, temperature, init), 2, True
    run, change, n_iter = MessageRun(layered, split, temperature, init, algorithm.damping, algorithm.tol), np.inf, 0
    # Results of a component must not depend on other components.
    extrapolates = is_unique and not algorithm.damping and len(layered.components) == 1
    extrapolation = choose_factor_extrapolation(run.messages) if extrapolates else None
    while n_iter < algorithm.max_iter and change > algorithm.tol:
        checkpoint()
        if extrapolation is not None and n_iter:
            run.extrapolate(extrapolation)
        n_iter += 1
        change = run.iterate()
    if change > algorithm.tol:
        warn_unconverged(make_still_changing_warning(algorithm, temperature == 0, change))
    return run, n_iter, bool(change <= algorithm.tol)


def make_still_changing_warning(algorithm, maximum, change):
    """Return the warning for messages that have not converged."""
    stopped = f"{type(algorithm).__name__} stopped after max_iter={algorithm.max_iter} sweeps"
    if np.isinf(change):
        return f"{stopped}, and in the last sweep messages still excluded states: increase max_iter."
    what = "scores" if maximum else "probabilities"
    return (
        f"{stopped} while {what} of messages were still changing by {change:.2g}, more than tol={algorithm.tol:g}: "
        "increase max_iter, or damping if they oscillate."
    )
