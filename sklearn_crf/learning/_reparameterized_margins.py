"""Max-margin learning with scores divided among parts: in an inner problem, or together with the weights."""

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._options import options
from sklearn_crf.inference import AutoMap, Inference
from sklearn_crf.learning._margins import MarginLearning, SmoothedMargin
from sklearn_crf.learning._relaxations import ALL_TREES, DIVIDED_TREES, JointRelaxation, Reparameterization
from sklearn_crf.objectives import Objective, StructuredHinge


@options
class ReparameterizedMargin(SmoothedMargin):
    """Smoothed max-margin learning by the least upper bound over all divisions of the scores among trees.

    With ``temperature=0`` the bound is the linear relaxation. Scores are then divided among edges and factors by
    :class:`~sklearn_crf.inference.AD3`, and the solver is a :class:`PlaneSolver`. The reference divides scores by
    :class:`~sklearn_crf.inference.IncMP`, whose averages are too rough for a small duality gap. Source: Jancsary 2012,
    M3N recipe 3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import ReparameterizedMargin
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     learning=ReparameterizedMargin(), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    _parameter_constraints: ClassVar[dict] = {
        "temperature": [Interval(Real, 0, None, closed="left")],
        "trees": ALL_TREES[:-1],
    }
    name = "reparameterized_margin"
    likelihood = Reparameterization

    @property
    def by_planes(self) -> bool:  # type: ignore[override]
        return self.temperature == 0

    @property
    def needs_fractional(self) -> bool:  # type: ignore[override]
        return self.by_planes

    def own_inference(self) -> Inference:
        relaxed = MarginLearning.own_inference(self)
        accurate = relaxed.set_params(max_iter=max(relaxed.max_iter, self.max_iter), tol=min(relaxed.tol, self.tol))
        return AutoMap() if self.is_smooth else accurate

    def hinge(self, inference: Inference, cost: np.ndarray, facts: Any, single_nodes: bool) -> Objective:
        if self.by_planes:
            return MarginLearning.hinge(self, inference, cost, facts, single_nodes)
        return super().hinge(inference, cost, facts, single_nodes)


@options
class JointMargin(SmoothedMargin):
    r"""Max-margin learning without an inner problem: weights and divisions of scores are optimised together.

    Source: Jancsary 2012, M3N recipe 4. With ``temperature=0`` the losses are maxima and therefore not
    smooth. The bundle method then minimises

    .. math::
        \tfrac12 \lVert w \rVert^2 + \tfrac{C \gamma}{2} \lVert \lambda \rVert^2 + C \sum_i \Bigl(
            \sum_P c_P \max_y \bigl[ \theta_i(P) + \Delta_{y_i} \bigr](y) - \mathrm{score}(y_i) \Bigr)

    with a small penalty on the shares (Eq. 186). The duality gap refers to this problem.

    Parameters
    ----------
    share_penalty : float, default=0.001
        Penalty :math:`\gamma` of squared shares if the temperature is zero. With a smaller penalty, the result is
        closer to the result of :class:`RelaxedMargin`, but takes more iterations.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import JointMargin
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     learning=JointMargin(), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    _parameter_constraints: ClassVar[dict] = {
        "entropy": [StrOptions({"trw", "trivial"})],
        "temperature": [Interval(Real, 0, None, closed="left")],
        "share_penalty": [Interval(Real, 0, None, closed="neither")],
        "trees": DIVIDED_TREES,
    }
    name = "joint_margin"
    visits_examples = True
    problem = "joint"
    likelihood = JointRelaxation
    share_penalty: float = 1e-3

    def hinge(self, inference: Inference, cost: np.ndarray, facts: Any, single_nodes: bool) -> Objective:
        if not self.is_smooth:
            return StructuredHinge(inference, cost)
        return super().hinge(inference, cost, facts, single_nodes)

    def _choose_problem(self, has_parts: bool) -> str:
        if not self.is_smooth:
            return "joint_planes"
        return self.problem if has_parts else "smoothed"
