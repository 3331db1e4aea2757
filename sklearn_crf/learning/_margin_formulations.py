"""Formulations of M3NClassifier: the programmes of likelihoods, with a cost in place of the entropy."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from sklearn_crf._own_methods import ChecksOwnMethods, must_be
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.inference import AD3, AutoMap, CountingNumbers, IncMP, Inference
from sklearn_crf.learning._formulations import FORMULATIONS
from sklearn_crf.learning._relaxations import ENTROPIES
from sklearn_crf.learning._rules import map_inference
from sklearn_crf.objectives import Objective, RelaxedHinge, SlackRescaledHinge, SoftmaxMargin, StructuredHinge

# Of tree-reweighted max-product for each labeling: more, or smaller steps of the bound, give no better weights.
_ITERATIONS, _STEP_OF_BOUND = 20, 1e-5


class MarginFormulation(ChecksOwnMethods, HoldsOptions):
    """Base of the formulations of max-margin training.

    Parameters
    ----------
    cost : {"hamming", "weighted"} or array-like of shape (n_classes, n_classes), default="hamming"
        Number of wrong nodes; "weighted" by one over the frequency of each true class; or ``cost[a, b]`` of each node
        of class b that is labelled a, in the order of ``classes_``: not negative, zero on the diagonal. What nodes cost
        apart, such as the areas of superpixels, is the ``node_weight`` of ``fit``.
    intercept_scaling : float, default=1.0
        As in LinearSVC, intercepts are weights of a constant feature of this value and penalised, for the dual of a
        free one has no block structure; the larger it is the freer they are.

    Attributes
    ----------
    name : str
        By which ``formulation=`` knows it.
    is_smooth : bool
        Whether training is a smooth problem, at a temperature, for L-BFGS alone.
    by_planes : bool
        Whether the loss is a maximum of planes, for any of the solvers of those.

    Examples
    --------
    >>> from sklearn_crf.learning import MarginFormulation, MaxMargin, SmoothedMargin
    >>> [(each.name, each.is_smooth) for each in (MaxMargin(), SmoothedMargin())]
    [('max_margin', False), ('smoothed', True)]
    >>> issubclass(MaxMargin, MarginFormulation)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "cost": [StrOptions({"hamming", "weighted"}), "array-like"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
    }
    _returns: ClassVar[dict] = {"objective": must_be(Objective), "automatic_inference": must_be(Inference)}
    name: ClassVar[str] = ""
    is_smooth: bool = False
    by_planes: bool = True
    entropy: str | CountingNumbers = "trw"

    def __init__(self, cost="hamming", intercept_scaling: float = 1.0):
        self.cost = cost
        self.intercept_scaling = intercept_scaling

    def automatic_inference(self) -> Inference:
        """The inference of best labelings that matches the formulation.

        Returns
        -------
        Inference
        """
        return AD3()

    def inference(self, inference: str | Inference, name: str) -> Inference:
        """The inference of training, and of prediction where it is named, by the parameter of an estimator.

        Parameters
        ----------
        inference : str or Inference
        name : str

        Returns
        -------
        Inference

        Raises
        ------
        ValueError
            If it finds no best labelings, or no fractional ones where these are needed.
        """
        is_auto = isinstance(inference, str) and inference == "auto"
        found = self.automatic_inference() if is_auto else map_inference(inference, name)
        if self.needs_fractional and not found.has_fractional:
            raise ValueError(
                f"formulation={self.name!r} needs an inference with fractional solutions, AD3(), IncMP() or "
                f"LinearProgram(), got {type(found).__name__}."
            )
        return found

    @property
    def needs_fractional(self) -> bool:
        """Whether solutions of the linear relaxation take part in training."""
        return not self.is_smooth

    def objective(
        self, inference: Inference, cost: np.ndarray, have_cycles: bool = True, single_nodes: bool = False
    ) -> Objective:
        """The objective of training.

        Parameters
        ----------
        inference : Inference
        cost : ndarray of shape (K, K)
        have_cycles : bool, default=True
            Whether some example has a cycle.
        single_nodes : bool, default=False
            Whether every example is one node.

        Returns
        -------
        Objective
        """
        return RelaxedHinge(inference, cost)


