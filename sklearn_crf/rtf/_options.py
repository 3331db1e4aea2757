"""Option objects of regression tree fields: splits, window, solver and cascade."""

from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions

from sklearn_crf._numbers import as_array
from sklearn_crf._versions import HoldsOptions


class Options(HoldsOptions):
    """Base class of objects that only hold constructor parameters."""

    _parameter_constraints: ClassVar[dict] = {}

    def check(self) -> None:
        """Raise InvalidParameterError for the first invalid parameter."""
        self._validate_params()


@dataclass(eq=False, repr=False)
class Splits(Options):
    r"""Options of the splits of regression trees.

    A test compares a response with a threshold. The response is the value of a channel at an offset, the difference of
    two such values, or the magnitude of such a value or difference. Each leaf is split by the test with the highest
    criterion. ``"gradient"`` maximises :math:`\|g_{left}\|^2 + \|g_{right}\|^2`, where :math:`g_l` is the projected
    gradient of the loss with respect to the parameters of leaf l.

    Parameters
    ----------
    criterion : {"gradient", "residual"}, default="gradient"
        ``"gradient"`` splits leaves after each round of training, to increase the projected gradient of the loss.
        ``"residual"`` grows the trees before any parameter is fitted, to explain most of the variance of the targets.
    n_feature_tests : int or None, default=64
        Number of random tests per factor type and round. None tests every channel at every offset.
    n_thresholds : int, default=15
        Number of thresholds tried for each test, at most 255. Thresholds are quantiles of the responses.
    feature_radius : int, default=3
        Largest offset of a test from the factor's pixel, in rows and columns.
    max_samples : int or None, default=20000
        Number of random factors of each type on which splits are compared. None uses all factors.
    min_samples_leaf : int or None, default=None
        Minimum number of factors in a leaf; approximate if ``max_samples`` limits the factors. None requires ten
        factors for each weight in the linear model of a value.

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
    r"""Pairs of pixels that have a factor, and the channels on which the factors depend.

    A factor of a pair (s, t) has the energy :math:`\tfrac12 y_{st}^\top J_l(x) \, y_{st} - y_{st}^\top H_l b(x_{st})`
    with :math:`J_l(x) = J_l + \sum_i c_i(x_{st}) S^{(i)}_l`.

    Parameters
    ----------
    size : int or array-like of shape (n_offsets, lattice_ndim), default=3
        Side of the window. 3 connects each pixel to its 8 neighbours by 4 factor types (in volumes, to 26 neighbours by
        13 types), 5 connects it to 24 neighbours by 12 types, and 1 connects it to no neighbours. An array holds the
        offsets from the first pixel of a pair to the second.
    pairwise_channels : array-like of int or None, default=None
        Channels used by the linear models of pairs; None uses all channels. The trees of pairs always use all channels.
        Linear models take most of the training time: with only a few channels, training is several times as fast as
        with all.
    precision_channels : array-like of int or None, default=None
        Non-negative channels :math:`c_i` that increase the precisions of all factors, by positive semi-definite
        :math:`S^{(i)}`. Each channel is averaged over the pixels of the factor. None uses no channels.
    max_depth : int or None, default=None
        Maximum depth of the trees of pairs; None uses ``max_depth`` of the estimator.
    lattice_ndim : int or None, default=None
        Number of axes of the lattices: 0 for plain samples, 1 for chains, 2 for images, 3 for volumes. None infers the
        number from X, and raises an error if another reading of X and y is more likely.

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
    r"""Options for optimising the parameters of leaves: method, sampling of pixels, regularisation, early stopping.

    Parameters
    ----------
    method : {"pqn", "spg"}, default="pqn"
        Projected quasi-Newton method, or spectral projected gradients. With ``"pqn"`` the loss never increases;
        ``"spg"`` needs less memory.
    max_samples : int, None or "auto", default="auto"
        Maximum number of pixels, over all images, that a round of training uses; they are drawn anew for every round.
        The pseudolikelihood is summed over the pixels of random squares, conditioned on their surroundings. Other
        losses are computed for rectangles of images. None uses all pixels. ``"auto"`` is 100,000 for prediction losses
        on images, else all pixels. With the default filters, training needs about one kilobyte of memory for each pixel
        used.
    shrinkage : float or "auto", default="auto"
        Strength of a penalty that pulls the linear model of each leaf towards the model of the leaf it was split from.
        The penalty acts like this number of additional factors that agree with the parent. It reduces
        overfitting if trees are deep and images few. ``"auto"`` is 5 % of the pixels of a round, for prediction losses
        on images or on chains with at least 2,000 nodes, else 0. ``"auto"`` is also 0 for ``criterion="residual"``,
        because all trees are then grown before training, and leaves have no trained parents.
    ridge : float or "auto", default="auto"
        Penalty on the scores of classes: ``ridge / (2 n)`` times the mean over pixels of the sum of squared scores.
        Here n is the total weight of the labelled pixels of a round. For a field with one leaf and no pairs, it equals
        the penalty of ``LogisticRegression(C=1 / ridge)`` on uncorrelated features of variance one. ``"auto"`` is the
        number of leaves of a tree of depth ``max_depth``, at most 32, for each node type. Only losses of scores have
        this penalty.
    eigenvalue_bounds : (float, float), default=(1e-2, 1e2)
        Smallest and largest eigenvalue of each precision, for targets of variance one. The bounds regularise, and limit
        the iterations of conjugate gradients. The pseudolikelihood of very smooth targets needs a narrower range, such
        as (1, 10): with a wide range, the influence of neighbours grows so large that predictions drift away from X.
    early_stopping : bool or "auto", default="auto"
        Whether to hold out validation data, and to stop after two consecutive rounds that do not decrease the loss on
        these data. Validation data are whole images, strips of images if there are fewer than five, or rows of a table.
        Equal images are held out together, and their weights are added. The field of the best round is returned, see
        Notes. ``"auto"`` holds out data for prediction losses, if there are at least 20,000 pixels of images or 2,000
        nodes of chains, and both parts contain known values of y.
    validation_fraction : float, default=0.1
        Fraction of the total weight of images to hold out.

    Notes
    -----
    If each round draws new pixels or a new corruption, the parameters after round k are averages over rounds,

    .. math::
        \bar\theta_k = (1 - a_k) \bar\theta_{k-1} + a_k \theta_k, \qquad
        a_1 = 1, \quad a_k = \max\left(0.3, \tfrac{n}{n + 200\,000}, \tfrac{1}{k - 1}\right),

    where :math:`\theta_k` are the parameters that round k finds when it starts from :math:`\bar\theta_{k-1}`, and n is
    the number of pixels of the round. With averaging, the validation loss depends less on the pixels of the last round,
    and decreases more evenly (B. T. Polyak and A. B. Juditsky, SIAM Journal on Control and Optimization 30, 1992).
    Rounds with many pixels differ little from each other; their weight :math:`a_k` is close to 1.

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
        """Raise InvalidParameterError for the first invalid parameter."""
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
    """Options of a cascade: fields that are fitted in sequence, each on the prediction of the previous field.

    A field predicts its own training images better than new images. If the next field is trained on these predictions,
    it learns to trust them too much. With ``n_folds``, it is trained on predictions of fields that were trained on
    other images. ``joint`` trains the parameters of all fields to improve the prediction of the last field.

    Parameters
    ----------
    n_fields : int, default=2
        Number of fields.
    n_folds : int or None, default=None
        Number of random folds of the images. Each fold is predicted by a field that is trained on the other folds; the
        next field is trained on these predictions. The fields of the cascade itself are trained on all images. Training
        all fields except the last takes ``1 + n_folds`` times as long as without folds. None uses the predictions of
        the fields themselves.
    joint : int, default=0
        Number of rounds in which all fields are trained together, with unchanged trees and at most ``max_iter``
        iterations in each round. The result is the round with the smallest validation loss, or training loss if nothing
        is held out. With joint training, later fields use the previous prediction without filtering it.

    References
    ----------
    J. Jancsary, S. Nowozin and C. Rother. Loss-specific training of non-parametric image restoration models: a new
    state of the art. ECCV 2012. U. Schmidt, C. Rother, S. Nowozin, J. Jancsary and S. Roth. Discriminative non-blind
    deblurring. CVPR 2013. D. H. Wolpert. Stacked generalization. Neural Networks 5, 1992,
    :doi:`10.1016/S0893-6080(05)80023-1`.

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


# Class of the options object, for each parameter that may also be a name or a number.
OPTION_CLASSES = {"split": Splits, "window": Window, "solver": FieldSolver, "cascade": Cascade}


def as_options(value: Any, name: str) -> Any:
    """Return the validated options object of a parameter that is an object, a name or a number."""
    kind = OPTION_CLASSES[name]
    options = value if isinstance(value, kind) else kind(value)
    options.check()
    return options
