"""Belief propagation on graphs with cycles."""

from sklearn_crf.inference._field import make_field
from sklearn_crf.inference._message_passing import MessagePassing


class LoopyBP(MessagePassing):
    r"""Loopy belief propagation: sum-product for marginals, max-product for labels.

    Messages are renewed until none changes by more than ``tol``,

    .. math::
        m_{s \to t}(b) \propto \sum_a \exp(u_s(a) + \theta_{st}(a, b)) \prod_{q \ne t} m_{q \to s}(a),

    with a maximum in place of the sum for labels. Marginals are the normalised products of what a node or an edge
    receives, and ``log_z`` is the Bethe approximation that a fixed point makes stationary,

    .. math::
        \log Z_B = \sum_s \log Z_s + \sum_{st} \log \frac{Z_{st}}{Z_s Z_t}.

    On a forest the fixed point is exact. On graphs with cycles convergence is not certain, and ``log_z`` bounds
    nothing; strong or mixed-sign interactions are where damping helps.

    Parameters
    ----------
    max_iter : int, default=100
        Most sweeps; a sweep renews every message once (``"residual"``: as many messages as that on average).
    tol : float, default=1e-4
        Largest change of a message that counts as none: of its probabilities for marginals, of its scores for
        labels, before damping.
    damping : float, default=0.0
        Share of the old message that is kept, in [0, 1).
    schedule : {"auto", "sequential", "checkerboard", "residual"}, default="auto"
        Order of the messages. ``"sequential"``: forwards, then backwards through the nodes, which needs the
        fewest sweeps on lattices (one, on forests). ``"checkerboard"``: all nodes of a colour at once, which is what
        threads can share. ``"residual"``: always the node whose input changed most, for hard problems.
        ``"auto"`` is sequential up to 20,000 nodes and on forests, else checkerboard.

    References
    ----------
    J. S. Yedidia, W. T. Freeman, Y. Weiss. Constructing free-energy approximations and generalized belief
    propagation algorithms. IEEE Trans. Information Theory 51, 2005. G. Elidan, I. McGraw, D. Koller. Residual belief
    propagation. UAI 2006.
    """

    def __init__(self, max_iter=100, tol=1e-4, damping=0.0, schedule="auto"):
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping
        self.schedule = schedule

    def _make_field(self, model, maximum):
        return make_field(model, maximum)