class MaxMargin(MarginFormulation):
    r"""The maximum itself, by any inference of best labelings.

    .. math:: \max_y \bigl[ \Delta(y, y_i) + \mathrm{score}(y) \bigr] - \mathrm{score}(y_i)

    Parameters
    ----------
    rescaling : {"margin", "slack"}, default="margin"
        "margin" adds the cost to the score; "slack" multiplies it by one plus the difference in score, see
        :doc:`/user_guide/m3n`.
    cost : {"hamming", "weighted"} or array-like of shape (n_classes, n_classes), default="hamming"
        As of :class:`MarginFormulation`.
    intercept_scaling : float, default=1.0
        As of :class:`MarginFormulation`.

    Examples
    --------
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import MaxMargin
    >>> m3n = M3NClassifier(formulation=MaxMargin(cost="weighted"))
    >>> m3n.set_params(formulation__rescaling="slack").formulation
    MaxMargin(cost='weighted', rescaling='slack')
    """

    _parameter_constraints: ClassVar[dict] = {
        "rescaling": [StrOptions({"margin", "slack"})],
        **MarginFormulation._parameter_constraints,
    }
    name = "max_margin"
    needs_fractional = False

    def __init__(self, rescaling: str = "margin", cost="hamming", intercept_scaling: float = 1.0):
        super().__init__(cost, intercept_scaling)
        self.rescaling = rescaling

    def automatic_inference(self):
        return AutoMap(max_iter=_ITERATIONS, tol=_STEP_OF_BOUND, bounded=True)

    def objective(self, inference, cost, have_cycles=True, single_nodes=False):
        if self.rescaling == "margin":
            return StructuredHinge(inference, cost)
        return SlackRescaledHinge(inference, cost, single_nodes)


class RelaxedMargin(MarginFormulation):
    """The maximum over the local polytope, whose fractional solutions take part in training.

    Source: Jancsary 2012, M3N recipe 2.

    Parameters
    ----------
    cost : {"hamming", "weighted"} or array-like of shape (n_classes, n_classes), default="hamming"
        As of :class:`MaxMargin`.
    intercept_scaling : float, default=1.0
        As of :class:`MaxMargin`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import RelaxedMargin
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     formulation=RelaxedMargin(), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    name = "lp"


class DualMargin(MarginFormulation):
    """The relaxed maximum in the dual, by exponentiated gradient steps in the marginals of one example after the other.

    Source: Jancsary 2012, M3N recipe 5. Parameters as of :class:`MarginFormulation`, and those of the relaxed
    likelihood whose marginals stay in the polytope.

    Parameters
    ----------
    max_iter : int, default=500
        Most iterations of its inner problem, for one example.
    tol : float, default=1e-6
        Its tolerance.
    cost : {"hamming", "weighted"} or array-like of shape (n_classes, n_classes), default="hamming"
        As of :class:`MarginFormulation`.
    intercept_scaling : float, default=1.0
        As of :class:`MarginFormulation`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import DualMargin
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     formulation=DualMargin(), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    _parameter_constraints: ClassVar[dict] = {
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        **MarginFormulation._parameter_constraints,
    }
    name = "dual"
    by_planes = False
    likelihood = "relaxation"

    def __init__(self, max_iter: int = 500, tol: float = 1e-6, cost="hamming", intercept_scaling: float = 1.0):
        super().__init__(cost, intercept_scaling)
        self.max_iter = max_iter
        self.tol = tol

    def objective(self, inference, cost, have_cycles=True, single_nodes=False):
        # The dual has no temperature: its marginals alone are those of a likelihood.
        return self._softmax_margin(cost, have_cycles, 1.0)

    def _softmax_margin(self, cost, have_cycles, temperature):
        relaxation = FORMULATIONS[self.likelihood](self.entropy, self.max_iter, self.tol)
        return SoftmaxMargin(relaxation.likelihood(have_cycles, False), cost, temperature)


