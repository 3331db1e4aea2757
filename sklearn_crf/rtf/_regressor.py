"""Regression tree fields: Gaussian fields whose parameters trees look up in the input."""

from copy import copy
from numbers import Integral
from typing import ClassVar

import numpy as np
from sklearn.base import RegressorMixin, _fit_context, clone
from sklearn.metrics import r2_score
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_crf.encoding import object_array
from sklearn_crf.inference import GaussianDirect, GaussianGibbs
from sklearn_crf.rtf._base import LIKELIHOODS, FieldEstimator, flattened
from sklearn_crf.rtf._input import centre_and_scale, put_back, read_planes, read_targets, require_one_reading
from sklearn_crf.rtf._options import as_options
from sklearn_crf.rtf.losses import LOSSES, loss_function

# What an estimator shows of its last field.
_OF_LAST = (
    "trees_",
    "precisions_",
    "weights_",
    "offsets_",
    "slopes_",
    "pairwise_channels_",
    "precision_channels_",
    "target_mean_",
    "target_scale_",
    "loss_curve_",
    "round_ends_",
    "validation_curve_",
    "n_iter_",
    "lattice_ndim_",
    "filter_bank_",
)


def fit_stages(estimator, X, y, sample_weight):
    """Fit the fields of a cascade and note on the estimator what its last one found.

    Parameters
    ----------
    estimator : RegressionTreeField
    X, y : array-like or list of array-like
    sample_weight : array-like of shape (n,), or None
    """
    if estimator.warm_start:
        raise ValueError(f"warm_start goes on from a single field, got cascade={estimator.cascade}.")
    stages, seen = [], X
    for _ in range(estimator.cascade):
        if stages:
            seen = with_channels(X, stages[-1].predict(seen))
        stages.append(clone(estimator).set_params(cascade=1).fit(seen, y, sample_weight))
    estimator.stages_ = stages
    estimator.n_features_in_ = stages[0].n_features_in_
    if hasattr(stages[0], "feature_names_in_"):
        estimator.feature_names_in_ = stages[0].feature_names_in_
    for name in _OF_LAST:
        setattr(estimator, name, getattr(stages[-1], name))


def predict_through(stages, X, n_jobs, return_std):
    """Prediction of the last field of a cascade.

    Parameters
    ----------
    stages : list of RegressionTreeField
    X : array-like or list of array-like
    n_jobs : int or None
    return_std : bool

    Returns
    -------
    ndarray, or a tuple of two
    """
    seen = X
    for k, stage in enumerate(stages):
        # On as many threads as asked for now; the fields that are kept stay as they are.
        own = copy(stage).set_params(n_jobs=n_jobs)
        if k == len(stages) - 1:
            return own.predict(seen, return_std=return_std)
        seen = with_channels(X, own.predict(seen))


def with_channels(X, predicted):
    """Images with more channels, in the layout of X.

    Parameters
    ----------
    X : array-like or list of array-like
        Images, channels last.
    predicted : ndarray
        Values of each, with or without an axis of channels.

    Returns
    -------
    ndarray, of object for a list
    """
    if isinstance(X, list | tuple) or np.asarray(X).dtype == np.object_:
        return object_array([_joined(x, p) for x, p in zip(X, predicted, strict=True)])
    return _joined(X, predicted)


def _joined(x, values):
    x, values = np.asarray(x, dtype=np.float32), np.asarray(values, dtype=np.float32)
    return np.concatenate([x, values[..., None] if values.ndim < x.ndim else values], axis=-1)


# All but those of labels, which are not numbers to predict.
_LOSSES = tuple(name for name in LOSSES if name not in ("logistic", "multinomial"))

# Fields of at most this many values have their covariance by factorisation, larger ones by sampling.
_DIRECT_VALUES = 4096


