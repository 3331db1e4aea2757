"""Four binary images with fine structure, and noisy copies of them."""

from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.utils import Bunch, check_random_state

from sklearn_crf._numbers import as_integer, check_choice
from sklearn_crf.datasets import _tuning

SIZE = 64

# For each class, the mean and standard deviation of each mixture component (from memory of Kumar & Hebert, NIPS 2003).
_BIMODAL = {0: ((0.08, 0.03), (0.46, 0.03)), 1: ((0.55, 0.02), (0.42, 0.10))}
_GAUSSIAN_STD = 0.3


def make_binary_shapes() -> Any:
    """Generate four binary images of 64 x 64 pixels with thin strokes, corners and small holes.

    The images replace the base images of Kumar & Hebert (2003), which are not available. They are computed, and are
    identical on every machine.

    Returns
    -------
    bunch : Bunch
        ``images``, (4, 64, 64) uint8, 1 on the shape; ``names``, ``("key", "tree", "gear", "spiral")``.

    Examples
    --------
    >>> from sklearn_crf.datasets import make_binary_shapes
    >>> shapes = make_binary_shapes()
    >>> shapes.images.shape, shapes.names
    ((4, 64, 64), ('key', 'tree', 'gear', 'spiral'))
    """
    drawings = {"key": _draw_key, "tree": _draw_tree, "gear": _draw_gear, "spiral": _draw_spiral}
    images = np.stack([draw(_Canvas()).pixels for draw in drawings.values()])
    return Bunch(images=images.astype(np.uint8), names=tuple(drawings))


def make_noisy_shapes(
    noise: str = "gaussian",
    n_per_shape: int = 50,
    *,
    shapes: Any = None,
    random_state: int | np.random.RandomState | None = None,
) -> tuple:
    r"""Generate noisy copies of the binary shapes, as in the denoising task of Kumar, August & Hebert (2005).

    For labels :math:`y \in \{0, 1\}`, ``"gaussian"`` noise draws :math:`x \sim N(y, 0.3^2)`. ``"bimodal"`` noise draws
    x from an equal mixture of :math:`N(0.08, 0.03^2)` and :math:`N(0.46, 0.03^2)` for class 0, and of
    :math:`N(0.55, 0.02^2)` and :math:`N(0.42, 0.10^2)` for class 1. These parameters are cited from memory from Kumar
    & Hebert (NIPS 2003).

    Parameters
    ----------
    noise : {"gaussian", "bimodal"}, default="gaussian"
        Type of noise, independent for each pixel.
    n_per_shape : int, default=50
        Number of noisy copies of each shape.
    shapes : sequence of str, optional
        Names from :func:`make_binary_shapes`; None means all four.
    random_state : int, RandomState instance or None, default=None
        Determines the noise.

    Returns
    -------
    X : ndarray of shape (n, 64, 64, 1), float64
        Copies of the first shape, then of the second, and so on.
    y : ndarray of shape (n, 64, 64), int64
        0 or 1.
    shape_names : ndarray of shape (n,) of str
        Name of the shape in each image.

    References
    ----------
    S. Kumar and M. Hebert. Discriminative fields for modeling spatial dependencies in natural images. NIPS 2003. S.
    Kumar, J. August and M. Hebert. Exploiting inference for approximate parameter learning in discriminative fields: an
    empirical study. EMMCVPR 2005.

    Examples
    --------
    >>> from sklearn_crf.datasets import make_noisy_shapes
    >>> X, y, names = make_noisy_shapes(n_per_shape=2, shapes=["key"], random_state=0)
    >>> X.shape, y.shape, names.tolist()
    ((2, 64, 64, 1), (2, 64, 64), ['key', 'key'])
    """
    check_choice(noise, "noise", ("gaussian", "bimodal"))
    base = make_binary_shapes()
    chosen = base.names if shapes is None else tuple(shapes)
    unknown = [name for name in chosen if name not in base.names]
    if unknown or not chosen:
        raise ValueError(f"shapes must be names from {base.names}, got {shapes!r}.")
    n_per_shape = as_integer(n_per_shape, "n_per_shape", lowest=1, highest=_tuning.MOST_COPIES)
    images = np.stack([base.images[base.names.index(name)] for name in chosen])
    y = np.repeat(images, n_per_shape, axis=0).astype(np.int64)
    x = _add_noise(y, noise, check_random_state(random_state))
    return x[..., np.newaxis], y, np.repeat(np.array(chosen), n_per_shape)


def _add_noise(y, noise, rng):
    if noise == "gaussian":
        return y + _GAUSSIAN_STD * rng.standard_normal(y.shape)
    component = rng.randint(2, size=y.shape)
    parameters = np.array([_BIMODAL[0], _BIMODAL[1]])[y, component]
    return parameters[..., 0] + parameters[..., 1] * rng.standard_normal(y.shape)


