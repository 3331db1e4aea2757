"""Regression tree fields: Gaussian fields whose parameters trees look up in the input."""

import warnings

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._threads import map_tasks
from sklearn_crf.encoding._weights import validate_sample_weight
from sklearn_crf.estimators._rtf_growth import GrowthOptions
from sklearn_crf.estimators._rtf_input import (
    centre_and_scale,
    check_parameters,
    put_back,
    read_planes,
    read_targets,
    whitening_of,
)
from sklearn_crf.estimators._rtf_training import TrainingOptions, train
from sklearn_crf.inference import ConjugateGradient, GaussianDirect, GaussianGibbs
from sklearn_crf.losses import LOSSES, loss_function
from sklearn_crf.objectives._gaussian_field import GaussianPseudolikelihood, PredictionLoss
from sklearn_crf.potentials._regression_tree_field import FieldImage, RegressionTreePotentials
from sklearn_crf.regression_trees._factors import factor_types
from sklearn_crf.regression_trees._tree import RegressionTree

# Losses of labels, which are not numbers to predict.
_OF_LABELS = ("logistic", "multinomial")

# Fields of at most this many values have their covariance by factorisation, larger ones by sampling.
_DIRECT_VALUES = 4096


class RegressionTreeField(RegressorMixin, BaseEstimator):
    r"""Predict an image from an image: a Gaussian field whose factors are chosen by regression trees.

    .. math::
        p(y \mid x) \propto \exp \Big( \sum_F -\tfrac12 y_F^\top J_{l(F)} y_F + y_F^\top H_{l(F)} b(x_F) \Big)

    Factors F are the pixels and the pairs of pixels of a window, one type for each offset. Each type has a tree that
    looks at the channels of x around the factor and ends in a leaf l(F), with a precision J and a linear model H of 1
    and the channels at the factor's pixels, b. The prediction is the mean of the field. Trees and leaves are trained
    together, by the pseudolikelihood or for the loss of the prediction itself.

    Parameters
    ----------
    loss : {"pseudolikelihood", "mse", "psnr", "mae", "ssim", "iw_ssim"} or callable, default="pseudolikelihood"
        What is minimised, averaged over images. ``"pseudolikelihood"`` is convex and its J are precisions that
        ``return_std`` can read. The others are those of :mod:`sklearn_crf.losses`, of the prediction (in decibels for
        ``"psnr"``); they take two solves an image and iteration, and predict better. Or a function of prediction and
        target, both ``(*lattice, D)``, that returns the value and the derivative by the prediction.
    window : int or array-like of shape (n_offsets, lattice_ndim), default=3
        Pairs of pixels with a factor: 3 joins each with its 8 neighbours (4 types of factors), 5 with 24 (12 types), 1
        with none. Or the offsets.
    max_depth : int, default=5
        Most splits between the root of a tree and a leaf; 0 is a Gaussian field of one leaf a type.
    max_depth_pairwise : int or None, default=None
        The same for pairs; None is ``max_depth``.
    min_samples_leaf : int or None, default=None
        Fewest factors in a leaf, roughly where ``split_samples`` is smaller than their number. None is ten for each
        weight of a value's linear model.
    n_feature_tests : int, default=64
        Random tests that each round tries for a type: a channel at an offset, or the difference of two.
    n_thresholds : int, default=15
        Quantiles of each test's responses that are tried, at most 255.
    feature_radius : int, default=3
        Largest offset of a test, in rows and columns.
    split_samples : int or None, default=20000
        Random factors of a type that the search for splits looks at; None is all.
    eigenvalue_bounds : (float, float), default=(1e-2, 1e2)
        Least and largest eigenvalue of each J, where targets have variance one. They regularise, and keep conjugate
        gradients quick.
    max_iter : int, default=50
        Most iterations of each round, of which there are one more than splits on the longest path.
    tol : float, default=1e-4
        Largest entry of the projected gradient at which a round ends, by parameters in units of the root of their
        leaf's share of the factors.
    solver : {"pqn", "spg"}, default="pqn"
        Projected quasi-Newton steps, or spectral projected gradients. The loss never rises with the first; the second
        needs less memory.
    data_range : float or None, default=None
        Range of the values, for ``"psnr"``, ``"ssim"``, ``"iw_ssim"`` and ``"mae"``; None is that of y.
    inference : "auto" or ConjugateGradient, default="auto"
        Solver of training and prediction; ``"auto"`` stops at a residual of 1e-4 in training, 1e-5 in prediction.
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
        H of each leaf of each type, as to 1 and the channels (of both pixels, for pairs).
    offsets_ : ndarray of shape (n_offsets, 2)
        Rows and columns from the first pixel of a pair to its second.
    target_mean_ : ndarray of shape (D,)
        Mean of y.
    target_scale_ : float
        Standard deviation of y.
    loss_curve_ : ndarray
        The loss at the start, and after every iteration of all rounds.
    round_ends_ : ndarray
        Iterations made by the end of each round.
    n_iter_ : int
        Iterations of all rounds.
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

    def __init__(
        self,
        loss="pseudolikelihood",
        *,
        window=3,
        max_depth=5,
        max_depth_pairwise=None,
        min_samples_leaf=None,
        n_feature_tests=64,
        n_thresholds=15,
        feature_radius=3,
        split_samples=20000,
        eigenvalue_bounds=(1e-2, 1e2),
        max_iter=50,
        tol=1e-4,
        solver="pqn",
        data_range=None,
        inference="auto",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.loss = loss
        self.window = window
        self.max_depth = max_depth
        self.max_depth_pairwise = max_depth_pairwise
        self.min_samples_leaf = min_samples_leaf
        self.n_feature_tests = n_feature_tests
        self.n_thresholds = n_thresholds
        self.feature_radius = feature_radius
        self.split_samples = split_samples
        self.eigenvalue_bounds = eigenvalue_bounds
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.data_range = data_range
        self.inference = inference
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

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
        check_parameters(self)
        planes = read_planes(self, X, reset=True)
        targets, has_channels = read_targets(planes, y)
        weights = self._weights(planes, sample_weight)
        mean, scale = centre_and_scale(targets, weights)
        extremes = [f(target) for target in targets for f in (np.min, np.max)]
        data_range = (float(np.ptp(extremes)) or 1.0) if self.data_range is None else self.data_range
        scaled = [((target - mean) / scale).astype(np.float32) for target in targets]
        rng = check_random_state(self.random_state)
        types = factor_types(planes.offsets)
        whitening = [whitening_of(planes.features, kind, rng) for kind in types]
        options = TrainingOptions(
            self.solver,
            [self.max_depth] + [self._depth_of_pairs()] * len(planes.offsets),
            self.max_iter,
            self.tol,
            self._growth(),
            self._report if self.verbose else _silent,
        )
        data = planes.features, planes.graphs, scaled, weights
        found = train(
            self._objective(data_range, mean, scale), types, whitening, data, len(mean), options, rng, self.n_jobs
        )
        self._store(found, whitening, planes, mean, scale, has_channels)
        self._warn(found)
        return self

    def predict(self, X, return_std=False):
        """Mean of the field.

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
        planes = read_planes(self, X, reset=False)
        types = factor_types(self.offsets_)
        trees = [RegressionTree(**tree) for tree in self.trees_]
        potentials = RegressionTreePotentials(
            types,
            [tree.n_leaves for tree in trees],
            [np.eye(kind.n_inputs(self.n_features_in_)) for kind in types],
            len(self.target_mean_),
        )
        coef = potentials.pack(self.precisions_, self.weights_)
        solver = self._solver(1e-5)

        def one(pair, n_threads):
            image = FieldImage.of(*pair, types, trees, n_threads)
            model = potentials.model(coef, image, n_threads)
            mean = solver.marginals(model, n_threads=n_threads).mean
            return mean, self._deviation(model, n_threads) if return_std else None

        found = map_tasks(one, zip(planes.features, planes.graphs, strict=True), self.n_jobs)
        means = [self.target_mean_ + self.target_scale_ * mean.astype(np.float64) for mean, _ in found]
        predicted = put_back(planes, means, self._has_channels)
        if not return_std:
            return predicted
        deviations = [self.target_scale_ * deviation for _, deviation in found]
        return predicted, put_back(planes, deviations, self._has_channels)

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
        predicted = self.predict(X)
        weight = None
        if sample_weight is not None:
            weight = np.concatenate([np.full(np.size(v), w) for v, w in zip(predicted, sample_weight, strict=True)])
        flat = [np.concatenate([np.ravel(part) for part in values]) for values in (y, predicted)]
        return float(r2_score(*flat, sample_weight=weight))

    def _depth_of_pairs(self):
        return self.max_depth if self.max_depth_pairwise is None else self.max_depth_pairwise

    def _weights(self, planes, sample_weight):
        weight = validate_sample_weight(sample_weight, planes.encoded.n_examples)
        if weight is None:
            return None
        if planes.encoded.layout != "nodes":
            return [np.full(graph.n_nodes, w) for graph, w in zip(planes.graphs, weight, strict=True)]
        if self.loss != "pseudolikelihood" and np.ptp(weight):
            raise ValueError("sample_weight of plain samples needs loss='pseudolikelihood': they are one image.")
        return [weight]

    def _objective(self, data_range, mean, scale):
        if isinstance(self.loss, str) and self.loss == "pseudolikelihood":
            return GaussianPseudolikelihood()
        if not callable(self.loss) and (self.loss not in LOSSES or self.loss in _OF_LABELS):
            names = ["pseudolikelihood", *(name for name in LOSSES if name not in _OF_LABELS)]
            raise ValueError(f"loss must be one of {', '.join(map(repr, names))} or a callable, got {self.loss!r}.")
        return PredictionLoss(loss_function(self.loss, data_range), self._solver(1e-4), mean, scale)

    def _solver(self, tol):
        return ConjugateGradient(tol=tol) if self.inference == "auto" else self.inference

    def _growth(self):
        return GrowthOptions(
            self.n_feature_tests,
            self.n_thresholds,
            self.feature_radius,
            self.split_samples,
            self.min_samples_leaf,
            tuple(self.eigenvalue_bounds),
        )

    def _deviation(self, model, n_threads):
        if model.h.size <= _DIRECT_VALUES:
            found = GaussianDirect().marginals(model)
        else:
            found = GaussianGibbs(random_state=0).marginals(model, n_threads=n_threads)
        return np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))

    def _report(self, rounds, value, n_leaves):
        progress = f"round {len(rounds)}: {rounds[-1]} iterations, loss {value:.6g}"
        print(f"[RegressionTreeField] {progress}, leaves {n_leaves}")

    def _store(self, found, whitening, planes, mean, scale, has_channels):
        parameters = found.potentials.unpack(found.coef)
        self.trees_ = [tree._asdict() for tree in found.trees]
        self.precisions_ = [part.precision.copy() for part in parameters]
        self.weights_ = [part.weight @ white for part, white in zip(parameters, whitening, strict=True)]
        self.offsets_ = planes.offsets
        self.target_mean_, self.target_scale_, self._has_channels = mean, scale, has_channels
        self.loss_curve_, self.round_ends_ = found.loss_curve, found.rounds
        self.n_iter_ = int(found.rounds[-1])
        planes.encoded.record(self)

    def _warn(self, found):
        if not found.solved:
            warnings.warn(
                "conjugate gradients did not reach their tolerance for some image; raise max_iter of inference, or the "
                "least eigenvalue in eigenvalue_bounds.",
                ConvergenceWarning,
                stacklevel=3,
            )
        if not found.success:
            warnings.warn(
                f"the last round stopped after max_iter={self.max_iter} iterations; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )


def _silent(rounds, value, n_leaves):
    pass
