"""CamVid street frames as graphs of superpixels, for ``ccg_camvid.py``.

SLIC divides a frame of 90 x 120 pixels into about sixty regions. Regions that touch are neighbours. A region has 44
features, scaled on the training frames. Eight features are mean red, green and blue; standard deviation of grey values;
mean absolute difference of grey values down and across; and row and column of the centre. The other 36 features are
their products and squares. An edge has a constant and the difference of mean colours.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sklearn_crf import Example
from support.bundles import load_camvid
from support.labelled_part import labelled_part

N_REGIONS = 80
PARTS = ("train", "val", "test")
N_CLASSES = 11
#: Test frames are left out if a training frame of the same sequence is at most this many frames away.
NEAR = 300
#: Consecutive test frames that count as one observation.
BLOCK = 10


@dataclass(frozen=True)
class Regions:
    """Regions of one frame.

    Attributes
    ----------
    features : ndarray of shape (n_regions, 8), float32
    edges : ndarray of shape (n_edges, 2), int32
    counts : ndarray of shape (n_regions, 12), int64
        Number of pixels by class. The first column is for unknown classes.
    """

    features: np.ndarray
    edges: np.ndarray
    counts: np.ndarray

    @property
    def labels(self):
        """Most frequent class of each region, or -1 if most of its pixels are unknown."""
        return self.counts.argmax(axis=1).astype(np.int32) - 1

    def example(self, scaled):
        """Return the graph with given node features."""
        tail, head = self.edges.T
        colour = np.abs(self.features[tail, :3] - self.features[head, :3]).mean(axis=1)
        return Example(scaled, self.edges, np.stack((np.ones(len(tail)), colour), axis=1).astype(scaled.dtype))


def cut(image, target):
    """Return the regions of a frame, uint8 of shape (H, W, 3), with labels of shape (H, W)."""
    from skimage.segmentation import slic

    image = image / 255.0
    region = slic(image, n_segments=N_REGIONS, compactness=10.0, start_label=0, enforce_connectivity=True)
    n_regions = region.max() + 1
    grey = image.mean(axis=2)
    down, across = (np.abs(np.gradient(grey, axis=axis)) for axis in (0, 1))
    row, column = np.meshgrid(*(np.linspace(-1, 1, n) for n in grey.shape), indexing="ij")
    planes = [*np.moveaxis(image, 2, 0), grey, grey**2, down, across, row, column]
    area = np.bincount(region.ravel())
    means = np.stack([np.bincount(region.ravel(), plane.ravel()) / area for plane in planes], axis=1)
    deviation = np.sqrt(np.maximum(means[:, 4] - means[:, 3] ** 2, 0))
    features = np.column_stack((means[:, :3], deviation, means[:, 5:]))
    sides = [(region[1:], region[:-1]), (region[:, 1:], region[:, :-1])]
    pairs = np.concatenate([np.stack((a.ravel(), b.ravel()), axis=1) for a, b in sides])
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    code = region.ravel() * (N_CLASSES + 1) + target.ravel().astype(np.int64) + 1
    counts = np.bincount(code, minlength=n_regions * (N_CLASSES + 1)).reshape(n_regions, -1)
    return Regions(features.astype(np.float32), pairs.astype(np.int32), counts)


def cached_regions(data, cache, part):
    """Return the regions and names of all frames of a part, which are stored in a file after the first call."""
    path = Path(cache) / f"camvid_regions_{part}.npz"
    if not path.exists():
        bunch = load_camvid(Path(data) / "camvid", subset=part)
        frames = [cut(image, target) for image, target in zip(bunch.data, bunch.target, strict=True)]
        kept = {"names": np.array(bunch.names)}
        for name in ("features", "edges", "counts"):
            parts = [getattr(frame, name) for frame in frames]
            kept |= {name: np.concatenate(parts), f"n_{name}": np.array([len(part) for part in parts])}
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **kept)
    with np.load(path) as stored:
        columns = [
            np.split(stored[name], np.cumsum(stored[f"n_{name}"])[:-1]) for name in ("features", "edges", "counts")
        ]
        return [Regions(*frame) for frame in zip(*columns, strict=True)], stored["names"].tolist()


def sequence_and_number(name):
    """Return the sequence of a frame, and its number in the sequence."""
    sequence, _, number = name.rpartition("_")
    return sequence, int(re.sub(r"\D", "", number))


class Streets:
    """Training, validation and test frames.

    Parameters
    ----------
    data : path
        Folder that holds ``camvid/``.
    cache : path
        Folder for stored regions.
    n_frames : int or None
        Number of frames of each part, evenly spaced; None uses all frames.

    Attributes
    ----------
    X, X_val, X_test : list of Example
        Examples. Training examples only hold regions of known class.
    y, costs : list of ndarray
        Classes of the training regions, and their areas divided by the mean area.
    blocks : ndarray of shape (n_test,)
        Block of each test frame. Frames of a block are consecutive.
    sequences : ndarray of shape (n_test,)
        Sequence of each test frame.
    """

    def __init__(self, data, cache, n_frames=None):
        found = {part: _spread(*cached_regions(data, cache, part), n_frames) for part in PARTS}
        names = found["train"][1]
        found["test"] = _far_from(*found["test"], names)
        self._counts = {part: [frame.counts for frame in frames] for part, (frames, _) in found.items()}
        step = make_pipeline(PolynomialFeatures(2, include_bias=False), StandardScaler())
        step.fit(np.concatenate([frame.features[frame.labels >= 0] for frame in found["train"][0]]))
        examples = {
            part: [frame.example(step.transform(frame.features)) for frame in frames]
            for part, (frames, _) in found.items()
        }
        known = [labelled_part(*pair) for pair in zip(examples["train"], self._labels("train"), strict=True)]
        self.X, self.y = map(list, zip(*known, strict=True))
        areas = [counts[counts.argmax(axis=1) > 0, 1:].sum(axis=1) for counts in self._counts["train"]]
        mean = np.concatenate(areas).mean()
        self.costs = [area / mean for area in areas]
        self._parts = {"val": examples["val"], "test": examples["test"]}
        self.names = found["test"][1]
        places = [sequence_and_number(name) for name in self.names]
        self.sequences = np.array([sequence for sequence, _ in places])
        self.blocks = _blocks(self.sequences)

    def _labels(self, part):
        return [counts.argmax(axis=1).astype(np.int32) - 1 for counts in self._counts[part]]

    def wrong_and_total(self, part, model, inference):
        """Return the numbers of wrong pixels and of all pixels of known class, by frame."""
        labels = model.set_params(inference=inference).predict(self._parts[part])
        total = [int(counts[:, 1:].sum()) for counts in self._counts[part]]
        pairs = zip(self._counts[part], labels, strict=True)
        right = [int(counts[np.arange(len(found)), np.asarray(found, int) + 1].sum()) for counts, found in pairs]
        return np.subtract(total, right), np.array(total)

    def best_error(self):
        """Return the error of the best possible labels of regions of test frames."""
        counts = np.concatenate(self._counts["test"])[:, 1:]
        return 1 - counts.max(axis=1).sum() / counts.sum()


def _spread(frames, names, n_frames):
    if n_frames is None or n_frames >= len(frames):
        return frames, names
    chosen = np.linspace(0, len(frames) - 1, n_frames).astype(int)
    return [frames[i] for i in chosen], [names[i] for i in chosen]


def _far_from(frames, names, training_names):
    trained = [sequence_and_number(name) for name in training_names]
    kept = []
    for i, name in enumerate(names):
        sequence, number = sequence_and_number(name)
        if all(drive != sequence or abs(number - other) > NEAR for drive, other in trained):
            kept.append(i)
    return [frames[i] for i in kept], [names[i] for i in kept]


def _blocks(sequences):
    """Return the index of the block of each frame. Blocks are consecutive frames of one sequence."""
    blocks, before = np.empty(len(sequences), dtype=int), 0
    for sequence in dict.fromkeys(sequences.tolist()):
        own = np.flatnonzero(sequences == sequence)
        blocks[own] = before + np.arange(len(own)) // BLOCK
        before = blocks[own[-1]] + 1
    return blocks
