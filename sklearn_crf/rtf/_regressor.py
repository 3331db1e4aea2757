"""Regression tree fields: Gaussian fields whose parameters are selected by trees from the input."""

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
from sklearn_crf.distributed import Shards, call_on_each_shard, score_parts
from sklearn_crf.models import GaussianModel
from sklearn_crf.rtf import _prediction
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._base import FieldEstimator
from sklearn_crf.rtf._cascade import build_field_inputs, read_observed_planes, train_cascade
from sklearn_crf.rtf._objectives import make_solver
from sklearn_crf.rtf._options import Cascade, as_options, check_clip
from sklearn_crf.rtf._plan import LIKELIHOODS, LOSSES_OF_VALUES, ValueTargets, is_likelihood
from sklearn_crf.rtf._training import Trained
from sklearn_crf.rtf.images import _corruption, _input
from sklearn_crf.rtf.images._channels import Channels, is_single_image, require_channels
from sklearn_crf.rtf.images._degradation import Blur, Degradations, Downsampling, lifted, solve_from_image


def _has_distribution(estimator):
    if not is_likelihood(estimator.loss):
        raise AttributeError(f"sample needs loss='pseudolikelihood' or 'likelihood', got {estimator.loss!r}.")
    return True


@dataclass(eq=False, repr=False)
class RegressionTreeField(RegressorMixin, FieldEstimator):
    r"""Predict an image from an image by a Gaussian field whose factors are selected by regression trees.

    .. math::
        p(y \mid x) \propto \exp \Big( \sum_F -\tfrac12 y_F^\top J_{l(F)} y_F + y_F^\top H_{l(F)} b(x_F) \Big)

    Factors F are single pixels and the pairs of pixels of a window, with one factor type for each offset. Each type has
    a regression tree, which assigns a factor to a leaf l(F) by testing the channels of x around it. A leaf holds a
    precision matrix J and a linear model H of b, which consists of 1 and the channels at the factor's pixels. The
    prediction is the mean of the field. Trees and leaves are trained together, by maximising the pseudolikelihood or
    by minimising the loss of the prediction itself.

    Parameters
    ----------
    loss : str or callable, default="mse"
        Training loss, averaged over images. ``"mse"``, ``"psnr"`` (in decibels), ``"mae"``, ``"ssim"`` and
        ``"iw_ssim"`` are prediction losses, see :mod:`~sklearn_crf.rtf.losses`; they require two solves per
        image and iteration. ``"pseudolikelihood"`` and the exact ``"likelihood"`` (for images of at most 4096 values)
        are convex, and give precisions for ``return_std`` and ``sample``. A callable gets prediction and target, both
        of shape ``(*lattice, D)``, and returns the value and the derivative with respect to the prediction. Named
        losses use the range of y; to set another range, pass ``functools.partial(losses.ssim, data_range=255)``.
    window : int, array-like of shape (n_offsets, lattice_ndim) or Window, default=3
        Pairs of pixels with a factor: 3 connects each pixel to its 8 neighbours by 4 factor types (in volumes, to 26
        neighbours), 5 connects it to 24 neighbours by 12 types, and 1 to no neighbours. An array holds offsets. A
        :class:`~sklearn_crf.rtf.Window` also selects the channels on which factors depend.
    max_depth : int or "auto", default="auto"
        Maximum depth of the trees; 0 is a Gaussian field with one leaf per type. ``"auto"`` depends on the number of
        pixels. For prediction losses on images it is at most 6 with early stopping and 4 without. For other losses, and
        for chains and rows, it is at most 5, and so small that the deepest leaves have at least six values of y for
        each of their parameters.
    filter_bank : str, image transformer or None, default="auto"
        Computes the channels for trees and leaves; it is fitted to the images of ``fit``. ``"auto"``, for images of up
        to four channels, uses derivatives of Gaussians, images denoised by shrinking patches, averages over similar
        patches, and groups of similar patches shrunk together; the amount of shrinkage depends on the difference
        between X and y. ``"groups"`` searches farther and more often for similar patches, which takes more time.
        Other names, such as ``"pca"``, are options of :class:`~sklearn_crf.preprocessing.FilterBank`. The filter bank
        may also be a transformer of images; combine several by :class:`~sklearn_crf.preprocessing.ChannelUnion`. None
        uses X itself. Volumes are filtered slice by slice.
    split : {"gradient", "residual"} or Splits, default="gradient"
        Criterion for splitting leaves. ``"gradient"`` splits after each round, to increase the projected gradient of
        the loss. ``"residual"`` grows the trees before any parameters are fitted, to explain the variance of the
        targets. :class:`~sklearn_crf.rtf.Splits` has options for the tests and thresholds to try.
    solver : {"pqn", "spg"} or FieldSolver, default="pqn"
        Optimizer: projected quasi-Newton method, or spectral projected gradients. :class:`~sklearn_crf.rtf.FieldSolver`
        has options for the number of training pixels, shrinkage, bounds of eigenvalues and early stopping.
    max_iter : int or "auto", default="auto"
        Maximum number of iterations in each round; there is one more round than the depth of the trees. ``"auto"`` is 8
        for prediction losses on images, 20 for prediction losses on chains and table rows, else 50. With
        the pseudolikelihood, 15 iterations per round restore natural images better than iterations up to the optimum.
    tol : float, default=1e-4
        A round ends when no entry of the projected gradient is larger than this. For ``"mse"`` and ``"mae"``, y is
        scaled to variance one. Parameters are scaled by the square root of the fraction of factors in their leaf, and
        by the spread of the channels in the leaf.
    inference : str, ConjugateGradient, GaussianDirect or GaussianBP, default="auto"
        Solver for the mean of the field in training and prediction. ``"auto"`` and ``"conjugate_gradient"`` stop at a
        residual of 1e-4 in training and 1e-5 in prediction. ``"direct"`` factorises the precision, which suits chains
        and small images. ``"bp"`` is belief propagation; it raises an error if the field is not walk-summable.
    warm_start : bool, default=False
        Whether ``fit`` continues from the field of the last call. A larger ``max_depth`` then deepens its trees.
    random_state : int, RandomState instance or None, default=None
        Determines the random tests and samples. With a fixed seed, they still depend on the order of the examples.
    n_jobs : int or None, default=None
        Number of threads over images, types and rows; results do not depend on it.
    verbose : int, default=0
        1 prints a line for each round.
    corruption : callable or None, default=None
        Function that corrupts X to obtain the inputs. The function is called with an image, ``(H, W, C)`` or ``(H,
        W)``, and a :class:`numpy.random.Generator`. Examples are :class:`~sklearn_crf.rtf.GaussianNoise`,
        :class:`~sklearn_crf.rtf.JPEG` and :class:`~sklearn_crf.rtf.MissingPixels`. Every round draws a new corruption,
        so that leaves cannot memorise the noise. ``fit(images)`` then only needs clean images.
    degradation : Blur, Downsampling, list of them or None, default=None
        Known degradation that turned y into X, besides noise: :class:`~sklearn_crf.rtf.Blur` or
        :class:`~sklearn_crf.rtf.Downsampling`. The likelihood of X becomes part of the field, for deblurring and
        super-resolution. A list has one degradation for each image of X. With ``fit(images)`` of clean images, one
        degradation of the list is drawn for each image and round. A degradation requires a prediction loss, and the
        same number of channels in X and y.
    clip : "auto", (float, float) or None, default="auto"
        Bounds of predictions. ``"auto"`` uses the data type of y for images: bytes are predicted for bytes, and
        floating point values within the range of y for floating point values. None does not clip, and returns
        float64.
    cascade : int or Cascade, default=1
        Number of fields in a sequence. Each field receives the prediction of the previous field as additional
        channels. :class:`~sklearn_crf.rtf.Cascade` has options for joint training, and for training each field on
        predictions of images that were not used to train the previous field.

    Attributes
    ----------
    trees_ : list of dict
        Arrays of each type's tree: ``children``, ``test``, ``threshold``, ``leaf``. The unary type is first, followed
        by a type for each row of ``offsets_``.
    precisions_ : list of ndarray of shape (L, m, m)
        Precision J of each leaf for each type, for targets of mean 0 and variance 1.
    weights_ : list of ndarray of shape (L, m, 1 + n_channels)
        Linear model H of each leaf for each type: weights of the constant 1 and of the channels, scaled by
        ``channel_scale_``. For pairs, weights of the chosen channels at both pixels.
    offsets_ : ndarray of shape (n_offsets, 2), or (n_offsets, 3) of volumes
        Slices, rows and columns from the first pixel of a pair to its second.
    pairwise_channels_ : ndarray
        Channels used by the linear models of pairs.
    slopes_ : list of ndarray of shape (L, I, m, m)
        Increase of each leaf's precision per unit of the channels in ``precision_channels_``, for each type.
    precision_channels_ : ndarray of shape (I,)
        Channels that increase the precisions.
    target_mean_ : ndarray of shape (D,)
        Mean of y.
    target_scale_ : float
        Standard deviation of y.
    loss_curve_ : ndarray
        Loss at the start and after every iteration of all rounds, including the penalty of ``shrinkage``.
    round_ends_ : ndarray
        Total number of iterations at the end of each round.
    stages_ : list of RegressionTreeField
        Fields of a cascade; all other attributes describe the last field. Only if ``cascade`` is above 1.
    joint_curve_ : ndarray of shape (1 + joint,)
        Loss before joint training and after each of its rounds, on held-out data if there are any, else on training
        data. Only with ``joint``.
    validation_curve_ : ndarray
        Loss on held-out data at the end of each round; empty without early stopping.
    held_out_errors_ : dict or None
        Regression tree of the errors on held-out data, and the root mean square error of each leaf. None if nothing was
        held out.
    n_iter_ : int
        Total number of iterations over all rounds.
    filter_bank_ : image transformer or None
        Fitted filter bank, which computes the channels.
    missing_channels_ : ndarray of int
        Channels of X that had missing pixels in ``fit``. Only these channels may have missing pixels in ``predict``.
    keeps_known_ : bool
        Whether X has missing pixels, but equals y at all known pixels. Predictions then keep the known pixels of X.
    target_range_ : ndarray of shape (2,)
        Smallest and largest value of y.
    target_dtype_ : str
        Data type of y.
    n_features_in_ : int
        Number of channels of X.
    channel_centre_, channel_scale_ : ndarray of shape (n_features_in_,)
        Trees, ``weights_`` and filters use ``(X - channel_centre_) * channel_scale_``. Images are scaled so that their
        values are similar in size to bytes. Other channels are scaled only if float32 could not represent them, and
        centred if their level is far from 0.
    channel_range_, input_dtype_ : ndarray of shape (n_features_in_, 2), and str
        Range of nearly all values of each channel in ``fit``, and data type of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of a data frame.
    lattice_ndim_ : int
        Number of axes of the lattices in ``fit``, from 0 to 3.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, PhD thesis, TU Wien 2012, Part III, Eq. (277),
    Figures 51, 58 and 59. J. Jancsary, S. Nowozin, T. Sharp and C. Rother. Regression Tree Fields. CVPR 2012. U.
    Schmidt, C. Rother, S. Nowozin, J. Jancsary and S. Roth. Discriminative non-blind deblurring. CVPR 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import RegressionTreeField
    >>> from sklearn_crf.rtf import GaussianNoise
    >>> rng = np.random.default_rng(0)
    >>> clean = np.kron(rng.random((10, 8, 8)), np.ones((4, 4)))
    >>> noisy = clean + 0.3 * rng.normal(size=clean.shape)
    >>> field = RegressionTreeField(random_state=0).fit(noisy[:8, ..., None], clean[:8])
    >>> print(f"{np.mean((field.predict(noisy[8:, ..., None]) - clean[8:]) ** 2):.2f}")
    0.02
    >>> field = RegressionTreeField(corruption=GaussianNoise(0.3), random_state=0).fit(
    ...     clean[:8]
    ... )
    >>> print(f"{np.mean((field.predict(noisy[8:]) - clean[8:]) ** 2):.2f}")
    0.02
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
            Images with F channels, in any unit. If this is not the unit of y, training takes more iterations and may
            end with larger errors. Volumes (n, D, H, W, F), chains (n, T, F) and samples (n, F) are possible too. NaN
            marks missing pixels of images. With ``corruption``, X holds the images before corruption. Lists of (H, W)
            in X and y are grey images, unless ``window`` says that they are chains. Downsampled images are smaller than
            the images of y. For data larger than memory, or on a cluster, pass :class:`~sklearn_crf.Shards`, which
            include y.
        y : array-like of shape (n, H, W) or (n, H, W, D), or list of such images
            Values to predict. Unknown values are NaN, except for the exact likelihood. With ``corruption`` or
            ``degradation``, None uses X as y; images without an axis of channels, (n, H, W) or list of (H, W), are then
            grey images.
        sample_weight : array-like of shape (n,), optional
            Weight of each image's loss. The weights have no influence on the choice of held-out images, on the depth of
            trees, or on which images the default filter bank and each round use. (Early stopping in scikit-learn's
            HistGradientBoosting also ignores weights.)

        Returns
        -------
        RegressionTreeField

        Raises
        ------
        InvalidParameterError
            If a parameter is invalid.
        ValueError
            If X and y do not match, are ambiguous, or contain infinity.
        """
        if self.clip is not None and not isinstance(self.clip, str):
            check_clip(self.clip)
        cascade, of_images = as_options(self.cascade, "cascade"), (self.corruption, self.degradation)
        targets = ValueTargets(type(self).__name__, self.loss, self.inference, self._former, *of_images)
        options = self._options(targets)
        if cascade.n_fields == 1:
            return self._fit(options, X, y, sample_weight)
        if isinstance(X, Shards):
            raise ValueError("cascade is not supported with Shards: let the load function append a prediction to X.")
        if self.warm_start:
            raise ValueError(f"warm_start can only continue training of a single field, got cascade={self.cascade}.")
        return self._fit_stages(cascade, options, X, y, sample_weight)

    def _fit_stages(self, cascade, options, X, y, sample_weight):
        """Train the fields of a cascade, and store the attributes of the last field in the estimator."""
        stages = []
        for k in range(cascade.n_fields):
            later = {"corruption": None} if k else {}
            seed = {"random_state": options.seed} if cascade.joint else {}
            clip = self.clip if k == cascade.n_fields - 1 else None
            stages.append(clone(self).set_params(cascade=1, clip=clip, **later, **seed))
        # Callbacks see each stage as a separate fit. Stages do not keep the callbacks.
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
        """Predict the mean of the field, clipped to the range of y.

        Images of more than a million pixels are solved in tiles. The margins of tiles are large enough that tiles agree
        at their seams up to the tolerance of the solver.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), list of array-like of shape (H, W, F), or Shards
            Images, as in ``fit``, or one image: (H, W) if training images had no axis of channels, else (H, W, F) with
            at least two channels. A field trained on grey images restores each channel of colour images in a list.
        return_std : bool, default=False
            Whether to also return standard deviations. After training by a likelihood, these are the standard
            deviations of the field: exact for at most 4096 values, else averages over 200 sweeps of Gibbs sampling.
            After training with a prediction loss, they are root mean square errors on data held out for early stopping,
            by region; a tree predicts in which regions errors are large.
        evidence : array-like or list of array-like, optional
            Known values, in the layout of y, with NaN elsewhere. Means and deviations are conditioned on them; the
            deviation of a known value is 0, up to rounding.
        degradation : Blur, Downsampling or list of them, optional
            Degradation that produced X, for all images or for each image. The default is the estimator's parameter
            ``degradation``, if this is not a list.
        noise : "auto", float or array-like of shape (n,), optional
            Standard deviation of the noise of X, for all images or for each image, if it differs from training. "auto"
            estimates it for each image, from the finest detail in smooth regions. Images are then rescaled so that
            their noise has the level in ``corruption=GaussianNoise(level)``.

        Returns
        -------
        y : ndarray of shape (n, H, W) or (n, H, W, D), or of shape (n,) of such images
            An array if X is an array, an object array if X is a list, and a list for Shards. For a
            single image X, a single image.
        std : ndarray with the shape of y
            Only with ``return_std``.

        Raises
        ------
        ValueError
            If ``return_std`` is used after training with a prediction loss without held-out data, or together with
            ``evidence``; if ``evidence`` is given for a field with ``degradation``; if ``degradation`` is missing or
            unexpected; if ``noise`` is not positive, is more than the range of X, or the field was not trained for a
            single noise level.
        """
        if isinstance(X, Shards):
            options = {"return_std": return_std, "degradation": degradation, "noise": noise}
            return call_on_each_shard(self, "predict", X, evidence, **options)
        check_is_fitted(self)
        if is_single_image(X, vars(self)):
            known = None if evidence is None else [evidence]
            found = self.predict([X], return_std, evidence=known, degradation=degradation, noise=noise)
            return tuple(own[0] for own in found) if return_std else found[0]
        predicted, of_images = self._predict, degradation
        if noise is not None:
            least = tuned.LEAST_NOISE * _corruption.require_noise_level(self.corruption)
            predicted, of_images = self._predict_at_levels, _corruption.choose_noise_levels(noise, X, least)
        channels = Channels.of(X, self.n_features_in_) if self._is_grey else None
        if channels is None or channels.n_colours is None:
            found = predicted(X, return_std, evidence, of_images)
        else:
            found = channels.predicted(predicted, X, return_std, evidence, of_images)
        if noise is None:
            _corruption.warn_of_other_noise(self.corruption, X)
        return found

    def _predict(self, X, return_std, evidence, degradation=None):
        """Predict images whose noise has the same level as in training."""
        is_exact = return_std and is_likelihood(self.loss)
        if return_std and not is_exact and self.held_out_errors_ is None:
            raise ValueError(
                f"return_std after training for {self.loss!r} needs errors on held-out images: pass "
                "solver=FieldSolver(early_stopping=True), or train a second field with loss='pseudolikelihood'."
            )
        if return_std and not is_exact and evidence is not None:
            raise ValueError(
                f"return_std with evidence needs loss='pseudolikelihood' or 'likelihood', got {self.loss!r}."
            )
        planes, observations = self._read_observed_planes(X, degradation)
        if evidence is None:
            field = _prediction.FittedField(vars(self))
            of_model = _prediction.deviation if is_exact else None
            means, deviations = field.means(planes, make_solver(self.inference), self.n_jobs, of_model, observations)
            predicted = _prediction.restore_known_values(vars(self), self.clip, planes, means)
            if return_std and not is_exact:
                deviations = [field.deviation(plane, self.held_out_errors_, 1) for plane in planes.features]
            deviations = [self.target_scale_ * own for own in deviations] if return_std else None
        else:
            models = self._build_plane_models(planes, evidence, observations)
            # Solves start at the mean of y, so that their tolerance is relative to deviations from this mean.
            solver, start = make_solver(self.inference), self.target_mean_
            means = [solve_from_image(solver, model, np.broadcast_to(start, model.h.shape)).x for model in models]
            values = [_prediction.clipped(vars(self), self.clip, mean) for mean in means]
            deviations = [_prediction.deviation(model, 1) for model in models] if return_std else None
            predicted = _prediction.arrange_in_layout(vars(self), planes, values)
        if not return_std:
            return predicted
        return predicted, _input.put_back(planes, deviations, self._has_channels)

    def _predict_at_levels(self, X, return_std, evidence, levels):
        """Predict each image with the noise level that is given or estimated for this image."""
        found = []
        for i, level in enumerate(levels):
            known = None if evidence is None else evidence[i : i + 1]
            mean = np.reshape(X[i], (-1, len(self.target_mean_))).mean(axis=0, dtype=np.float64)
            field = self._convert_units(_corruption.require_noise_level(self.corruption) / level, mean)
            found.append(field._predict(X[i : i + 1], return_std, known))
        if return_std:
            return tuple(_input.join_examples(part) for part in zip(*found, strict=True))
        return _input.join_examples(found)

    def _convert_units(self, factor, mean):
        """Return a copy of the field for images in units other than the units of training.

        Multiplying the deviations of an image from ``mean`` by ``factor`` converts the image to the units of training.
        """
        field, share = copy(self), 1 - 1 / factor
        # Later fields of a cascade have the previous prediction as additional channels, with the same mean.
        field.channel_centre_ = self.channel_centre_ / factor + share * np.resize(mean, self.channel_centre_.shape)
        field.channel_scale_ = self.channel_scale_ * factor
        field.target_mean_, field.target_scale_ = self.target_mean_ / factor + share * mean, self.target_scale_ / factor
        trained = _corruption.get_single_level(self.corruption)
        field.corruption = self.corruption if trained is None else _corruption.GaussianNoise(trained / factor)
        if hasattr(self, "stages_"):
            field.stages_ = [stage._convert_units(factor, mean) for stage in self.stages_]
        return field

    @available_if(_has_distribution)
    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw values from the distribution of the field given X, without clipping.

        Parameters
        ----------
        X : array-like of shape (n, H, W, F), or list of array-like of shape (H, W, F)
            Images, as in ``fit``.
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray
            As returned by ``predict``, with a leading axis of ``n_samples``; for a list, an object array of arrays with
            this axis. Samples are exact for fields of at most 4096 values, else drawn by Gibbs sampling.
        """
        check_is_fitted(self)
        planes, _ = self._read_observed_planes(X, None)
        seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=len(planes.features))
        drawn = _prediction.draw_field_samples(self._build_plane_models(planes, None), n_samples, seeds)
        return _input.put_samples_back(planes, drawn, self._has_channels)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination over all known values.

        Parameters
        ----------
        X, y : array-like or list of array-like
            Images and their values, NaN where unknown; or Shards, without y.
        sample_weight : array-like of shape (n,), optional
            One weight for each image.

        Returns
        -------
        float
        """
        if isinstance(X, Shards):
            moments, residuals = zip(
                *score_parts(self, type(self)._compute_scored_nodes, X, y, sample_weight), strict=True
            )
            return 1 - float(sum(residuals) / reduce(_input.TargetMoments.joined, moments).squares[0])
        truth, found, weight = _prediction.gather_scored_pixels(
            y, self.predict(X), sample_weight, _prediction.is_unknown
        )
        return float(r2_score(truth, found, sample_weight=weight))

    def _compute_scored_nodes(self, X, y, sample_weight):
        """Return the moments of the true values, and the weighted sum of squared errors."""
        if y is None:
            raise ValueError("score needs y, but the load function returned y=None.")
        truth, found, weight = _prediction.gather_scored_pixels(
            y, self.predict(X), sample_weight, _prediction.is_unknown
        )
        weight = np.ones(len(truth)) if weight is None else weight
        truth = truth.astype(np.float64)
        return _input.TargetMoments.of([truth[:, None]], [weight]), float(np.sum(weight * (truth - found) ** 2))

    def models(self, X: Any, evidence: Any = None, *, degradation: Any = None) -> list[GaussianModel]:
        r"""Return the Gaussian field of every example under the fitted weights, in the units of y.

        .. math::
            p(y \mid x) \propto \exp(-\tfrac12 y^\top J(x) \, y + h(x)^\top y)

        Any inference for :class:`~sklearn_crf.models.GaussianModel` can be run on these models; ``predict`` uses their
        means.

        Parameters
        ----------
        X : array-like or list of array-like
            Examples, as in ``predict``.
        evidence : array-like or list of array-like, optional
            Known values, in the layout of y, with NaN elsewhere. In the models, a known node has no edges, the known
            value as mean, and a deviation as small as rounding errors. Its neighbours are conditioned on the value.
        degradation : Blur, Downsampling or list of them, optional
            As in ``predict``. Models then have a ``precision_operator``, which
            :class:`~sklearn_crf.inference.ConjugateGradient` supports.

        Returns
        -------
        list of GaussianModel
            Models in float64. Plain samples form a single model.
        """
        check_is_fitted(self)
        planes, observations = self._read_observed_planes(X, degradation)
        return self._build_plane_models(planes, evidence, observations)

    def _build_plane_models(self, planes, evidence, observations=None):
        if evidence is None:
            return _prediction.build_plane_models(vars(self), planes, observations=observations)
        if observations is not None:
            raise ValueError("evidence cannot be combined with degradation.")
        return _prediction.build_plane_models(
            vars(self), planes, _input.read_targets(planes, evidence, "evidence", missing=True)[0]
        )

    def _read_observed_planes(self, X, degradation):
        """Return the planes of X, and the observation terms if images are degraded."""
        X = Channels.of(X, self.n_features_in_).X if self._is_grey else X
        require_channels(X, self.n_features_in_, self.lattice_ndim_)
        degradations = Degradations.to_predict(self.degradation, degradation, X)
        X = X if degradations is None else lifted(X, degradations)
        stages = getattr(self, "stages_", [self])
        window = as_options(self.window, "window")
        readings = [_input.Reading(stage, window, known=vars(stage)) for stage in stages]
        seen = build_field_inputs(readings, make_solver(self.inference), self.n_jobs, X, degradations)
        return read_observed_planes(readings[-1], seen[-1], degradations)


def build_value_task(regressor: RegressionTreeField) -> _prediction.TiledTask:
    """Return the task that predicts the values of an image tile by tile."""
    fitted = vars(regressor)

    def finished(values):
        return _prediction.clipped(fitted, regressor.clip, values), None

    shape = (len(fitted["target_mean_"]),) if fitted["_has_channels"] else ()
    dtype = finished(np.zeros(0))[0].dtype
    return _prediction.TiledTask.of(regressor, finished, dtype, shape, regressor.degradation is not None)
