"""Training of learned filters: image crops, conversion of parameters for the kernel, and the optimizer Adam."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.fft

from sklearn_crf.kernels.restoration.diffusion import squared_errors
from sklearn_crf.restoration import _tuning as tuned
from sklearn_crf.rtf.images._corruption import (
    JPEG,
    GaussianNoise,
    compute_table_factor,
    corrupt_image,
    estimate_table_factor,
    find_quality,
)


class Stages(NamedTuple):
    """Parameters of all stages, for images in units of the noise's standard deviation."""

    filters: np.ndarray  # (T, F, m, m), filters of each stage
    weights: np.ndarray  # (T, F, G), weights of the Gaussians of each influence function
    pull: np.ndarray  # (T,), strength of the pull to the degraded image

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Four numbers: stages, filters per stage, rows per filter, and knots per influence function."""
        return (*self.filters.shape[:3], len(knots()))

    def packed(self) -> np.ndarray:
        """Return the parameters as the vector that the kernel reads."""
        T = len(self.pull)
        parts = self.filters, self.weights @ gaussians(), self.pull
        return np.concatenate([part.reshape(T, -1) for part in parts], axis=1).ravel()


def knots() -> np.ndarray:
    """Return the knots of the influence functions, which are linear between knots."""
    return np.linspace(-tuned.REACH, tuned.REACH, tuned.INTERVALS * (tuned.GAUSSIANS - 1) + 1)


def gaussians() -> np.ndarray:
    """Return the values of the Gaussians at the knots, (G, K); their width is the distance between adjacent centres."""
    centres = knots()[:: tuned.INTERVALS]
    return np.exp(-0.5 * ((knots() - centres[:, np.newaxis]) / (centres[1] - centres[0])) ** 2)


def cosines(side: int) -> np.ndarray:
    """Return the cosine basis of square filters, (side^2 - 1, side^2), without the constant, low frequencies first."""
    basis = scipy.fft.idctn(np.eye(side * side).reshape(-1, side, side), axes=(1, 2), norm="ortho")
    order = np.argsort(np.add.outer(np.arange(side), np.arange(side)), axis=None, kind="stable")
    return basis.reshape(side * side, -1)[order[1:]]


class Parameters:
    """Layout of a parameter vector: coefficients of filters in the cosine basis, weights of Gaussians, and pulls."""

    # Filters have norm one, so that their response to noise is about one.
    # Influences are divided by the number of pixels of a filter.
    # The responses of all filters then sum to the image minus its mean.

    def __init__(self, n_stages: int, n_filters: int, side: int) -> None:
        self.basis, self.gaussians = cosines(side), gaussians() / side**2
        self.shapes = (n_stages, n_filters, len(self.basis)), (n_stages, n_filters, len(self.gaussians)), (n_stages,)
        self.ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        self.side = side

    def parts(self, theta: np.ndarray) -> list[np.ndarray]:
        """Return views of the coefficients, weights and pulls in a parameter vector."""
        return [part.reshape(shape) for part, shape in zip(np.split(theta, self.ends), self.shapes, strict=True)]

    def start(self) -> np.ndarray:
        """Return the initial parameters: cosine filters, and influence functions that remove small responses."""
        theta = np.zeros(self.ends[-1] + self.shapes[2][0])
        coefficients, weights, _ = self.parts(theta)
        coefficients[:] = np.eye(*self.shapes[0][1:])
        seen = knots()
        influence = seen * np.exp(-0.5 * (seen / tuned.FIRST_WIDTH) ** 2) * tuned.FIRST_SHARE / self.shapes[2][0]
        weights[:] = np.linalg.lstsq((self.gaussians * self.side**2).T, influence, rcond=None)[0]
        return theta

    def stages(self, theta: np.ndarray) -> Stages:
        """Return the stages for a parameter vector, with filters of norm one."""
        coefficients, weights, pull = self.parts(theta)
        filters = coefficients @ self.basis / np.linalg.norm(coefficients, axis=2, keepdims=True)
        return Stages(filters.reshape(*filters.shape[:2], self.side, -1), weights / self.side**2, pull.copy())

    def pulled_back(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Convert the gradient with respect to kernel parameters to the gradient with respect to ``theta``."""
        coefficients = self.parts(theta)[0]
        T, F = coefficients.shape[:2]
        n_taps, n_knots = self.side**2, self.gaussians.shape[1]
        of_filters, of_knots, of_pull = np.split(gradient.reshape(T, -1), np.cumsum([F * n_taps, F * n_knots]), axis=1)
        norm = np.linalg.norm(coefficients, axis=2, keepdims=True)
        slope = of_filters.reshape(T, F, n_taps) @ self.basis.T
        slope -= np.sum(slope * coefficients, axis=2, keepdims=True) * coefficients / norm**2
        parts = slope / norm, of_knots.reshape(T, F, n_knots) @ self.gaussians.T, of_pull
        return np.concatenate([part.ravel() for part in parts])


