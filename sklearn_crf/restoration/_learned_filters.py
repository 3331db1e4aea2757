"""Image restoration by stages of learned filters."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._fits import fits
from sklearn_crf._numbers import as_reals
from sklearn_crf._own_methods import require_numbers, require_optional_numbers
from sklearn_crf._ranges import clip_isolated_values
from sklearn_crf._reports import CallbackSupportMixin, fit_callbacks, open_progress_reporter
from sklearn_crf._threads import count_threads, map_coarse
from sklearn_crf._versions import get_versioned_state, restore_versioned_state
from sklearn_crf.kernels.restoration.diffusion import restore_image
from sklearn_crf.restoration import _tuning as tuned
from sklearn_crf.restoration._filter_training import (
    Crops,
    Parameters,
    Stages,
    damaged,
    estimate_table_unit,
    is_of_levels,
    is_of_qualities,
    is_white_noise,
    knots,
    train,
)
from sklearn_crf.rtf import _tuning as field_tuned
from sklearn_crf.rtf._prediction import clipped, gather_scored_pixels, is_unknown
from sklearn_crf.rtf.images._channels import Channels, InputSample, require_range, require_several
from sklearn_crf.rtf.images._corruption import choose_noise_levels, require_units, warn_of_other_noise


@dataclass(eq=False, repr=False)
class LearnedFilters(CallbackSupportMixin, RegressorMixin, BaseEstimator):
    r"""Restore images by a few steps of a diffusion whose filters and influence functions are learned.

    .. math::
        u_{t+1} = u_t - \sum_i K_{ti}^\top \phi_{ti}(K_{ti} u_t) - \lambda_t (u_t - x), \qquad u_0 = x

    x is the degraded image, and :math:`u_T` is the restored image. :math:`K_{ti}` correlates an image, mirrored at its
    border, with a filter whose entries add up to 0. :math:`\phi_{ti}` is a sum of Gaussians. All stages are trained
    together, with the exact gradient of the squared error of :math:`u_T`. The channels of an image are restored
    separately.

    Parameters
    ----------
    corruption : callable or None, default=None
        Function that makes degraded images from X. The function takes an image (H, W) and a
        :class:`numpy.random.Generator`. Examples are :class:`~sklearn_crf.rtf.GaussianNoise` and
        :class:`~sklearn_crf.rtf.JPEG`. The function is called for every training crop. The corners of crops lie at
        multiples of 8 pixels from the corner of the image. Crops with Gaussian noise are divided by its standard
        deviation: ``GaussianNoise(5, 50)`` trains one model for all levels from 5 to 50. Crops with ``JPEG(5, 40)`` are
        divided by the factor of the quantisation tables, so that one model restores images of every quality.
        Predictions estimate this factor from the image.
    n_stages : int, default=5
        Number of steps of the diffusion. Training and prediction time are proportional to it.
    filter_size : int, default=5
        Number of rows and columns of the filters, an odd number. Size 7 restores better than size 5, but takes three
        times as long.
    n_filters : int or None, default=None
        Number of filters of a stage, at most ``filter_size ** 2 - 1``. None is this maximum.
    max_iter : int, default=1500
        Number of steps of Adam, each on 8 crops of 64 x 64 pixels.
    validation_fraction : float, default=0.1
        Fraction of the images that are held out of training. The parameters with the least error on these images are
        kept. With fewer than 5 images, or with 0, no image is held out, and the last parameters are kept.
    clip : {"auto"} or None, default="auto"
        ``"auto"`` predicts in the range and type of y, for example rounded bytes if y holds bytes. None predicts
        float64.
    random_state : int, RandomState instance or None, default=None
        Random state for crops, corruptions, and the choice of held-out images.
    n_jobs : int or None, default=None
        Number of threads over crops and parts of images; results do not depend on it.
    verbose : int, default=0
        1 shows the progress of training.

    Attributes
    ----------
    filters_ : ndarray of shape (n_stages, n_filters, filter_size, filter_size)
        Filters of norm one. Their initial values are the cosine basis with low frequencies first.
    weights_ : ndarray of shape (n_stages, n_filters, 47)
        Weights of the Gaussians of each influence function, for images in units of ``unit_``.
    pull_ : ndarray of shape (n_stages,)
        Strengths :math:`\lambda_t` of the pull to the degraded image.
    unit_ : float
        Level of Gaussian noise in units of X, or the lowest level of a range. With other damage, the root mean square
        difference of X and y. JPEG with a range of qualities has a unit for each image.
    loss_curve_ : ndarray of shape (n_iter_,)
        Mean squared error of the crops of each step, divided by the squared noise or unit of the crops, or by
        ``unit_ ** 2``.
    validation_curve_ : ndarray
        Mean squared error of crops of the held-out images, at the start and 20 times during training; empty if no
        image is held out.
    n_iter_ : int
        Number of steps.
    target_range_ : ndarray of shape (2,)
        Smallest and largest value of y.
    target_dtype_ : str
        Type of y.
    channel_range_, input_dtype_ : ndarray of shape (1, 2), and str
        Range and type of X. Prediction rejects images far outside this range.

    See Also
    --------
    RegressionTreeField : Needs fewer images and less time to train; takes missing pixels, known blur, and volumes.
    restore : Restores photographs without training.

    References
    ----------
    Y. Chen and T. Pock. Trainable nonlinear reaction diffusion: a flexible framework for fast and effective image
    restoration. IEEE Transactions on Pattern Analysis and Machine Intelligence 39(6), 2017,
    :doi:`10.1109/TPAMI.2016.2596743`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import LearnedFilters
    >>> from sklearn_crf.rtf import GaussianNoise
    >>> rng = np.random.default_rng(0)
    >>> clean = np.kron(rng.random((10, 8, 8)), np.ones((4, 4)))
    >>> noisy = clean[8:] + 0.1 * rng.normal(size=(2, 32, 32))
    >>> model = LearnedFilters(
    ...     GaussianNoise(0.1), n_stages=2, filter_size=3, max_iter=50, random_state=0
    ... )
    >>> restored = model.fit(clean[:8]).predict(noisy)
    >>> print(f"{np.std(restored - clean[8:]):.2f}")
    0.03
    """

    __getstate__ = get_versioned_state
    __setstate__ = restore_versioned_state

    def _check_fitted(self) -> None:
        """Raise ValueError unless the fitted attributes are finite numbers of consistent shapes."""
        require_numbers("filters_", self.filters_, (None,) * 4)
        require_numbers("weights_", self.weights_, (*self.filters_.shape[:2], None))
        require_numbers("pull_", self.pull_, self.filters_.shape[:1])
        require_numbers("unit_", np.asarray(self.unit_), ())
        np.dtype(getattr(self, "target_dtype_", None))
        # Fields that come with the package have no ranges.
        require_optional_numbers(self, {"target_range_": (2,), "channel_range_": (None, 2)})

    _parameter_constraints: ClassVar[dict] = {
        "corruption": [callable, None],
        "n_stages": [Interval(Integral, 1, None, closed="left")],
        "filter_size": [Interval(Integral, 3, 15, closed="both")],
        "n_filters": [Interval(Integral, 1, None, closed="left"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "clip": [StrOptions({"auto"}), None],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    corruption: Any = None
    _: KW_ONLY
    n_stages: int = 5
    filter_size: int = 5
    n_filters: int | None = None
    max_iter: int = 1500
    validation_fraction: float = 0.1
    clip: str | None = "auto"
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int = 0

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.target_tags.multi_output = True
        return tags

    @fits
    def fit(self, X: Any, y: Any = None) -> "LearnedFilters":
        """Train all stages.

        Parameters
        ----------
        X : array-like of shape (n, H, W) or (n, H, W, C), or list of array-like of shape (H, W) or (H, W, C)
            Degraded images, or with ``corruption`` the images that are corrupted; of any type, sizes and unit.
        y : as X, optional
            Clean images of the same shapes. With ``corruption``, None uses X.

        Returns
        -------
        LearnedFilters

        Raises
        ------
        InvalidParameterError
            If a parameter is not valid.
        ValueError
            If X and y differ in shape or unit or hold NaN or infinity, if y is missing, or if noise is above the range
            of X.
        """
        n_filters = self._check_n_filters()
        given = _Images.of(X, "X")
        if y is None and self.corruption is None:
            raise ValueError(
                "LearnedFilters requires y to be passed, but the target y is None: pass clean images, or a corruption."
            )
        target = given if y is None else _Images.of(y, "y")
        _require_equal_shapes(given, target)
        if target is not given:
            _require_equal_units(given, target)
        sample = given.sample()
        rng = np.random.default_rng(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        if self.corruption is not None:
            require_units(self.corruption, sample)
        crops, held_out = self._split_crops(given, target, rng)
        parameters, n_threads = Parameters(self.n_stages, n_filters, self.filter_size), count_threads(self.n_jobs)
        with (
            fit_callbacks(self, X, y, self.max_iter) as call_back,
            open_progress_reporter(self.verbose, self.max_iter, type(self).__name__) as report,
        ):

            def after(stages, loss):
                report(lambda: f"mean squared error {loss:.4g}")
                return call_back(lambda: self._collect_attributes(stages, crops.unit, target, sample))

            stages, losses, curve = train(parameters, crops, held_out, self.max_iter, rng, n_threads, after)
        self.__dict__.update(
            self._collect_attributes(stages, crops.unit, target, sample),
            loss_curve_=np.array(losses),
            validation_curve_=np.array(curve),
            n_iter_=len(losses),
        )
        return self

    def _check_n_filters(self) -> int:
        """Return the number of filters; raise InvalidParameterError if this number or the filter size is invalid."""
        if self.filter_size % 2 == 0:
            raise InvalidParameterError(f"filter_size must be an odd number, got {self.filter_size}.")
        most = self.filter_size**2 - 1
        if self.n_filters is not None and self.n_filters > most:
            raise InvalidParameterError(
                f"n_filters must be at most filter_size ** 2 - 1 = {most}, got {self.n_filters}."
            )
        return most if self.n_filters is None else self.n_filters

    def _split_crops(self, given, target, rng) -> tuple[Crops, Crops | None]:
        """Return the sources of training crops and of held-out crops; the latter is None if no image is held out."""
        n_images, n_held_out = len(given.images), 0
        if n_images >= tuned.LEAST_IMAGES and self.validation_fraction > 0:
            n_held_out = max(1, round(self.validation_fraction * n_images))
        order = rng.permutation(n_images)
        unit = self._estimate_unit(given.channels.X, target.channels.X, rng)
        parts: list = []
        for chosen in (np.sort(order[n_held_out:]), np.sort(order[:n_held_out])):
            example, aim = ([plane for i in chosen for plane in own.images[i]] for own in (given, target))
            parts.append(Crops(example, aim, self.corruption, unit) if example else None)
        return parts[0], parts[1]

    def _estimate_unit(self, given, target, rng) -> float:
        """Return the level of Gaussian noise; for other damage, return the root mean square error of a few images."""
        if is_white_noise(self.corruption):
            # A range of levels may start at 0, which pixel values cannot be divided by.
            return float(self.corruption.low or field_tuned.LEAST_NOISE * self.corruption.high)
        chosen = rng.permutation(len(given))[: tuned.IMAGES_OF_UNIT]
        found = [given[k] if self.corruption is None else damaged(self.corruption, given[k], rng) for k in chosen]
        errors = [np.mean((x - target[k]) ** 2) for x, k in zip(found, chosen, strict=True)]
        # If images equal their targets, the error is 0 and cannot be the unit.
        return float(np.sqrt(np.mean(errors))) or float(np.mean([np.std(target[k]) for k in chosen])) or 1.0

    def _collect_attributes(self, stages: Stages, unit: float, target: "_Images", sample: InputSample) -> dict:
        """Return the fitted attributes that predictions need."""
        of_channels = sample.attributes(is_image=True)
        low, high = (function([function(plane) for plane in target.channels.X]) for function in (np.min, np.max))
        return {
            "filters_": stages.filters,
            "weights_": stages.weights,
            "pull_": stages.pull,
            "unit_": unit,
            "target_range_": np.array([low, high]),
            "target_dtype_": target.dtype,
            "channel_range_": of_channels["channel_range_"],
            "input_dtype_": of_channels["input_dtype_"],
        }

    def predict(self, X: Any, *, noise: Any = None) -> Any:
        """Restore images.

        Parameters
        ----------
        X : array-like of shape (n, H, W) or (n, H, W, C), or list of array-like of shape (H, W) or (H, W, C)
            Degraded images, in the unit of ``fit``.
        noise : "auto", float or array-like of shape (n,), optional
            Standard deviation of the noise of X, for all images or for each image. By default it is the level of
            training. After training for a range of levels the default is "auto", which estimates the noise of each
            image from the finest detail in smooth regions. Images are divided by their noise before they are filtered.

        Returns
        -------
        ndarray of the shape of X, or of shape (n,) of images for a list

        Raises
        ------
        ValueError
            If X holds NaN or infinity, or lies far outside the range of ``fit``, or if ``noise`` is not positive, is
            more than the range of X, or is given after training for other damage.
        """
        check_is_fitted(self)
        images = _Images.of(X, "X")
        require_range(vars(self), images.sample())
        noise = "auto" if noise is None and is_of_levels(self.corruption) else noise
        if noise is None and is_of_qualities(self.corruption):
            units = [estimate_table_unit(np.asarray(image, dtype=np.float64)) for image in X]
        elif noise is None:
            warn_of_other_noise(self.corruption, images.channels.X)
            units = [self.unit_] * len(X)
        elif is_white_noise(self.corruption):
            units = choose_noise_levels(noise, X, field_tuned.LEAST_NOISE * self.unit_)
        else:
            raise ValueError(f"noise requires training with corruption=GaussianNoise(...), got {self.corruption!r}.")
        planes = restore_planes(self, images.channels.X, images.channels.of_images(list(units)))
        fitted = {"target_dtype_": self.target_dtype_, "target_range_": self.target_range_, "lattice_ndim_": 2}
        return images.channels.together([clipped(fitted, self.clip, plane) for plane in planes], X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination over all values.

        Parameters
        ----------
        X, y : array-like or list of array-like
            Degraded and clean images.
        sample_weight : array-like of shape (n,), optional
            One weight for each image.

        Returns
        -------
        float
        """
        truth, found, weight = gather_scored_pixels(y, self.predict(X), sample_weight, is_unknown)
        return float(r2_score(truth, found, sample_weight=weight))


