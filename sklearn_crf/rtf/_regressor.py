"""Regression tree fields: Gaussian fields whose parameters trees look up in the input."""

from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial, reduce
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._fits import fits
from sklearn_crf._reports import fit_callbacks
from sklearn_crf.distributed import Shards, of_each_shard, scored_shards
from sklearn_crf.models import GaussianModel
from sklearn_crf.rtf import _prediction
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._base import FieldEstimator
from sklearn_crf.rtf._cascade import observed_planes, seen_by_fields, train_cascade
from sklearn_crf.rtf._deviations import require_held_out
from sklearn_crf.rtf._objectives import solver_of
from sklearn_crf.rtf._options import Cascade, as_options, check_clip
from sklearn_crf.rtf._plan import LIKELIHOODS, LOSSES_OF_VALUES, ValueTargets, is_likelihood
from sklearn_crf.rtf._training import Trained
from sklearn_crf.rtf.images import _corruption, _input
from sklearn_crf.rtf.images._channels import Channels, require_channels
from sklearn_crf.rtf.images._degradation import Blur, Degradations, Downsampling, lifted, solved_from


def _has_distribution(estimator):
    if not is_likelihood(estimator.loss):
        raise AttributeError(f"sample needs loss='pseudolikelihood' or 'likelihood', got {estimator.loss!r}.")
    return True


