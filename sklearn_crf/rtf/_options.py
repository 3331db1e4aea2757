"""Options of the splits, the window, the solver and the cascade of a regression tree field, as objects."""

from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions

from sklearn_crf._numbers import as_array
from sklearn_crf._versions import HoldsOptions


class Options(HoldsOptions):
    """Base of objects that hold constructor parameters and nothing else."""

    _parameter_constraints: ClassVar[dict] = {}

    def check(self) -> None:
        """Raise InvalidParameterError for the first parameter that is not valid."""
        self._validate_params()


@dataclass(eq=False, repr=False)
class Splits(Options):
    r"""Options of the splits of regression trees.

    A test compares a channel at an offset, the difference of two such, or the magnitude of either, with a threshold.
    The split with the highest criterion is taken: with :math:`g_l` the projected gradient of the loss by the parameters
    of a leaf, ``"gradient"`` maximises :math:`\|g_{left}\|^2 + \|g_{right}\|^2`.

    Parameters
    ----------
    criterion : {"gradient", "residual"}, default="gradient"
        ``"gradient"`` splits round by round where the projected gradient of the loss grows most; ``"residual"`` grows
        the trees before any parameter is fitted, where the means of the targets explain most of their variance.
    n_feature_tests : int or None, default=64
        Random tests per type of factor and round. None takes every channel at every offset.
    n_thresholds : int, default=15
        Quantiles of the responses to each test that are tried, at most 255.
    feature_radius : int, default=3
        Largest offset of a test, in rows and columns.
    max_samples : int or None, default=20000
        Random factors of a type on which splits are compared. None takes all.
    min_samples_leaf : int or None, default=None
        Fewest factors in a leaf, approximately where ``max_samples`` is smaller than their number. None is ten for
        each weight of a value's linear model.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Proposition 6.

    Examples
    --------
    >>> from sklearn_crf import RegressionTreeField
    >>> from sklearn_crf.rtf import Splits
    >>> field = RegressionTreeField(split=Splits(feature_radius=5))
    >>> field.set_params(split__n_feature_tests=128).split
    Splits(feature_radius=5, n_feature_tests=128)
    """

    _parameter_constraints: ClassVar[dict] = {
        "criterion": [StrOptions({"gradient", "residual"})],
        "n_feature_tests": [Interval(Integral, 1, None, closed="left"), None],
        "n_thresholds": [Interval(Integral, 1, 255, closed="both")],
        "feature_radius": [Interval(Integral, 0, None, closed="left")],
        "max_samples": [Interval(Integral, 2, None, closed="left"), None],
        "min_samples_leaf": [Interval(Integral, 1, None, closed="left"), None],
    }

    criterion: str = "gradient"
    _: KW_ONLY
    n_feature_tests: int | None = 64
    n_thresholds: int = 15
    feature_radius: int = 3
    max_samples: int | None = 20000
    min_samples_leaf: int | None = None


@dataclass(eq=False, repr=False)
class Window(Options):
    r"""Pairs of pixels that have a factor, and what their factors depend on.

    A factor of a pair (s, t) has the energy :math:`\tfrac12 y_{st}^\top J_l(x) \, y_{st} - y_{st}^\top H_l b(x_{st})`
    with :math:`J_l(x) = J_l + \sum_i c_i(x_{st}) S^{(i)}_l`.

    Parameters
    ----------
    size : int or array-like of shape (n_offsets, lattice_ndim), default=3
        3 joins each pixel with its 8 neighbours (4 types of factors), in volumes with 26 (13 types), 5 with 24 (12
        types), 1 with none. Or the offsets from the first pixel of a pair to the second.
    pairwise_channels : array-like of int or None, default=None
        Channels that the linear models of pairs see; None is all. Their trees see all channels. Linear models take
        most of the training time, so a few channels make it several times as fast.
    precision_channels : array-like of int or None, default=None
        Non-negative channels :math:`c_i` that the precisions of all factors grow with, averaged over the pixels of the
        factor, with positive semi-definite :math:`S^{(i)}`. None is none.
    max_depth : int or None, default=None
        Largest depth of the trees of pairs; None is that of the estimator.
    lattice_ndim : int or None, default=None
        Axes of the lattices: 0 for plain samples, 1 for chains, 2 for images, 3 for volumes. None reads them from X,
        and raises where X and y have another reading that is more likely.

    Examples
    --------
    >>> from sklearn_crf import RegressionTreeField
    >>> from sklearn_crf.rtf import Window
    >>> RegressionTreeField(window=Window(5, pairwise_channels=[0])).get_params()[
    ...     "window__size"
    ... ]
    5
    """

    _parameter_constraints: ClassVar[dict] = {
        "size": [Integral, "array-like"],
        "pairwise_channels": ["array-like", None],
        "precision_channels": ["array-like", None],
        "max_depth": [Interval(Integral, 0, None, closed="left"), None],
        "lattice_ndim": [Interval(Integral, 0, 3, closed="both"), None],
    }

    size: Any = 3
    _: KW_ONLY
    pairwise_channels: Any = None
    precision_channels: Any = None
    max_depth: int | None = None
    lattice_ndim: int | None = None


