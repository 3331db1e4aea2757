"""Sequential tree-reweighted max-product."""

from typing import ClassVar, NamedTuple

import numpy as np

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._field import Messages, build_initial_messages, make_field
from sklearn_crf.inference._local_search import improve_by_climbing
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference._relaxed_problem import RecentFall, convert_to_double, make_still_falling_warning
from sklearn_crf.inference._results import Infeasible, score_labeling
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.kernels.messages.sweeps import sequential_iteration
from sklearn_crf.models import score


class TRWSState(NamedTuple):
    """Final messages and labels of :class:`TRWS`, stored for a warm start."""

    messages: Messages
    labels: np.ndarray  # (N,), int32


@options(kw_only=False)
class TRWS(Inference):
    r"""Sequential tree-reweighted max-product (TRW-S): labels and an upper bound that never increases.

    Every edge is in one of several chains that follow the order of the nodes, and the score is the sum of the chains'
    scores. The bound is

    .. math::
        \max_y \mathrm{score}(y) \le \sum_T \max_y \mathrm{score}_T(y), \qquad \sum_T \mathrm{score}_T = \mathrm{score},

    the sum of the best scores of all chains. Scores move between chains so that the bound decreases. One node after the
    other distributes its score and received messages, :math:`\hat\theta_s = u_s + \sum_q m_{q \to s}`, evenly among the
    :math:`n_s` chains through it,

    .. math::
        m_{s \to t}(b) = \max_a \big( \hat\theta_s(a) / n_s - m_{t \to s}(a) + \theta_{st}(a, b) \big) - \mathrm{const},

    to later nodes in the forward pass, and to earlier nodes in the backward pass. After each iteration, nodes are
    labelled one by one, each given the labels of earlier nodes; the best labels are kept. If their score equals the
    bound, they are optimal (``certified``). On models with two states, the bound converges to the bound of
    :class:`LinearProgram`, and on submodular models to the best score. With more states, it may stop above both.
    Forests are solved exactly in a single iteration.

    Parameters
    ----------
    max_iter : int, default=500
        Maximum number of iterations, each with a forward and a backward pass.
    tol : float, default=1e-7
        Iterations stop when the bound decreases by at most this in ten iterations, relative to its size (at least one).
    climb : bool, default=True
        Whether to improve the final labels by changing one node at a time while the score increases.

    References
    ----------
    V. Kolmogorov. Convergent tree-reweighted message passing for energy minimization. IEEE Trans. Pattern Analysis and
    Machine Intelligence 28, 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import TRWS
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = TRWS().map(model)
    >>> found.labels.tolist(), round(found.score, 3), round(found.bound, 3)
    ([1, 1, 1], 3.5, 3.5)
    """

    tasks = frozenset({"map"})
    _starts_from: ClassVar[tuple[type, ...]] = (TRWSState,)
    exact_on = "forest"
    max_iter: int = 500
    tol: float = 1e-7
    climb: bool = True

    def _map(self, model, *, init=None, n_threads=1):
        if model.graph.is_forest:
            return TreeInference()._map(model)
        run, recent = _SequentialSweeps(model, init), RecentFall()
        for n_iter in range(1, self.max_iter + 1):
            checkpoint()
            fall = run.iterate()
            if recent.after(run.bound) <= self.tol * max(1.0, abs(run.bound)) or run.is_certain():
                return self._result(model, run, n_iter, converged=True)
        warn_unconverged(make_still_falling_warning(self, fall))
        return self._result(model, run, self.max_iter, converged=False)

    def _result(self, model, run, n_iter, converged):
        climbs = self.climb and np.isfinite(run.score) and not run.is_certain()
        labels = improve_by_climbing(model, run.labels) if climbs else run.labels
        state = TRWSState(Messages(np.ascontiguousarray(run.messages[:, : model.n_columns]), True), labels)
        found = score_labeling(model, labels, n_iter=n_iter, converged=converged, state=state)
        return found._replace(bound=max(run.bound, found.score))


class _SequentialSweeps:
    """Current messages, bound and labels, in double precision so that the bound is reliable."""

    def __init__(self, model, init):
        self.model = convert_to_double(model)
        self.field, _ = make_field(self.model, maximum=True)
        self.messages = build_initial_messages(self.field, None if init is None else init.messages)
        # Number of chains through each node, if every edge is in one chain and chains are as long as possible.
        earlier, later = np.sort(model.graph.edges, axis=1).T
        forwards, backwards = (np.bincount(ends, minlength=model.graph.n_nodes) for ends in (earlier, later))
        self.share = 1 / np.maximum(np.maximum(forwards, backwards), 1).astype(np.float64)
        self.work = self.field.workspace()
        # Labels of an infeasible start are kept until better labels are found.
        self.labels = np.zeros(model.graph.n_nodes, dtype=np.int32) if init is None else init.labels.copy()
        self.fresh = np.empty_like(self.labels)
        self.score = -np.inf if init is None else score(self.model, init.labels)
        self.bound = np.inf
        self.proof = Proof(self.model)

    def iterate(self) -> float:
        """Make a forward pass, a backward pass, and new labels; return the decrease of the bound."""
        bound, found = sequential_iteration(self.field, self.messages, self.share, self.fresh, self.work)
        if bound == -np.inf:
            raise Infeasible("model is infeasible: every labeling has a score of -inf.")
        fall, self.bound = self.bound - bound, min(self.bound, bound)
        if found > self.score or self.score == -np.inf:
            # The array of the previous best labels becomes the workspace of the next iteration.
            self.labels, self.fresh, self.score = self.fresh, self.labels, found
        return fall

    def is_certain(self) -> bool:
        """Return whether the score equals the bound up to rounding errors."""
        return self.proof.closes(self.score, self.bound)