def restore_planes(filters: LearnedFilters, planes: list, units: list) -> list:
    """Restore planes (H, W); ``units`` holds the unit of the damage of each plane."""
    stages, tasks = Stages(filters.filters_, filters.weights_, filters.pull_), list(zip(planes, units, strict=True))
    return map_coarse(partial(_restore_plane, stages), tasks, filters.n_jobs)


def _restore_plane(stages, task, n_threads):
    """Restore a plane (H, W); ``task`` is the pair (plane, scale of its damage)."""
    plane, unit = task
    level, seen = plane.mean(dtype=np.float64), knots()
    image = ((plane - level) / unit).astype(np.float32, order="C")
    packed = stages.packed().astype(np.float32)
    restore_image(stages.sizes, packed, seen[0], seen[1] - seen[0], image, n_threads)
    return level + unit * image.astype(np.float64)


# Advice for images with isolated values, such as sentinels.
_ADVICE = "If they mark missing pixels, fill these pixels in: RegressionTreeField and restore fill in NaN."


class _Images(NamedTuple):
    """Images that are split into planes, one plane for each channel."""

    images: list  # for each image, a list of planes (H, W)
    channels: Channels  # all planes
    dtype: str

    @classmethod
    def of(cls, given: Any, name: str) -> "_Images":
        """Check images with one or several channels, and split them into planes."""
        if not (hasattr(given, "__len__") and hasattr(given, "__getitem__")) or not len(given):
            raise ValueError(f"{name} must hold images of shape (H, W) or (H, W, C), got {type(given).__name__}.")
        require_several(given)
        images = []
        for i, image in enumerate(given):
            read = as_reals(image, f"{name}[{i}]", np.float64)
            if read.ndim not in (2, 3) or not read.size:
                raise ValueError(f"{name}[{i}] must have shape (H, W) or (H, W, C), got {read.shape}.")
            if not np.isfinite(read).all():
                raise ValueError(f"{name}[{i}] has NaN or infinity: to fill in pixels, use RegressionTreeField.")
            images.append(read)
        kinds = [np.asarray(image).dtype for image in given]
        if not all(kind.itemsize == 1 for kind in kinds):
            images = clip_isolated_values(images, [f"{name}[{i}]" for i in range(len(images))], _ADVICE)
        n_colours = [0 if image.ndim == 2 else image.shape[2] for image in images]
        images = [list(np.moveaxis(np.atleast_3d(image), 2, 0)) for image in images]
        channels = Channels([plane for own in images for plane in own], n_colours)
        return cls(images, channels, kinds[0].str)

    def sample(self) -> InputSample:
        """Return a joint sample of the values of all channels."""
        return InputSample.of([plane[..., np.newaxis] for plane in self.channels.X])._replace(dtype=self.dtype)


