"""Pseudolikelihood training, and the scale of edges that suits predictions."""

from collections.abc import Sequence
from itertools import pairwise, starmap
from numbers import Real
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf.inference import AutoMap, convergence_left_to_caller
from sklearn_crf.learning._likelihood import PiecewiseTraining
from sklearn_crf.learning._margin_training import MarginRecord
from sklearn_crf.learning._plan import FitPlan
from sklearn_crf.learning._training import TrainingRecord, compute_initial_weights
from sklearn_crf.models import extract_nodes
from sklearn_crf.objectives import Objective, Pseudolikelihood, apply_temperature, mask_known_surroundings
from sklearn_crf.objectives._risk import expand_weights_to_nodes
from sklearn_crf.potentials import SegmentPotentials


@options
class PseudolikelihoodTraining(PiecewiseTraining):
    r"""Pseudolikelihood: the probability of each node's label given its neighbours' true labels, without inference.

    .. math:: \ell(\theta) = -\sum_s \log p(y_s \mid y_{N(s)}; \theta)

    If neighbours mostly have equal labels, the true labels of the neighbours predict a node well without its own
    features. The weights of edges are then too large, and the weights of features too small. Therefore, the weights
    are moved towards the weights :math:`w_0` of the field without edges,

    .. math:: w = w_0 + a (\hat w - w_0),

    with the ``edge_scale`` a and the minimum :math:`\hat w` of the penalised pseudolikelihood.

    Parameters
    ----------
    fixed_nodes : bool, default=False
        Whether the weights of nodes keep their start values. With ``init="auto"`` these are the weights of the field
        without edges.
    edge_scale : "auto" or float, default="auto"
        The factor a between 0 and 1. "auto" predicts training examples with a = 1, 1/2, 1/4, ... as long as the
        log-loss decreases, or the number of errors if the estimator predicts the best labelings. 1 is the plain
        pseudolikelihood, which ``partial_fit`` and weights chosen by the score on held-out examples always use.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import PseudolikelihoodTraining
    >>> y = np.array([[0, 0, 1, 1], [1, 1, 0, 0]])
    >>> X = y[..., np.newaxis] + 0.1 * np.sin(np.arange(8)).reshape(2, 4, 1)
    >>> TRWCRF(learning=PseudolikelihoodTraining(), C=10).fit(X, y).predict(X)[0].tolist()
    [0, 0, 1, 1]
    """

    _parameter_constraints: ClassVar[dict] = {
        "fixed_nodes": ["boolean"],
        "edge_scale": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both")],
    }
    name = "pseudolikelihood"
    start_with_cycles = "independent"
    fixed_nodes: bool = False
    edge_scale: str | float = "auto"

    def finds_terms(self, batches: Sequence) -> bool:
        return have_known_surroundings(batches)

    def likelihood(self, plan: FitPlan) -> Objective:
        return Pseudolikelihood()

    def train(self, risk: Any, plan: FitPlan, data: Any, make_start: Any, run: Any) -> TrainingRecord | MarginRecord:
        record = super().train(risk, plan, data, make_start, run)
        is_done = record.coef is None or record.interrupted is not None or bool(record.validation_scores)
        if is_done or not risk.n_edges or self.edge_scale == 1:
            return record
        # A warm start would begin at weights that were already moved.
        without_edges = compute_initial_weights("independent", risk, run)
        change, inference = record.coef - without_edges, plan.training_inference
        if isinstance(inference.inference, AutoMap):
            inference.inference.set_params(bounded=True)  # without a search for better labels

        def choose_scale() -> float:
            last = _choose_last_place(risk)

            def predicted_loss(scale):
                coef = without_edges + scale * change if scale < 1 else record.coef
                return risk.summed(_compute_prediction_loss, coef, inference, self.temperature, last)

            return _halve_while_lower(predicted_loss)

        scale = choose_scale() if isinstance(self.edge_scale, str) else self.edge_scale
        if scale < 1:
            record.coef = without_edges + scale * change
        return record


def have_known_surroundings(batches: Sequence) -> bool:
    """Return whether some labelled node has only labelled neighbours."""
    # Only edges are checked here. The objective checks factors, because checking them requires their model.
    return any(mask_known_surroundings(batch.example, batch.labels).any() for batch in batches)