@dataclass(eq=False, repr=False)
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
    loss : str or callable, default="mse"
        What is minimised, averaged over images. ``"mse"``, ``"psnr"`` (in decibels), ``"mae"``, ``"ssim"`` and
        ``"iw_ssim"`` are those of :mod:`~sklearn_crf.rtf.losses`, of the prediction; they take two solves an image and
        iteration. ``"pseudolikelihood"`` is convex, and its J are precisions that ``return_std`` and ``sample`` read;
        so is the exact ``"likelihood"``, for images of at most 4096 values. Or a function of prediction and target,
        both ``(*lattice, D)``, that returns the value and the derivative by the prediction; ranges of values are fixed
        by ``functools.partial(losses.ssim, data_range=255)``, and are those of y for names.
    window : int, array-like of shape (n_offsets, lattice_ndim) or Window, default=3
        Pairs of pixels with a factor: 3 joins each with its 8 neighbours (4 types of factors), 26 in volumes, 5 with 24
        (12 types), 1 with none. Or offsets, or a :class:`~sklearn_crf.rtf.Window`, which says what factors depend on.
    max_depth : int or "auto", default="auto"
        Most splits between the root of a tree and a leaf; 0 is a Gaussian field of one leaf a type. ``"auto"`` goes by
        the number of pixels, up to 6, where early stopping finds the depth, else 4 for losses of predictions of images.
        For other losses, chains and rows it is at most 5, and each parameter of the deepest leaves has six values of
        y.
    filter_bank : str, image transformer or None, default="auto"
        What makes the channels that trees and leaves see, learned from the images of ``fit``. ``"auto"``, for images of
        up to four channels, is derivatives of Gaussians, copies of the image whose patches are shrunk, averages over
        patches that look alike, and groups of these shrunk together, by as much as X is off y; ``"groups"`` looks for
        similar patches farther and more often, which takes more time. Other names are those of
        :class:`~sklearn_crf.preprocessing.FilterBank`, such as ``"pca"``; or a transformer of images, several as a
        :class:`~sklearn_crf.preprocessing.ChannelUnion`. None sees X as it is. Volumes are filtered slice by slice.
    split : {"gradient", "residual"} or Splits, default="gradient"
        Where leaves are split: where the projected gradient of the loss grows most, round by round; or, before any
        parameters are fitted, where the means of the targets explain most. The tests and thresholds to try are options
        of :class:`~sklearn_crf.rtf.Splits`.
    solver : {"pqn", "spg"} or FieldSolver, default="pqn"
        Projected quasi-Newton steps, or spectral projected gradients; the number of pixels to train on, shrinkage,
        bounds of eigenvalues and early stopping are options of :class:`~sklearn_crf.rtf.FieldSolver`.
    max_iter : int or "auto", default="auto"
        Most iterations of each round, of which there are one more than splits on the longest path. ``"auto"`` is 8 for
        losses of predictions of images, 20 for those of chains and rows of a table, else 50. By pseudolikelihood,
        natural images are restored better after 15 iterations a round than at the optimum.
    tol : float, default=1e-4
        Largest entry of the projected gradient at which a round ends, of ``"mse"`` and ``"mae"`` where y has variance
        one, by parameters in units of the root of their leaf's share of the factors, and of what the leaf sees of the
        channels.
    inference : str, ConjugateGradient, GaussianDirect or GaussianBP, default="auto"
        What finds the mean of the field in training and prediction. ``"auto"``, or ``"conjugate_gradient"``, stops at a
        residual of 1e-4 in training, 1e-5 in prediction. ``"direct"`` factorises, which suits chains and small images;
        ``"bp"`` is belief propagation, an error where the field is not walk-summable.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the field of the last call: with a larger ``max_depth`` its trees are deepened.
    random_state : int, RandomState instance or None, default=None
        Of tests and samples.
    n_jobs : int or None, default=None
        Threads over images, types, and rows; results do not depend on it.
    verbose : int, default=0
        1 prints a line a round.
    corruption : callable or None, default=None
        Makes the inputs out of X: a function of an image, ``(H, W, C)`` or ``(H, W)``, and a
        :class:`numpy.random.Generator`, such as :class:`~sklearn_crf.rtf.GaussianNoise`,
        :class:`~sklearn_crf.rtf.JPEG` and :class:`~sklearn_crf.rtf.MissingPixels`. It is drawn anew in every round, so
        that leaves cannot learn one noise by heart. ``fit(images)`` of clean images is then enough.
    degradation : Blur, Downsampling, list of them or None, default=None
        What is known to have made X out of y besides noise: :class:`~sklearn_crf.rtf.Blur` or
        :class:`~sklearn_crf.rtf.Downsampling`. The likelihood of X becomes part of the field, for deblurring and
        super-resolution. A list has one for each image of X; with ``fit(images)`` of clean images one of the list is
        drawn for each image and round. It needs a loss of predictions, and as many channels in X as in y.
    clip : "auto", (float, float) or None, default="auto"
        Bounds of predictions. ``"auto"``, for images, is the range and type of y: rounded bytes are predicted for
        bytes, and float32 for float32, within the values seen. None is what the field predicts, in float64.
    cascade : int or Cascade, default=1
        Fields one after the other: each sees, besides X, the prediction of the one before as more channels. A
        :class:`~sklearn_crf.rtf.Cascade` has them learn from predictions of other images, or trains them together.

    Attributes
    ----------
    trees_ : list of dict
        Arrays of each type's tree: ``children``, ``test``, ``threshold``, ``leaf``. The unary type is first, then one
        for each row of ``offsets_``.
    precisions_ : list of ndarray of shape (L, m, m)
        J of each leaf of each type, for targets of mean 0 and variance 1.
    weights_ : list of ndarray of shape (L, m, 1 + n_channels)
        H of each leaf of each type, as to 1 and the channels (for pairs those chosen, of both pixels), in the units of
        ``channel_scale_``.
    offsets_ : ndarray of shape (n_offsets, 2), or (n_offsets, 3) of volumes
        Slices, rows and columns from the first pixel of a pair to its second.
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
    joint_curve_ : ndarray of shape (1 + joint,)
        Loss before, and after each round of joint training, of what was held out, if anything was. Only with ``joint``.
    validation_curve_ : ndarray
        Loss of what was held out at the end of each round; empty without early stopping.
    held_out_errors_ : dict or None
        A tree of the errors on what was held out, and their root mean square in each leaf; None if nothing was.
    n_iter_ : int
        Iterations of all rounds.
    filter_bank_ : image transformer or None
        What makes the channels, fitted.
    missing_channels_ : ndarray of int
        Channels of X that had missing pixels in ``fit``, and may have them.
    keeps_known_ : bool
        Whether X has missing pixels and is y elsewhere, so that predictions keep its known pixels.
    target_range_ : ndarray of shape (2,)
        Smallest and largest value of y.
    target_dtype_ : str
        Type of y.
    n_features_in_ : int
        Channels of X.
    channel_centre_, channel_scale_ : ndarray of shape (n_features_in_,)
        Trees, ``weights_`` and filters see ``(X - channel_centre_) * channel_scale_``: images near the range of bytes,
        other channels near what float32 holds, centred if their level is far from 0.
    channel_range_, input_dtype_ : ndarray of shape (n_features_in_, 2), and str
        Range of nearly all values of each channel in ``fit``, and type of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of a data frame.
    lattice_ndim_ : int
        Axes of the lattices seen in ``fit``, from 0 to 3.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, PhD thesis, TU Wien 2012, Part III, Eq. (277),
    Figures 51, 58 and 59. J. Jancsary, S. Nowozin, T. Sharp and C. Rother. Regression Tree Fields. CVPR 2012.
    U. Schmidt, C. Rother, S. Nowozin, J. Jancsary and S. Roth. Discriminative non-blind deblurring. CVPR 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import RegressionTreeField
    >>> from sklearn_crf.rtf import GaussianNoise
    >>> rng = np.random.default_rng(0)
    >>> clean = np.kron(rng.random((10, 8, 8)), np.ones((4, 4)))
    >>> noisy = clean + 0.3 * rng.normal(size=clean.shape)
    >>> field = RegressionTreeField(random_state=0).fit(noisy[:8, ..., None], clean[:8])
    >>> bool(np.mean((field.predict(noisy[8:, ..., None]) - clean[8:]) ** 2) < 0.03)
    True
    >>> field = RegressionTreeField(corruption=GaussianNoise(0.3), random_state=0).fit(
    ...     clean[:8]
    ... )
    >>> bool(np.mean((field.predict(noisy[8:]) - clean[8:]) ** 2) < 0.03)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **FieldEstimator._parameter_constraints,
        "loss": [StrOptions({*LIKELIHOODS, *LOSSES_OF_VALUES}), callable],
        "corruption": [callable, None],
        "degradation": [Blur, Downsampling, list, tuple, None],
        "clip": [StrOptions({"auto"}), tuple, list, None],
        "cascade": [Interval(Integral, 1, None, closed="left"), Cascade],
    }

    loss: Any = "mse"
    _: KW_ONLY
    corruption: Any = None
    degradation: Any = None
    clip: Any = "auto"
    cascade: int | Cascade = 1

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @fits
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "RegressionTreeField":
        """Grow the trees and fit their leaves.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), list of array-like of shape (H, W, F), or Shards
            Images of F channels; volumes (n, D, H, W, F), chains (n, T, F) and samples (n, F) too, in any unit. NaN in
            images are missing pixels. With ``corruption``, what is corrupted. Downsampled images are smaller than
            those of y. Larger than memory, or on a cluster: :class:`~sklearn_crf.Shards`, which bring y along.
        y : array-like of shape (n, H, W) or (n, H, W, D), or list of such images
            Values to predict; NaN where they are not known, for losses of predictions and the pseudolikelihood. None,
            with ``corruption`` or ``degradation``, is X: then images without an axis of channels, (n, H, W) or list of
            (H, W), are grey.
        sample_weight : array-like of shape (n,), optional
            One weight for each image: a factor of its losses. What early stopping holds out, how deep trees are, and
            which images the default filter bank and each round look at is chosen among images, whatever their weights,
            as scikit-learn's HistGradientBoosting does for early stopping.

        Returns
        -------
        RegressionTreeField

        Raises
        ------
        InvalidParameterError
            If a parameter is not valid.
        ValueError
            If X and y do not fit, have two readings, or hold infinity.
        """
        if self.clip is not None and not isinstance(self.clip, str):
            check_clip(self.clip)
        cascade, options = as_options(self.cascade, "cascade"), self._options(self._targets())
        if cascade.n_fields == 1:
            return self._fit(options, X, y, sample_weight)
        if isinstance(X, Shards):
            raise ValueError("cascade is for images in memory, not in Shards: let load add a prediction to X.")
        if self.warm_start:
            raise ValueError(f"warm_start goes on from a single field, got cascade={self.cascade}.")
        return self._fit_stages(cascade, options, X, y, sample_weight)

    def _targets(self) -> ValueTargets:
        """What the field predicts."""
        of_images = self.corruption, self.degradation
        return ValueTargets(type(self).__name__, self.loss, self.inference, self._former, *of_images)

    def _fit_stages(self, cascade, options, X, y, sample_weight):
        """Train the fields of a cascade, and keep the last one's attributes as the estimator's."""
        stages = []
        for k in range(cascade.n_fields):
            later = {"corruption": None} if k else {}
            seed = {"random_state": options.seed} if cascade.joint else {}
            clip = self.clip if k == cascade.n_fields - 1 else None
            stages.append(clone(self).set_params(cascade=1, clip=clip, **later, **seed))
        # Callbacks hear of every stage as of a fit of its own, and are not kept with it.
        callbacks = [partial(fit_callbacks, stage) for stage in stages]
        found, of_all = train_cascade(cascade, options, X, y, sample_weight, callbacks)
        for stage, trained in zip(stages, found, strict=True):
            vars(stage).pop("_skl_callbacks", None)
            FieldEstimator._store(stage, trained)
        first, last = found[0].attributes, found[-1].attributes
        of_input = {name: first[name] for name in _input.OF_INPUT if name in first}
        return self._store(Trained(last | of_input | of_all | {"stages_": stages}, []))

    def predict(
        self, X: Any, return_std: bool = False, *, evidence: Any = None, degradation: Any = None, noise: Any = None
    ) -> Any:
        """Mean of the field, clipped to the range of y.

        Images of more than a million pixels are solved in tiles, with margins so large that the tiles agree at their
        seams to the tolerance of the solver.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), list of array-like of shape (H, W, F), or Shards
            Images, as in ``fit``. A field trained on clean grey images restores every channel of colour images.
        return_std : bool, default=False
            Whether to return standard deviations too. After training by a likelihood those of the field: exact for at
            most 4096 values, else averages over 200 sweeps of Gibbs sampling. After training for a loss of predictions,
            root mean square errors on what was held out for early stopping, by a tree that tells where they are large.
        evidence : array-like or list of array-like, optional
            Values that are known, in the layout of y, NaN elsewhere: the mean is conditioned on them.
        degradation : Blur, Downsampling or list of them, optional
            What made X, one for all images or one for each; by default that of the estimator, if that is one.
        noise : "auto", float or array-like of shape (n,), optional
            Standard deviation of the noise of X, for all images or for each, where it is not that of training; "auto"
            estimates it for each image by the finest detail where the image is smooth. The field then sees images in
            units in which it is the level of ``corruption=GaussianNoise(level)``.

        Returns
        -------
        y : ndarray of shape (n, H, W) or (n, H, W, D), or of shape (n,) of such images
            An array for an array, an object array for a list; for Shards a list.
        std : the same
            Only with ``return_std``.

        Raises
        ------
        ValueError
            If ``return_std`` is asked for after training for a loss of predictions where nothing was held out or with
            ``evidence``, ``evidence`` of a field with ``degradation``, or ``degradation`` is missing or unexpected; if
            ``noise`` is not positive, or given to a field that was not trained for one level of noise.
        """
        if isinstance(X, Shards):
            options = {"return_std": return_std, "degradation": degradation, "noise": noise}
            return of_each_shard(self, "predict", X, evidence, **options)
        check_is_fitted(self)
        predicted, of_images = self._predicted, degradation
        if noise is not None:
            least = tuned.LEAST_NOISE * _corruption.level_of_noise(self.corruption)
            predicted, of_images = self._at_levels, _corruption.levels_of_images(noise, X, least)
        channels = Channels.of(X, self.n_features_in_) if self._is_grey else None
        if channels is None or channels.n_colours is None:
            found = predicted(X, return_std, evidence, of_images)
        else:
            found = channels.predicted(predicted, X, return_std, evidence, of_images)
        if noise is None:
            _corruption.warn_of_other_noise(self.corruption, X)
        return found

    def _predicted(self, X, return_std, evidence, degradation=None):
        """Predictions for images whose noise is that of training."""
        is_exact = return_std and is_likelihood(self.loss)
        if return_std and not is_exact:
            require_held_out(self.held_out_errors_, self.loss, evidence)
        planes, observations = self._observed_planes(X, degradation)
        if evidence is None:
            field = _prediction.FittedField(vars(self))
            of_model = _prediction.deviation if is_exact else None
            means, deviations = field.means(planes, solver_of(self.inference), self.n_jobs, of_model, observations)
            predicted = _prediction.restored_values(vars(self), self.clip, planes, means)
            if return_std and not is_exact:
                deviations = [field.deviation(plane, self.held_out_errors_, 1) for plane in planes.features]
            deviations = [self.target_scale_ * own for own in deviations] if return_std else None
        else:
            models = self._models_of(planes, evidence, observations)
            values = [_prediction.clipped(vars(self), self.clip, self._mean_of(model)) for model in models]
            deviations = [_prediction.deviation(model, 1) for model in models] if return_std else None
            predicted = _prediction.in_layout(vars(self), planes, values)
        if not return_std:
            return predicted
        return predicted, _input.put_back(planes, deviations, self._has_channels)

    def _at_levels(self, X, return_std, evidence, levels):
        """Predictions image by image, for one level of noise each."""
        found = []
        for i, level in enumerate(levels):
            known = None if evidence is None else evidence[i : i + 1]
            mean = np.reshape(X[i], (-1, len(self.target_mean_))).mean(axis=0, dtype=np.float64)
            field = self._in_units(_corruption.level_of_noise(self.corruption) / level, mean)
            found.append(field._predicted(X[i : i + 1], return_std, known))
        if return_std:
            return tuple(_input.joined_examples(part) for part in zip(*found, strict=True))
        return _input.joined_examples(found)

    def _in_units(self, factor, mean):
        """The field for images that are to be multiplied by a factor, about their mean, to be in units of training."""
        field, share = copy(self), 1 - 1 / factor
        # A later field of a cascade sees the prediction of the one before, too, which has the same mean.
        field.channel_centre_ = self.channel_centre_ / factor + share * np.resize(mean, self.channel_centre_.shape)
        field.channel_scale_ = self.channel_scale_ * factor
        field.target_mean_, field.target_scale_ = self.target_mean_ / factor + share * mean, self.target_scale_ / factor
        trained = _corruption.one_level(self.corruption)
        field.corruption = self.corruption if trained is None else _corruption.GaussianNoise(trained / factor)
        if hasattr(self, "stages_"):
            field.stages_ = [stage._in_units(factor, mean) for stage in self.stages_]
        return field

    def _mean_of(self, model):
        """Mean of a field in the units of y; residuals are compared with what differs from the mean of y."""
        return solved_from(solver_of(self.inference), model, np.broadcast_to(self.target_mean_, model.h.shape)).x

    @available_if(_has_distribution)
    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Values drawn from the distribution of the field given X, not clipped.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), or list of array-like of shape (H, W, F)
            Images, as in ``fit``.
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray
            As ``predict`` gives, with a leading axis of ``n_samples``; for a list, an object array of arrays with that
            leading axis. Exact for fields of at most 4096 values, else by Gibbs sampling.
        """
        check_is_fitted(self)
        planes, _ = self._observed_planes(X, None)
        seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=len(planes.features))
        drawn = _prediction.samples_of(self._models_of(planes, None), n_samples, seeds)
        return _input.put_samples_back(planes, drawn, self._has_channels)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Coefficient of determination over all values that are known.

        Parameters
        ----------
        X, y : array-like or list of array-like
            Images and their values, NaN where these are not known; or Shards, and no y.
        sample_weight : array-like of shape (n,), optional
            One weight for each image.

        Returns
        -------
        float
        """
        if isinstance(X, Shards):
            moments, residuals = zip(*scored_shards(self, type(self)._scored_nodes, X, y, sample_weight), strict=True)
            return 1 - float(sum(residuals) / reduce(_input.TargetMoments.joined, moments).squares[0])
        truth, found, weight = _prediction.scored_pixels(y, self.predict(X), sample_weight, _prediction.is_unknown)
        return float(r2_score(truth, found, sample_weight=weight))

    def _scored_nodes(self, X, y, sample_weight):
        """Moments of the true values, and the weighted sum of squared errors."""
        if y is None:
            raise ValueError("score needs y: load gave None.")
        truth, found, weight = _prediction.scored_pixels(y, self.predict(X), sample_weight, _prediction.is_unknown)
        weight = np.ones(len(truth)) if weight is None else weight
        truth = truth.astype(np.float64)
        return _input.TargetMoments.of([truth[:, None]], [weight]), float(np.sum(weight * (truth - found) ** 2))

    def models(self, X: Any, evidence: Any = None, *, degradation: Any = None) -> list[GaussianModel]:
        r"""Gaussian field of every example under the fitted weights, in the units of y.

        .. math::
            p(y \mid x) \propto \exp(-\tfrac12 y^\top J(x) \, y + h(x)^\top y)

        Any inference for :class:`~sklearn_crf.models.GaussianModel` can be run on them; ``predict`` uses their means.

        Parameters
        ----------
        X : array-like or list of array-like
            Examples, as in ``predict``.
        evidence : array-like or list of array-like, optional
            Known values, in the layout of y; NaN where they are not known. Known nodes keep their place in the graph
            without edges, with the known value as mean, and their neighbours are conditioned on them.
        degradation : Blur, Downsampling or list of them, optional
            As in ``predict``. Models then have a ``precision_operator``, which
            :class:`~sklearn_crf.inference.ConjugateGradient` takes.

        Returns
        -------
        list of GaussianModel
            In float64. Plain samples are one model.
        """
        check_is_fitted(self)
        planes, observations = self._observed_planes(X, degradation)
        return self._models_of(planes, evidence, observations)

    def _models_of(self, planes, evidence, observations=None):
        if evidence is None:
            return _prediction.models_of(vars(self), planes, observations=observations)
        if observations is not None:
            raise ValueError("evidence cannot be combined with degradation.")
        return _prediction.models_of(
            vars(self), planes, _input.read_targets(planes, evidence, "evidence", missing=True)[0]
        )

    def _observed_planes(self, X, degradation):
        """Planes of X, and what they add to the fields of degraded images."""
        X = Channels.of(X, self.n_features_in_).X if self._is_grey else X
        require_channels(X, self.n_features_in_, self.lattice_ndim_)
        degradations = Degradations.to_predict(self.degradation, degradation, X)
        X = X if degradations is None else lifted(X, degradations)
        stages = getattr(self, "stages_", [self])
        window = as_options(self.window, "window")
        readings = [_input.Reading(stage, window, known=vars(stage)) for stage in stages]
        seen = seen_by_fields(readings, solver_of(self.inference), self.n_jobs, X, degradations)
        return observed_planes(readings[-1], seen[-1], degradations)


def tiles_of_values(regressor: RegressionTreeField) -> _prediction.TiledTask:
    """Return what predicts the values of the tiles of an image."""
    fitted = vars(regressor)

    def finished(values):
        return _prediction.clipped(fitted, regressor.clip, values), None

    shape = (len(fitted["target_mean_"]),) if fitted["_has_channels"] else ()
    dtype = finished(np.zeros(0))[0].dtype
    return _prediction.TiledTask.of(regressor, finished, dtype, shape, regressor.degradation is not None)