class Crops(NamedTuple):
    """Image planes from which training crops are drawn."""

    given: list  # (H, W) each: degraded planes, or clean planes if there is a corruption
    target: list
    corruption: Any  # function of an image and a generator, or None
    # Divisor of pixel values. If noise levels are drawn, the smallest divisor. Unused if JPEG qualities are drawn.
    unit: float

    def drawn(self, n: int, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
        """Draw n crops; return pairs of examples and targets, each an array (k, h, w) of k crops of equal shape."""
        groups: dict = {}
        for chosen in rng.integers(len(self.given), size=n):
            both = self._crop(self.given[chosen], self.target[chosen], rng)
            groups.setdefault(both[0].shape, []).append(both)
        return [tuple(map(np.stack, zip(*group, strict=True))) for group in groups.values()]  # type: ignore[misc]

    def _crop(self, given, target, rng):
        """Draw the same crop from an image and its target, and subtract the mean of the image's crop from both."""
        height, width = (min(tuned.CROP, side) for side in given.shape)
        top, left = (
            rng.integers((side - size) // tuned.BLOCK + 1) * tuned.BLOCK
            for side, size in zip(given.shape, (height, width), strict=True)
        )
        sides = np.s_[top : top + height, left : left + width]
        example, target, corruption, unit = given[sides], target[sides], self.corruption, self.unit
        if is_of_levels(corruption):
            level = rng.uniform(corruption.low, corruption.high)
            unit, corruption = max(level, unit), GaussianNoise(level)
        elif is_of_qualities(corruption):
            ends = [compute_table_factor(round(quality)) for quality in (corruption.high, corruption.low)]
            quality = find_quality(rng.uniform(*ends))
            unit, corruption = compute_table_unit(compute_table_factor(quality)), JPEG(quality)
        if corruption is not None:
            # Mirror images are valid examples, because they are corrupted like any other image.
            turn = (slice(None, None, rng.choice([-1, 1])), slice(None, None, rng.choice([-1, 1])))
            example, target = example[turn], target[turn]
            if rng.integers(2):
                example, target = example.T, target.T
            example = damaged(corruption, np.ascontiguousarray(example), rng)
        level = example.mean(dtype=np.float64)
        return [np.ascontiguousarray((image - level) / unit, dtype=np.float32) for image in (example, target)]


def is_white_noise(corruption: Any) -> bool:
    """Return whether a corruption is Gaussian noise, so that images can be scaled by its standard deviation."""
    is_noise = isinstance(corruption, GaussianNoise) and not corruption.level_channel
    return is_noise and bool(corruption.high or corruption.low)


def is_of_levels(corruption: Any) -> bool:
    """Return whether a corruption is Gaussian noise with a range of levels."""
    return is_white_noise(corruption) and corruption.high is not None


def is_of_qualities(corruption: Any) -> bool:
    """Return whether a corruption is JPEG with a range of qualities."""
    return isinstance(corruption, JPEG) and corruption.high is not None


def compute_table_unit(factor: float) -> float:
    """Return the unit of images that were compressed by JPEG, given the factor of the quantisation tables."""
    return tuned.UNIT_OF_TABLES * max(factor, tuned.LEAST_FACTOR)


def estimate_table_unit(image: np.ndarray) -> float:
    """Estimate the unit of a compressed image (H, W) or (H, W, C) of bytes."""
    channels = [image] if image.ndim == 2 or image.shape[2] == 3 else np.moveaxis(image, 2, 0)
    return compute_table_unit(max(estimate_table_factor(channel) for channel in channels))


def damaged(corruption: Callable, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a corrupted copy of a plane (H, W)."""
    found = corrupt_image(corruption, image, rng, np.float64)
    if found.shape != image.shape or not np.isfinite(found).all():
        height, width = image.shape
        problem = f"shape {found.shape}" if found.shape != image.shape else "NaN or infinity"
        raise ValueError(
            f"corruption must return finite images of {height} x {width} pixels as its input, got {problem}: use "
            "RegressionTreeField for missing pixels or channels of noise levels."
        )
    return found


class Adam:
    """The optimizer Adam, with a step size that decreases to 0 along a cosine."""

    def __init__(self, size: int, max_iter: int) -> None:
        self.mean, self.square, self.n_done, self.max_iter = np.zeros(size), np.zeros(size), 0, max_iter

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """Return the change of the parameters."""
        first, second = tuned.MOMENTS
        self.mean += (1 - first) * (gradient - self.mean)
        self.square += (1 - second) * (gradient**2 - self.square)
        length = tuned.FIRST_STEP * 0.5 * (1 + np.cos(np.pi * self.n_done / self.max_iter))
        self.n_done += 1
        mean, square = self.mean / (1 - first**self.n_done), self.square / (1 - second**self.n_done)
        return -length * mean / (np.sqrt(square) + 1e-8)


def mean_squared_error(
    parameters: Parameters, theta: np.ndarray, groups: list, n_threads: int, has_gradient: bool
) -> tuple[float, np.ndarray]:
    """Return the mean squared error of crops, in the scaled units of the kernel, and the gradient of this error."""
    stages, loss, n_pixels = parameters.stages(theta), 0.0, 0
    packed, seen = stages.packed().astype(np.float32), knots()
    gradient = np.zeros(packed.size if has_gradient else 0)
    for given, target in groups:
        margin = tuned.MARGIN if min(given.shape[1:]) > 4 * tuned.MARGIN else 0
        losses = np.zeros(len(given))
        step = seen[1] - seen[0]
        squared_errors(stages.sizes, packed, seen[0], step, given, target, margin, losses, gradient, n_threads)
        loss += losses.sum()
        n_pixels += len(given) * (given.shape[1] - 2 * margin) * (given.shape[2] - 2 * margin)
    return loss / n_pixels, parameters.pulled_back(theta, gradient) / n_pixels if has_gradient else gradient


def train(
    parameters: Parameters,
    crops: Crops,
    held_out: Crops | None,
    max_iter: int,
    rng: np.random.Generator,
    n_threads: int,
    after: Callable[[Stages, float], Any],
) -> tuple[Stages, list, list]:
    """Minimise the squared error of crops; each step draws new crops.

    The best stages have the least error on crops of held-out images. Without held-out images the last stages are best.
    """
    # after: function of the stages and the loss, called after each step; training ends if the function returns True
    # returns: best stages; mean squared error of the crops of each step;
    # mean squared errors of held-out crops at the start and at regular intervals
    theta, adam = parameters.start(), Adam(len(parameters.start()), max_iter)
    checked = [] if held_out is None else held_out.drawn(tuned.HELD_OUT_CROPS, rng)
    losses: list[float] = []
    curve: list[float] = []
    best = theta

    def look():
        nonlocal best
        curve.append(mean_squared_error(parameters, theta, checked, n_threads, False)[0])
        if curve[-1] <= min(curve):
            best = theta

    if checked:
        look()
    for k in range(max_iter):
        loss, gradient = mean_squared_error(parameters, theta, crops.drawn(tuned.BATCH, rng), n_threads, True)
        losses.append(loss)
        theta = theta + adam.step(gradient)
        is_ended = after(parameters.stages(theta), loss)
        if checked and ((k + 1) % max(1, max_iter // tuned.LOOKS) == 0 or k + 1 == max_iter or is_ended):
            look()
        if is_ended:
            break
    return parameters.stages(best if checked else theta), losses, curve