class RegressionTreeField(RegressorMixin, FieldEstimator):
    r"""Predict an image from an image: a Gaussian field whose factors are chosen by regression trees.

    .. math::
        p(y \mid x) \propto \exp \Big( \sum_F -\tfrac12 y_F^\top J_{l(F)} y_F + y_F^\top H_{l(F)} b(x_F) \Big)

    Factors F are the pixels and the pairs of pixels of a window, one type for each offset. Each type has a tree that
    looks at the channels of x around the factor and ends in a leaf l(F), with a precision J and a linear model H of 1
    and the channels at the factor's pixels, b. The prediction is the mean of the field. Trees and leaves are trained
    together, by the pseudolikelihood or for the loss of the prediction itself.

    Parameters
    ----------
    loss : str or callable, default="pseudolikelihood"
        What is minimised, averaged over images. ``"pseudolikelihood"`` is convex and its J are precisions that
        ``return_std`` can read; so is the exact ``"likelihood"``, for images of at most 4096 values. ``"mse"``,
        ``"psnr"`` (in decibels), ``"mae"``, ``"ssim"`` and ``"iw_ssim"`` are those of :mod:`~sklearn_crf.rtf.losses`,
        of the prediction; they take two solves an image and iteration, and predict better. Or a function of
        prediction and target, both ``(*lattice, D)``, that returns the value and the derivative by the prediction.
    window : int, array-like of shape (n_offsets, lattice_ndim) or Window, default=3
        Pairs of pixels with a factor: 3 joins each with its 8 neighbours (4 types of factors), 5 with 24 (12 types), 1
        with none. Or the offsets, or a :class:`~sklearn_crf.rtf.Window`, which also says what the factors depend on.
    max_depth : int, default=5
        Most splits between the root of a tree and a leaf; 0 is a Gaussian field of one leaf a type.
    filter_bank : FilterBank or None, default=None
        A :class:`~sklearn_crf.preprocessing.FilterBank` whose responses are the channels, instead of those of X. Images
        of any size are then predicted in little memory, tile by tile; a pipeline holds all responses at once.
    split : {"gradient", "residual"} or Splits, default="gradient"
        Where leaves are split: where the projected gradient of the loss grows most, round by round; or, before any
        parameters are fitted, where the means of the targets explain most. The tests and thresholds to try are options
        of :class:`~sklearn_crf.rtf.Splits`.
    solver : {"pqn", "spg"} or FieldSolver, default="pqn"
        Projected quasi-Newton steps, or spectral projected gradients; the number of pixels to train on, shrinkage,
        bounds of eigenvalues and early stopping are options of :class:`~sklearn_crf.rtf.FieldSolver`.
    max_iter : int, default=50
        Most iterations of each round, of which there are one more than splits on the longest path.
    tol : float, default=1e-4
        Largest entry of the projected gradient at which a round ends, by parameters in units of the root of their
        leaf's share of the factors, and of what the leaf sees of the channels.
    cascade : int, default=1
        Fields one after the other: each sees, besides X, the prediction of the one before as more channels.
    inference : "auto" or ConjugateGradient, default="auto"
        Solver of training and prediction; ``"auto"`` stops at a residual of 1e-4 in training, 1e-5 in prediction.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the field of the last call: with a larger ``max_depth`` its trees are deepened.
    random_state : int, RandomState instance or None, default=None
        Of tests and samples.
    n_jobs : int or None, default=None
        Threads over images, types, and rows; results do not depend on it.
    verbose : int, default=0
        1 prints a line a round.

    Attributes
    ----------
    trees_ : list of dict
        Arrays of each type's tree: ``children``, ``test``, ``threshold``, ``leaf``. The unary type is first, then one
        for each row of ``offsets_``.
    precisions_ : list of ndarray of shape (L, m, m)
        J of each leaf of each type, for targets of mean 0 and variance 1.
    weights_ : list of ndarray of shape (L, m, 1 + n_channels)
        H of each leaf of each type, as to 1 and the channels (for pairs those chosen, of both pixels).
    offsets_ : ndarray of shape (n_offsets, 2)
        Rows and columns from the first pixel of a pair to its second.
    pairwise_channels_ : ndarray
        Channels that linear models of pairs see.
    slopes_ : list of ndarray of shape (L, I, m, m)
        By which J of each leaf of each type grows with I channels.
    precision_channels_ : ndarray of shape (I,)
        These channels.
    target_mean_ : ndarray of shape (D,)
        Mean of y.
    target_scale_ : float
        Standard deviation of y.
    loss_curve_ : ndarray
        The loss at the start, and after every iteration of all rounds, with the pull of ``shrinkage``.
    round_ends_ : ndarray
        Iterations made by the end of each round.
    stages_ : list of RegressionTreeField
        The fields of a cascade; the attributes above and below are those of the last. Only with ``cascade`` above 1.
    validation_curve_ : ndarray
        Loss of what was held out at the end of each round; empty without early stopping.
    n_iter_ : int
        Iterations of all rounds.
    filter_bank_ : FilterBank or None
        The bank, fitted.
    n_features_in_ : int
        Channels of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of a data frame.
    lattice_ndim_ : int
        Axes of the lattices seen in ``fit``: 0, 1 or 2.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, PhD thesis, TU Wien 2012, Part III, Eq. (277),
    Figures 51, 58 and 59. J. Jancsary, S. Nowozin, T. Sharp and C. Rother. Regression Tree Fields. CVPR 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import RegressionTreeField
    >>> rng = np.random.default_rng(0)
    >>> clean = np.kron(rng.random((10, 4, 4)), np.ones((4, 4)))
    >>> noisy = clean + 0.3 * rng.normal(size=clean.shape)
    >>> field = RegressionTreeField(loss="mse", max_depth=1, random_state=0).fit(noisy[:8, ..., None], clean[:8])
    >>> bool(np.mean((field.predict(noisy[8:, ..., None]) - clean[8:]) ** 2) < 0.03)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **FieldEstimator._parameter_constraints,
        "loss": [StrOptions({*LIKELIHOODS, *_LOSSES}), callable],
        "cascade": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        loss="pseudolikelihood",
        *,
        window=3,
        max_depth=5,
        filter_bank=None,
        split="gradient",
        solver="pqn",
        max_iter=50,
        tol=1e-4,
        cascade=1,
        inference="auto",
        warm_start=False,
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.loss = loss
        self.window = window
        self.max_depth = max_depth
        self.filter_bank = filter_bank
        self.split = split
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.cascade = cascade
        self.inference = inference
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Grow the trees and fit their leaves.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), or list of array-like of shape (H, W, F)
            Images of F channels; chains (n, T, F) and plain samples (n, F) too. Read as float32.
        y : array-like of shape (n, H, W) or (n, H, W, D), or list of such images
            Values to predict.
        sample_weight : array-like of shape (n,), optional
            One weight for each image.

        Returns
        -------
        RegressionTreeField
        """
        if self.cascade > 1:
            fit_stages(self, X, y, sample_weight)
            return self
        if as_options(self.window, "window").lattice_ndim is None:
            require_one_reading(X, y, sequences=False)
        planes = read_planes(self, X, reset=not self._continues())
        targets, has_channels = read_targets(planes, y)
        weights = self._weights(planes, sample_weight)
        if self._continues():
            mean, scale = self._known_scale(targets, has_channels, planes)
        else:
            mean, scale = centre_and_scale(targets, weights)
        extremes = [f(target) for target in targets for f in (np.min, np.max)]
        data_range = float(np.ptp(extremes)) or 1.0
        objective = self._objective({name: loss_function(name, data_range) for name in _LOSSES}, mean, scale)
        self._fit_field(planes, [((t - mean) / scale).astype(np.float32) for t in targets], weights, objective)
        self.target_mean_, self.target_scale_, self._has_channels = mean, scale, has_channels
        return self

    def predict(self, X, return_std=False):
        """Mean of the field.

        Images of more than a million pixels are solved in tiles, with margins so large that the tiles agree at their
        seams to the tolerance of the solver.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), or list of array-like of shape (H, W, F)
            Images, as in ``fit``.
        return_std : bool, default=False
            Whether to return standard deviations too: exact for fields of at most 4096 values, else averages over 200
            sweeps of Gibbs sampling. They mean something after training by pseudolikelihood.

        Returns
        -------
        y : ndarray of shape (n, H, W) or (n, H, W, D), or of shape (n,) of such images
            An array for an array, an object array for a list.
        std : the same
            Only with ``return_std``.
        """
        check_is_fitted(self)
        if self.cascade > 1:
            return predict_through(self.stages_, X, self.n_jobs, return_std)
        planes = read_planes(self, X, reset=False)
        means, deviations = self._field_means(planes, _deviation if return_std else None)
        predicted = put_back(planes, [self.target_mean_ + self.target_scale_ * u for u in means], self._has_channels)
        if not return_std:
            return predicted
        return predicted, put_back(planes, [self.target_scale_ * part for part in deviations], self._has_channels)

    def score(self, X, y, sample_weight=None):
        """Coefficient of determination over all values.

        Parameters
        ----------
        X : array-like or list of array-like
            Images.
        y : array-like or list of array-like
            Their values.
        sample_weight : array-like of shape (n,), optional
            One weight for each image.

        Returns
        -------
        float
        """
        truth, found, weight = flattened(y, self.predict(X), sample_weight)
        return float(r2_score(truth, found, sample_weight=weight))

    def _known_scale(self, targets, has_channels, planes):
        """Mean and scale of the field that ``fit`` goes on from."""
        same = targets[0].shape[1] == len(self.target_mean_) and has_channels == self._has_channels
        if not same or not np.array_equal(planes.offsets, self.offsets_):
            raise ValueError("warm_start needs targets of as many channels and the window of the last call of fit.")
        return self.target_mean_, self.target_scale_

    def _planes_to_predict(self, X):
        return read_planes(self, X, reset=False)

    def _known_values(self, planes, evidence):
        return read_targets(planes, evidence, "evidence", missing=True)[0]


def _deviation(model, n_threads):
    if model.h.size <= _DIRECT_VALUES:
        found = GaussianDirect().marginals(model)
    else:
        found = GaussianGibbs(random_state=0).marginals(model, n_threads=n_threads)
    return np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
