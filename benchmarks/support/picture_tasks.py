"""Data and measures of the smaller tasks of Jancsary (2012), Part III: predict labels, colours and positions."""

import os
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates

# Side of the box that hides the middle of a character, and width of the visible margin
BOX, AROUND = 20, 14


def _data(*names):
    return np.load(Path(os.environ["SKLEARN_CRF_DATA"]).joinpath(*names))


def characters(part, n):
    """Return handwritten characters whose middle is hidden by a box, and labels of ink.

    Channels are visible ink, visible paper and the box. The thesis uses the KAIST Hanja2 database, and does not give
    the size of its small boxes.
    """
    archive = _data("hanzi", f"hanzi_{part}.npz")["images"]
    chosen = np.random.default_rng(0).permutation(len(archive))[:n]
    low = (archive.shape[1] - BOX) // 2 - AROUND
    ink = archive[chosen][:, low : low + BOX + 2 * AROUND, low : low + BOX + 2 * AROUND].astype(np.float32)
    hidden = np.zeros_like(ink)
    hidden[:, AROUND:-AROUND, AROUND:-AROUND] = 1
    return np.stack([ink * (1 - hidden), (1 - ink) * (1 - hidden), hidden], axis=-1), ink.astype(int)


def share_in_box(predicted, truth):
    """Return the percentage of pixels in the box with correct labels."""
    box = slice(None), slice(AROUND, -AROUND), slice(AROUND, -AROUND)
    return 100 * float(np.mean(predicted[box] == truth[box]))


def streets(part, n):
    """Return street scenes in grey, with blurred copies and positions of pixels, and their colours.

    The thesis uses faces. Street scenes from a car have a similar common layout, with sky above and road below.
    """
    images = _data("camvid", f"camvid_{part}.npz")["images"]
    images = images[:: max(1, len(images) // n)][:n].astype(np.float32) / 255
    grey = images @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    blurred = [gaussian_filter(grey, (0, scale, scale)) for scale in (1, 2, 4, 8)]
    places = np.meshgrid(*(np.linspace(-1, 1, length) for length in grey.shape[1:]), indexing="ij")
    places = [np.broadcast_to(place, grey.shape) for place in places]
    return np.stack([grey, *blurred, *places], axis=-1).astype(np.float32), images


def flags(part, n):
    """Return images of two bent flags on a mosaic of other flags, and for each pixel its position on the flat flag.

    The thesis uses 60 deformations of one real flag. Here the flags are drawn.
    """
    rng = np.random.default_rng(0 if part == "train" else 1)
    cloth = _flag(np.random.default_rng(7))
    X, y = [], []
    for _ in range(n):
        image, target = _mosaic(rng), np.zeros((*_SIZE, 3))
        for half in rng.permutation(2):
            _put_flag(image, target, cloth, half, rng)
        X.append(np.clip(image + 0.03 * rng.normal(size=image.shape), 0, 1))
        y.append(target)
    X = np.array(X)
    blurred = gaussian_filter(X, (0, 2, 2, 0))
    return np.concatenate([X, blurred], axis=-1).astype(np.float32), np.array(y)


_SIZE, _FLAG = (40, 64), (18, 26)


def _flag(rng):
    """Return a flat flag, with three bands in one direction and a smooth shade in the other direction."""
    colours = rng.random((3, 3))
    bands = np.repeat(colours, _FLAG[0] // 3, axis=0)
    shade = np.linspace(0.45, 1.0, _FLAG[1])
    return bands[:, None, :] * shade[None, :, None]


def _mosaic(rng):
    rows, columns = (length // side + 2 for length, side in zip(_SIZE, _FLAG, strict=True))
    whole = np.block([[[_flag(rng)] for _ in range(columns)] for _ in range(rows)])
    top, left = (rng.integers(side) for side in _FLAG)
    return whole[top : top + _SIZE[0], left : left + _SIZE[1]].copy()


def _put_flag(image, target, cloth, half, rng):
    """Draw the bent flag into one half of the image."""
    rows, columns = np.indices(_SIZE).astype(float)
    top = rng.uniform(3, _SIZE[0] - _FLAG[0] - 3)
    left = half * _SIZE[1] / 2 + rng.uniform(1, _SIZE[1] / 2 - _FLAG[1] - 1)
    bend = rng.uniform(1, 3, size=2) * np.array([1, 0.6])
    phase, length = rng.uniform(0, 2 * np.pi, size=2), rng.uniform(8, 16, size=2)
    down = rows - top + bend[0] * np.sin(2 * np.pi * columns / length[0] / 2 + phase[0])
    across = columns - left + bend[1] * np.sin(2 * np.pi * rows / length[1] / 2 + phase[1])
    inside = (down >= 0) & (down <= _FLAG[0] - 1) & (across >= 0) & (across <= _FLAG[1] - 1)
    for channel in range(3):
        drawn = map_coordinates(cloth[..., channel], [down[inside], across[inside]], order=1)
        image[..., channel][inside] = drawn
    target[inside] = np.stack([np.ones_like(rows), down / _FLAG[0], across / _FLAG[1]], axis=-1)[inside]


def mean_squared_error(predicted, truth):
    return float(np.mean((predicted - truth) ** 2))