def _require_equal_shapes(given, target):
    """Raise ValueError if an image and its target differ in shape."""
    if len(given.images) != len(target.images):
        raise ValueError(f"X has {len(given.images)} images, but y has {len(target.images)}.")
    for i, (x, y) in enumerate(zip(given.images, target.images, strict=True)):
        if len(x) != len(y) or x[0].shape != y[0].shape:
            shapes = ["(" + ", ".join(map(str, (*own[0].shape, len(own)))) + ")" for own in (x, y)]
            raise ValueError(f"X[{i}] has shape {shapes[0]}, but y[{i}] has {shapes[1]}: enlarge images first.")


def _require_equal_units(given, target):
    """Raise ValueError if y has another unit than X: lines fit X to y, and y to X, much better than equality does."""
    x, y = (np.concatenate([plane.ravel() for plane in own.channels.X]) for own in (given, target))
    size = max(np.abs(x).max(), np.abs(y).max()) or 1.0
    x, y = x / size, y / size
    covariance = np.cov(x, y, bias=True)
    variances, product = np.diag(covariance), covariance[0, 1]
    if not variances.all():
        return
    # If the units are equal, noise in X only changes the line from X to y, and blur in X only the line from y to X.
    of_lines, error = variances - product**2 / variances[::-1], np.mean((x - y) ** 2)
    if error > tuned.LARGEST_EXCESS * max(of_lines.max(), variances.min()):
        slope = product / variances[1]
        offset = size * (x.mean() - slope * y.mean())
        raise ValueError(
            f"y has another unit than X, whose values are about {slope:.4g} * y {offset:+.4g}: pass X and y in the "
            "same unit."
        )