class _Canvas:
    """A binary image on which strokes, discs and polygons are drawn or erased; x points right, y down."""

    def __init__(self) -> None:
        self.pixels = np.zeros((SIZE, SIZE), dtype=bool)
        self.y, self.x = np.indices((SIZE, SIZE)) + 0.5

    def disc(self, x: float, y: float, radius: float, ink: bool = True) -> None:
        self.pixels[(self.x - x) ** 2 + (self.y - y) ** 2 <= radius**2] = ink

    def stroke(self, points, width):
        """Draw a line through points, with round ends."""
        for (x0, y0), (x1, y1) in pairwise(points):
            dx, dy = x1 - x0, y1 - y0
            # ``length`` and ``distance`` are squared; ``along`` is the fraction of the segment up to the nearest point.
            length = max(dx * dx + dy * dy, 1e-12)
            along = np.clip(((self.x - x0) * dx + (self.y - y0) * dy) / length, 0, 1)
            distance = (self.x - x0 - along * dx) ** 2 + (self.y - y0 - along * dy) ** 2
            self.pixels[distance <= (width / 2) ** 2] = True

    def polygon(self, points, ink=True):
        """Fill a polygon by the even-odd rule."""
        inside = np.zeros((SIZE, SIZE), dtype=bool)
        for (x0, y0), (x1, y1) in zip(points, [*points[1:], points[0]], strict=True):
            if y0 != y1:
                crosses = (self.y >= min(y0, y1)) & (self.y < max(y0, y1))
                inside ^= crosses & (self.x < x0 + (self.y - y0) * (x1 - x0) / (y1 - y0))
        self.pixels[inside] = ink

    def box(self, x0, y0, x1, y1, ink=True):
        self.polygon([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], ink)


def _draw_key(canvas: _Canvas) -> _Canvas:
    """Draw a key: a ring with four holes, a diagonal shaft and four teeth; beside it a square frame with a dot."""
    canvas.disc(18, 18, 14)
    canvas.disc(18, 18, 8, ink=False)
    for x, y in ((18, 7), (7, 18), (18, 29), (29, 18)):
        canvas.disc(x, y, 1.6, ink=False)
    canvas.stroke([(27, 27), (58, 58)], 4)
    for along, length, width in ((40, 9, 3), (46, 7, 2), (51, 9, 3), (56, 6, 2)):
        canvas.stroke([(along, along), (along + length * 0.7, along - length * 0.7)], width)
    canvas.box(4, 48, 16, 60)
    canvas.box(6, 50, 14, 58, ink=False)
    canvas.box(9, 53, 11, 55)
    return canvas


def _draw_tree(canvas: _Canvas) -> _Canvas:
    """Draw a tree: a trunk on roots, branches that thin out to 1.5 pixels, and three hollow fruits."""
    canvas.polygon([(29, 63), (36, 63), (34, 36), (31, 36)])
    canvas.stroke([(20, 62), (30, 58), (35, 58), (46, 62)], 2)
    _branch(canvas, (32.5, 40.0), -np.pi / 2, 14.0, 3.6, 5)
    for x, y in ((10, 14), (54, 16), (32, 6)):
        canvas.disc(x, y, 4.2)
        canvas.disc(x, y, 1.6, ink=False)
    return canvas


def _branch(canvas, start, angle, length, width, depth):
    end = (start[0] + length * np.cos(angle), start[1] + length * np.sin(angle))
    canvas.stroke([start, end], max(width, 1.5))
    if depth == 1:
        return
    for turn, shrink in ((-0.55, 0.76), (0.48, 0.70)):
        _branch(canvas, end, angle + turn, length * shrink, width * 0.72, depth - 1)


def _draw_gear(canvas: _Canvas) -> _Canvas:
    """Draw a gear: a rim with twelve teeth and nine holes, five spokes, and a hub with a square hole."""
    for k in range(12):
        angle = 2 * np.pi * k / 12
        c, s = np.cos(angle), np.sin(angle)
        corners = ((20, -3), (29, -2), (29, 2), (20, 3))
        canvas.polygon([(32 + r * c - t * s, 32 + r * s + t * c) for r, t in corners])
    canvas.disc(32, 32, 23)
    canvas.disc(32, 32, 17, ink=False)
    for k in range(5):
        angle = 2 * np.pi * k / 5 + 0.3
        canvas.stroke([(32, 32), (32 + 19 * np.cos(angle), 32 + 19 * np.sin(angle))], 2.4)
    canvas.disc(32, 32, 7.5)
    canvas.box(29, 29, 35, 35, ink=False)
    for k in range(9):
        angle = 2 * np.pi * k / 9
        canvas.disc(32 + 20 * np.cos(angle), 32 + 20 * np.sin(angle), 1.2, ink=False)
    return canvas


def _draw_spiral(canvas: _Canvas) -> _Canvas:
    """Draw a spiral that thins inwards from 4.2 to 1.5 pixels; each corner has an angle bracket and a square."""
    turns = np.linspace(0, 1, 400)
    angle = 2 * np.pi * 3.2 * turns
    radius = 24 * (1 - turns) + 1.5
    points = np.stack((32 + radius * np.cos(angle), 32 + radius * np.sin(angle)), axis=1)
    for k in range(0, 399, 7):
        canvas.stroke(points[k : k + 8].tolist(), 4.2 - 2.7 * turns[k])
    for x, y, right, down in ((1, 1, 1, 1), (63, 1, -1, 1), (1, 63, 1, -1), (63, 63, -1, -1)):
        canvas.stroke([(x + 8 * right, y + down), (x + right, y + down), (x + right, y + 8 * down)], 2)
        left, right_edge = sorted((x + 4 * right, x + 7 * right))
        top, bottom = sorted((y + 4 * down, y + 7 * down))
        canvas.box(left, top, right_edge, bottom)
    return canvas