@dataclass(eq=False, repr=False)
class FieldSolver(Options):
    r"""Options of the optimisation of the leaves: the method, and the pixels that it looks at.

    Parameters
    ----------
    method : {"pqn", "spg"}, default="pqn"
        Projected quasi-Newton steps, or spectral projected gradients. The loss never rises with the first; the second
        needs less memory.
    max_samples : int, None or "auto", default="auto"
        Most pixels of all images together that a round of training looks at, chosen again for every round. The
        pseudolikelihood is summed over pixels of squares chosen at random, given all that is around them; other losses
        are of rectangles of images. None is all; ``"auto"`` is 100,000 for losses of predictions of images, else all.
        With the default filters training holds about one kilobyte for each of these pixels.
    shrinkage : float or "auto", default="auto"
        Pull of each leaf's linear model towards that of the leaf that it was split from, as strong as this number of
        factors that agree with the parent. It reduces overfitting where trees are deep and images few. ``"auto"`` is
        5 % of the pixels of a round for losses of predictions of images and of 2,000 nodes of chains, else 0; also 0
        where all trees are grown before anything is trained (``criterion="residual"``), so that leaves would be drawn
        to where they start.
    ridge : float or "auto", default="auto"
        Penalty on the scores of classes, ``ridge / (2 n)`` times the mean over pixels of their sum of squares, with the
        n labelled pixels of a round, each counted by its weight. Where a field has one leaf and no pairs, it is the
        penalty of ``LogisticRegression(C=1 / ridge)`` on uncorrelated features of variance one. ``"auto"`` is the
        number of leaves of a tree of depth ``max_depth``, at most 32, for each type of nodes. Losses that are not of
        scores have no such penalty.
    eigenvalue_bounds : (float, float), default=(1e-2, 1e2)
        Smallest and largest eigenvalue of each precision, where targets have variance one. They regularise, and bound
        the iterations of conjugate gradients. The pseudolikelihood of very smooth targets needs narrower ones, such as
        (1, 10): with a wide range neighbours count for so much that predictions drift away from X.
    early_stopping : bool or "auto", default="auto"
        Whether to hold out images, strips of fewer than five images, or rows of a table, and to stop after two rounds
        in a row that do not lower the loss on them. The field is that of the best round, see Notes. ``"auto"`` holds
        out for losses of predictions, if there are at least 20,000 pixels of images or 2,000 nodes of chains and some
        values of y are known both in what is held out and in the rest.
    validation_fraction : float, default=0.1
        Share of the images to hold out.

    Notes
    -----
    Where rounds look at other pixels each, or at another corruption, parameters after round k are means of rounds,

    .. math::
        \bar\theta_k = (1 - a_k) \bar\theta_{k-1} + a_k \theta_k, \qquad
        a_1 = 1, \quad a_k = \max\left(0.3, \tfrac{n}{n + 200\,000}, \tfrac{1}{k - 1}\right),

    with the :math:`\theta_k` that round k finds from :math:`\bar\theta_{k-1}`, and the n pixels that it looks at. So
    the loss on what is held out depends less on the pixels of the last round, and falls more evenly (B. T. Polyak and
    A. B. Juditsky, SIAM Journal on Control and Optimization 30, 1992). Rounds of many pixels differ little, and count
    nearly in full.

    Examples
    --------
    >>> from sklearn_crf import RegressionTreeField
    >>> from sklearn_crf.rtf import FieldSolver
    >>> RegressionTreeField(solver=FieldSolver(shrinkage=1e4)).get_params()[
    ...     "solver__shrinkage"
    ... ]
    10000.0
    """

    _parameter_constraints: ClassVar[dict] = {
        "method": [StrOptions({"pqn", "spg"})],
        "max_samples": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"}), None],
        "shrinkage": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "ridge": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "eigenvalue_bounds": ["array-like"],
        "early_stopping": ["boolean", StrOptions({"auto"})],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    }

    method: str = "pqn"
    _: KW_ONLY
    max_samples: int | str | None = "auto"
    shrinkage: float | str = "auto"
    ridge: float | str = "auto"
    eigenvalue_bounds: tuple[float, float] = (1e-2, 1e2)
    early_stopping: bool | str = "auto"
    validation_fraction: float = 0.1

    def check(self) -> None:
        """Raise InvalidParameterError for the first parameter that is not valid."""
        super().check()
        bounds = as_array(self.eigenvalue_bounds, "eigenvalue_bounds")
        is_pair = bounds.shape == (2,) and bounds.dtype.kind in "iuf"
        if not is_pair or not 0 < bounds[0] <= bounds[1] < np.inf:
            raise InvalidParameterError(
                "The 'eigenvalue_bounds' parameter of FieldSolver must be two positive numbers in ascending order. Got "
                f"{self.eigenvalue_bounds!r} instead."
            )