_SMALLEST_SCALE = 1 / 64

# The scale is chosen by a sample of nodes that only depends on the examples, not on their order or their distribution
# over shards. Number of nodes of the sample, and of different checksums of examples.
_NODES_TO_PREDICT, _N_PLACES = 10_000, 4096


def _halve_while_lower(loss):
    """Return the scale 1, 1/2, 1/4, ... at which a loss stops decreasing; 1 if the inference does not support it."""
    scale = 1.0
    try:
        lowest = loss(scale)
        while scale > _SMALLEST_SCALE and (value := loss(scale / 2)) < lowest:
            scale, lowest = scale / 2, value
    except ValueError:
        # If the inference does not support the model, prediction will raise the error.
        return 1.0
    return scale


def _compute_prediction_loss(risk, coef, decoding, temperature, last):
    """Return the loss of predictions on sampled nodes: the log-loss of marginals, or the errors of labelings."""
    loss = 0.0
    for batch in risk.batches:
        # Models of segments cannot be split, but their inference takes little time.
        inside = _mask_sampled_nodes(batch, last) | isinstance(risk.potentials, SegmentPotentials)
        if not inside.any():
            continue
        model = apply_temperature(risk.potentials.model(coef, batch.example), temperature)
        weight, labels = expand_weights_to_nodes(batch), batch.labels
        if batch.node_weight is not None:
            weight = weight * batch.node_weight
        if not inside.all():
            model, weight, labels = extract_nodes(model, inside), weight[inside], labels[inside]
        nodes = np.flatnonzero(labels >= 0)
        with convergence_left_to_caller():
            if decoding.rule == "mpm":
                share = decoding.inference.marginals(model).unary[nodes, labels[nodes]]
                losses = -np.log(np.maximum(share, np.finfo(np.float64).tiny))
            else:
                losses = decoding.inference.map(model).labels[nodes] != labels[nodes]
        loss += float(losses @ weight[nodes])
    return loss


def _choose_last_place(risk: Any) -> int:
    """Return the largest place of a sampled example, so that the sample has the least sufficient number of nodes."""
    # An example with weight 2 counts like two copies, which have the same place.
    return int(np.searchsorted(np.cumsum(risk.summed(_weigh_places)), _NODES_TO_PREDICT))


def _mask_sampled_nodes(batch: Any, last: int) -> np.ndarray:
    """Return whether each node of a batch is sampled: the middle nodes of the examples up to the last place."""
    # returns: (N,) of bool
    return np.repeat(_compute_places(batch) <= last, np.diff(batch.node_ptr)) & _mask_middles(batch)


def _weigh_places(risk: Any) -> np.ndarray:
    """Return the weighted number of nodes that examples at each place add to a sample, (_N_PLACES,)."""
    weights = np.zeros(_N_PLACES)
    for batch in risk.batches:
        until = np.append(0.0, np.cumsum(expand_weights_to_nodes(batch) * _mask_middles(batch)))
        np.add.at(weights, _compute_places(batch), np.diff(until[batch.node_ptr]))
    return weights


def _compute_places(batch: Any) -> np.ndarray:
    """Return a number below _N_PLACES for each example, a checksum of its labels and node features."""
    features = batch.example.node_features

    def read(own: slice) -> tuple[np.ndarray, ...]:
        if sp.issparse(features):
            return features[own].data, features[own].indices
        # Linear operators have no rows, so only the labels count.
        return (features[own],) if isinstance(features, np.ndarray) else ()

    places = np.empty(len(batch.node_ptr) - 1, dtype=np.int64)
    for i, own in enumerate(starmap(slice, pairwise(batch.node_ptr.tolist()))):
        values = b"".join(array.tobytes() for array in (batch.labels[own], *read(own)))
        places[i] = crc32(values) % _N_PLACES
    return places


def _mask_middles(batch: Any) -> np.ndarray:
    """Return whether each node is among the middle nodes of its example, which represent it better than the first."""
    sizes = np.diff(batch.node_ptr)
    skipped = np.maximum(sizes - _NODES_TO_PREDICT, 0) // 2
    position = np.arange(batch.node_ptr[-1]) - np.repeat(batch.node_ptr[:-1], sizes)
    first = np.repeat(skipped, sizes)
    return (position >= first) & (position < first + _NODES_TO_PREDICT)
