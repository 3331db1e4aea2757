"""Learning through a fixed number of inference sweeps, with the same number of sweeps for prediction."""

from numbers import Integral
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf.inference import NamedInference
from sklearn_crf.inference.messages._fixed_sweeps import SWEEP_LOSSES, FixedSweeps
from sklearn_crf.learning._learning import DescentLearning
from sklearn_crf.learning._plan import Facts, FitPlan
from sklearn_crf.objectives import Objective, TruncatedLoss


@options
class TruncatedInference(DescentLearning):
    r"""Learning by a loss of the marginals after a fixed number of sweeps, with gradients through the sweeps.

    .. math:: \min_w \; \tfrac12 \lVert w \rVert^2 + C \sum_i L\bigl(b^{(n)}(B(x_i) w), y_i\bigr)

    :math:`b^{(n)}` are the marginals after n sweeps, converged or not. Prediction uses the same sweeps, so that the
    weights are optimised for the marginals used in prediction. The problem is not convex.

    Parameters
    ----------
    inference : {"trw", "loopy", "mean_field"}, default="trw"
        Inference algorithm: tree-reweighted or plain belief propagation, with sweeps forwards and backwards through the
        nodes, or mean field, with sweeps forwards only.
    n_sweeps : int, default=10
        Number of sweeps. Memory grows with this number, because the messages after each sweep are kept, for one example
        at a time.
    loss : {"clique", "univariate", "quadratic", "smooth_hamming"}, default="clique"
        Loss of the marginals. "clique" is the negative log-probability of the labels of each edge (and of each node
        without edges), "univariate" of each node. "quadratic" is the squared distance between the marginals of each
        node and its label. "smooth_hamming" is the expected number of wrong nodes, which leads to extreme
        probabilities. All losses except "clique" support weights of nodes and classes.
    init : {"auto", "zeros", "random", "independent"} or ndarray of shape (n_coef,), default="independent"
        Start of training: the weights of the field without edges ("independent"), zero, or normal random numbers.
        "auto" is zero.

    References
    ----------
    J. Domke. Learning graphical model parameters with approximate marginal inference. IEEE Trans. Pattern Analysis and
    Machine Intelligence 35, 2013, :arxiv:`1301.3193`. V. Stoyanov, A. Ropson, J. Eisner. Empirical risk minimization of
    graphical model parameters given approximate inference, decoding, and model structure. AISTATS 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.learning import TruncatedInference
    >>> y = np.zeros((4, 6, 6), dtype=int)
    >>> y[:, 2:4, 2:4] = 1
    >>> X = (y + 0.3 * np.random.default_rng(0).normal(size=y.shape))[..., np.newaxis]
    >>> field = TRWCRF(learning=TruncatedInference(n_sweeps=5, loss="univariate"), C=10)
    >>> bool(field.fit(X, y).score(X, y) > 0.95)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "inference": [StrOptions({"trw", "loopy", "mean_field"})],
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
        "loss": [StrOptions(set(SWEEP_LOSSES))],
        **DescentLearning._parameter_constraints,
    }
    name = "truncated"
    why_not: ClassVar[dict[str, str]] = {"factors": "its sweeps go from node to node along edges"}
    # Examples can be packed into batches, because sweeps of separate components are independent.
    cyclic_nodes = 1024
    inference: str = "trw"
    n_sweeps: int = 10
    loss: str = "clique"
    init: Any = "independent"

    @property
    def weighs_nodes(self) -> bool:
        return self.loss != "clique"

    def automatic_inference(self, facts: Facts, in_training: bool = False) -> NamedInference:
        return NamedInference(self._make_sweeps(facts), "mpm")

    def objective(self, plan: FitPlan, data: Any) -> Objective:
        return TruncatedLoss(self._make_sweeps(plan.facts), self.loss)

    def _make_sweeps(self, facts: Facts) -> FixedSweeps:
        # On large lattices, edge probabilities of chains are as good as those of uniform trees, and faster to compute.
        trees = "auto" if facts.lattice_ndim is None else "chains"
        return FixedSweeps(method=self.inference, n_sweeps=self.n_sweeps, edge_probabilities=trees)