@dataclass(eq=False, repr=False)
class Cascade(Options):
    """Options of fields that are fitted one after the other, each on the prediction of the one before.

    Fields know their own training images, so that what they predict for them is better than what they will predict for
    others, and the next field learns to trust it too much. ``n_folds`` has predictions of fields that were trained on
    other images instead; ``joint`` trains the parameters of all fields for what the last one predicts.

    Parameters
    ----------
    n_fields : int, default=2
        Number of fields.
    n_folds : int or None, default=None
        Parts of the images, drawn at random: each is predicted by fields that are trained on the other parts, and
        these predictions are what the next field is trained on. Fields of the cascade itself are trained on all images.
        Takes ``1 + n_folds`` times as long for all fields but the last. None predicts by the fields themselves.
    joint : int, default=0
        Rounds of training of all fields together, with the trees as they are, at most ``max_iter`` iterations each.
        Kept are the fields of the round with the smallest loss on what is held out for early stopping, or on the
        training images if nothing is. Later fields then see the prediction before as it is, not through filters.

    References
    ----------
    J. Jancsary, S. Nowozin and C. Rother. Loss-specific training of non-parametric image restoration models: a new
    state of the art. ECCV 2012. U. Schmidt, C. Rother, S. Nowozin, J. Jancsary and S. Roth. Discriminative non-blind
    deblurring. CVPR 2013. D. H. Wolpert. Stacked generalization. Neural Networks 5, 1992.

    Examples
    --------
    >>> from sklearn_crf import RegressionTreeField
    >>> from sklearn_crf.rtf import Cascade
    >>> field = RegressionTreeField(cascade=Cascade(2, n_folds=5))
    >>> field.set_params(cascade__joint=3).cascade
    Cascade(joint=3, n_folds=5)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_fields": [Interval(Integral, 1, None, closed="left")],
        "n_folds": [Interval(Integral, 2, None, closed="left"), None],
        "joint": [Interval(Integral, 0, None, closed="left")],
    }

    n_fields: int = 2
    _: KW_ONLY
    n_folds: int | None = None
    joint: int = 0


def check_clip(bounds: Any) -> None:
    """Raise InvalidParameterError unless bounds of predictions are two numbers in ascending order."""
    read = as_array(bounds, "clip")
    if read.shape != (2,) or read.dtype.kind not in "iuf" or not read[0] < read[1]:
        raise InvalidParameterError(
            "The 'clip' parameter of RegressionTreeField must be 'auto', None or two numbers in ascending order. Got "
            f"{bounds!r} instead."
        )


# Class of the options that a name or a number stands for, by parameter.
OPTION_CLASSES = {"split": Splits, "window": Window, "solver": FieldSolver, "cascade": Cascade}


def as_options(value: Any, name: str) -> Any:
    """Validated options of a parameter that is given as an object, a name or a number."""
    kind = OPTION_CLASSES[name]
    options = value if isinstance(value, kind) else kind(value)
    options.check()
    return options