class SmoothedMargin(DualMargin):
    r"""The relaxed maximum plus ``temperature`` times a concave entropy, a smooth problem.

    .. math:: \max_{\tau \in L} \langle \theta + \mathrm{cost}, \tau \rangle + T \, \tilde H(\tau)

    Training begins at temperature one and falls to the last. Source: Jancsary 2012, M3N recipe 1.

    Parameters
    ----------
    temperature : float, default=0.1
        The last temperature, in units of the cost.
    entropy : {"trw", "trivial", "factors"} or CountingNumbers, default="trw"
        As of :class:`Relaxation`; the looser it is, the lower the temperature has to be for the same gap. Numbers must
        not be negative.
    max_iter : int, default=500
        Most iterations of the inner problem, for one example.
    tol : float, default=1e-6
        Its tolerance.
    cost : {"hamming", "weighted"} or array-like of shape (n_classes, n_classes), default="hamming"
        As of :class:`MarginFormulation`.
    intercept_scaling : float, default=1.0
        As of :class:`MarginFormulation`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import SmoothedMargin
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     formulation=SmoothedMargin(), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    _parameter_constraints: ClassVar[dict] = {
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "entropy": [StrOptions(set(ENTROPIES)), CountingNumbers],
        **DualMargin._parameter_constraints,
    }
    name = "smoothed"
    is_smooth = True

    def __init__(
        self,
        temperature: float = 0.1,
        entropy: str | CountingNumbers = "trw",
        max_iter: int = 500,
        tol: float = 1e-6,
        cost="hamming",
        intercept_scaling: float = 1.0,
    ):
        super().__init__(max_iter, tol, cost, intercept_scaling)
        self.temperature = temperature
        self.entropy = entropy

    def automatic_inference(self):
        return AutoMap()

    def objective(self, inference, cost, have_cycles=True, single_nodes=False):
        numbers = self.entropy if isinstance(self.entropy, CountingNumbers) else (0.0, 0.0)
        if any(np.ndim(each) or not 0 <= each < np.inf for each in numbers):
            raise ValueError(
                "entropy=CountingNumbers(...) must have one number for all nodes and one for all factors, neither of "
                f"them negative, got {self.entropy!r}."
            )
        return self._softmax_margin(cost, have_cycles, self.temperature)


class ReparameterizedMargin(SmoothedMargin):
    """The smoothed maximum as the least bound over all ways to share the scores out among trees.

    At ``temperature=0`` it is the linear relaxation, shared among edges by
    :class:`~sklearn_crf.inference.IncMP`, and takes the solvers of planes. Source: Jancsary 2012, M3N recipe 3.

    Parameters
    ----------
    temperature : float, default=0.1
        The last temperature, in units of the cost.
    entropy : {"trw", "trivial", "factors"} or CountingNumbers, default="trw"
        As of :class:`SmoothedMargin`.
    max_iter : int, default=500
        Most iterations of the inference of one example.
    tol : float, default=1e-6
        Its tolerance.
    cost : {"hamming", "weighted"} or array-like of shape (n_classes, n_classes), default="hamming"
        As of :class:`MaxMargin`.
    intercept_scaling : float, default=1.0
        As of :class:`MaxMargin`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import ReparameterizedMargin
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     formulation=ReparameterizedMargin(), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    _parameter_constraints: ClassVar[dict] = {
        **SmoothedMargin._parameter_constraints,
        "temperature": [Interval(Real, 0, None, closed="left")],
    }
    name = "reparameterization"
    likelihood = "reparameterization"

    @property
    def is_smooth(self):
        return self.temperature > 0

    @property
    def by_planes(self):
        return self.temperature == 0

    def automatic_inference(self):
        return AutoMap() if self.is_smooth else IncMP(max_iter=self.max_iter, tol=self.tol)

    def objective(self, inference, cost, have_cycles=True, single_nodes=False):
        return super().objective(inference, cost, have_cycles) if self.is_smooth else RelaxedHinge(inference, cost)


class JointMargin(SmoothedMargin):
    """The smoothed maximum in one problem over weights and shares, without an inner problem.

    Source: Jancsary 2012, M3N recipe 4.

    Parameters
    ----------
    temperature : float, default=0.1
        The last temperature, in units of the cost.
    entropy : {"trw", "trivial"}, default="trw"
        As of :class:`SmoothedMargin`.
    max_iter : int, default=500
        Most iterations of the inference of one example.
    tol : float, default=1e-6
        Its tolerance.
    cost : {"hamming", "weighted"} or array-like of shape (n_classes, n_classes), default="hamming"
        As of :class:`MaxMargin`.
    intercept_scaling : float, default=1.0
        As of :class:`MaxMargin`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import JointMargin
    >>> y = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + 0.2 * np.sin(np.arange(15)).reshape(3, 5, 1)
    >>> m3n = M3NClassifier(
    ...     formulation=JointMargin(), edge_features="constant", random_state=0
    ... ).fit(X, y)
    >>> float(m3n.score(X, y))
    1.0
    """

    _parameter_constraints: ClassVar[dict] = {
        **SmoothedMargin._parameter_constraints,
        "entropy": [StrOptions({"trw", "trivial"})],
    }
    name = "joint"
    likelihood = "joint"


class OwnMargin(MaxMargin):
    """The formulation of an objective of the user's own, a maximum of planes."""

    # own: a subclass of :class:`~sklearn_crf.objectives.StructuredHinge`

    name = "own"

    def __init__(self, own: Objective):
        super().__init__()
        self.own = own

    def objective(self, inference, cost, have_cycles=True, single_nodes=False):
        if not isinstance(self.own, StructuredHinge):
            raise ValueError(
                "formulation must be a name, a MarginFormulation or a StructuredHinge, got "
                f"{type(self.own).__name__}: other objectives go to TRWCRF(formulation=...) or "
                "DRFClassifier(learning=...)."
            )
        return clone(self.own)


#: Formulations by name.
MARGIN_FORMULATIONS: dict[str, type[MarginFormulation]] = {
    kind.name: kind
    for kind in (MaxMargin, RelaxedMargin, DualMargin, SmoothedMargin, ReparameterizedMargin, JointMargin)
}

#: What validation takes for ``formulation``.
MARGIN_CONSTRAINTS = [StrOptions(set(MARGIN_FORMULATIONS)), MarginFormulation, HasMethods(["loss_statistics"])]


def resolve_margin_formulation(formulation: str | MarginFormulation | Objective) -> MarginFormulation:
    """The formulation of a constructor parameter."""
    if isinstance(formulation, MarginFormulation):
        found = clone(formulation)
        found._validate_params()
        return found
    return OwnMargin(formulation) if isinstance(formulation, Objective) else MARGIN_FORMULATIONS[formulation]()
