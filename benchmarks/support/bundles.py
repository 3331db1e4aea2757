"""Loaders of the data sets that benchmarks use."""

from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from sklearn_crf.encoding import Example, make_object_array


def _open(folder, name):
    path = Path(folder) / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: folder must be one that holds {name}.")
    return np.load(path, allow_pickle=False)


def _arrays(folder, name, keys=None):
    """Return the names and arrays of a file with one array per example."""
    with _open(folder, name) as archive:
        keys = list(archive.files) if keys is None else keys
        missing = [key for key in keys if key not in archive.files]
        if missing:
            raise ValueError(f"{Path(folder) / name} holds no array {missing[0]!r}.")
        return keys, [archive[key] for key in keys]


def _recoded(labels, new):
    """Return labels replaced by new labels from a dict, as int8, and -1 for other labels."""
    table = np.full(256, -1, dtype=np.int8)
    for old, value in new.items():
        table[old] = value
    return table[labels]


def load_weizmann_horses(folder, *, n_train=200):
    """Load grey images of horses and masks of the animals, for binary segmentation of images of many sizes.

    The folder holds ``gray.npz`` and ``mask.npz``, with one uint8 array of shape (H, W) per image and the same keys.
    Masks are 1 on the horse.

    Returns a Bunch: ``data``, object array of (H, W, 1) uint8; ``target``, object array of (H, W) uint8, 0 or 1;
    ``names``; ``train`` and ``test``, index arrays.
    """
    names, images = _arrays(folder, "gray.npz")
    _, masks = _arrays(folder, "mask.npz", names)
    index = np.arange(len(names))
    return Bunch(
        data=make_object_array([image[..., np.newaxis] for image in images]),
        target=make_object_array(masks),
        target_names=["background", "horse"],
        names=names,
        train=index[:n_train],
        test=index[n_train:],
    )


def load_grabcut(folder, *, scribbles="more"):
    """Load photographs of single objects with strokes of users, for interactive binary segmentation.

    The folder holds ``images.npz`` (H, W, 3), ``trimap.npz`` (H, W; 255 object, 0 background, 128 boundary) and
    ``scribbles1.npz``, ``scribbles2.npz`` (H, W; 0 none, 1 background, 2 object), uint8 under the same keys.

    Returns a Bunch: ``data``, object array of (H, W, 3) uint8; ``target`` and ``scribbles``, object arrays of (H,
    W) int8, 1 on the object, 0 on background, -1 on the boundary or outside strokes; ``names``.
    """
    if scribbles not in ("few", "more"):
        raise ValueError(f"scribbles must be 'few' or 'more', got {scribbles!r}.")
    names, images = _arrays(folder, "images.npz")
    _, trimaps = _arrays(folder, "trimap.npz", names)
    _, strokes = _arrays(folder, "scribbles1.npz" if scribbles == "few" else "scribbles2.npz", names)
    return Bunch(
        data=make_object_array(images),
        target=make_object_array([_recoded(trimap, {0: 0, 255: 1}) for trimap in trimaps]),
        scribbles=make_object_array([_recoded(marks, {1: 0, 2: 1}) for marks in strokes]),
        target_names=["background", "object"],
        names=names,
    )


def load_camvid(folder, *, subset="train"):
    """Load frames of a drive through town, for scene labelling with eleven classes.

    The folder holds ``camvid_train.npz``, ``camvid_val.npz``, ``camvid_test.npz``, each with ``images`` (N, 90,
    120, 3) and ``labels`` (N, 90, 120), uint8, label 11 for unlabelled pixels.

    Returns a Bunch: ``data`` (N, 90, 120, 3) uint8; ``target`` (N, 90, 120) int8, 0 to 10, -1 for unlabelled pixels;
    ``target_names``; ``names``.
    """
    _require_subset(subset, ("train", "val", "test"))
    names = ["sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "bicyclist"]
    _, (images, labels, frames) = _arrays(folder, f"camvid_{subset}.npz", ["images", "labels", "ids"])
    return Bunch(
        data=images,
        target=_recoded(labels, {k: k for k in range(len(names))}),
        target_names=names,
        names=frames.tolist(),
    )


def load_stanford_superpixels(folder):
    """Load outdoor scenes as graphs of superpixels with features, for labelling of irregular graphs.

    The folder holds, with one array per image under the same keys, ``features.npz`` (n, 519), ``edges.npz`` (m, 2),
    ``segment_labels.npz`` (n,), ``superpixels.npz`` (H, W) and ``pixel_labels.npz`` (H, W).

    Returns a Bunch: ``data``, object array of :class:`~sklearn_crf.Example` with float32 features; ``target``,
    object array of (n,) int8, -1 for unknown labels; ``superpixels``, the node of each pixel; ``pixel_target``;
    ``target_names``; ``names``.
    """
    names, features = _arrays(folder, "features.npz")
    _, edges = _arrays(folder, "edges.npz", names)
    labels, nodes, pixels = (
        _arrays(folder, f"{name}.npz", names)[1] for name in ("segment_labels", "superpixels", "pixel_labels")
    )
    return Bunch(
        data=make_object_array(
            [Example(x.astype(np.float32), pairs) for x, pairs in zip(features, edges, strict=True)]
        ),
        target=make_object_array(labels),
        superpixels=make_object_array(nodes),
        pixel_target=make_object_array(pixels),
        target_names=["sky", "tree", "road", "grass", "water", "building", "mountain", "foreground"],
        names=names,
    )


def load_ocr_letters(folder):
    """Load handwritten words of segmented letters, for labelling of chains.

    The folder holds ``ocr_letters.npz`` with ``images`` (n, 16, 8) and ``labels`` (n,), uint8, ``word_ptr``
    (n_words + 1,) and ``fold0`` (n_words,) bool.

    Returns a Bunch: ``data``, object array of (T, 128) uint8; ``target``, object array of (T,) of str, ``"a"`` to
    ``"z"``; ``train``, the customary small training set, and ``test``, index arrays.
    """
    _, (images, labels, ptr, fold) = _arrays(folder, "ocr_letters.npz", ["images", "labels", "word_ptr", "fold0"])
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))[labels]
    return Bunch(
        data=make_object_array(np.split(images.reshape(len(images), -1), ptr[1:-1])),
        target=make_object_array(np.split(letters, ptr[1:-1])),
        train=np.flatnonzero(fold),
        test=np.flatnonzero(~fold),
    )


def load_snakes(folder, *, subset="train"):
    """Load snakes on a small grid whose colours show their next direction, for labelling with directed interactions.

    The folder holds ``snakes.npz`` with uint8 arrays ``train_000_image`` (H, W, 3), ``train_000_label`` (H, W) and so
    on.

    Returns a Bunch: ``data``, object array of (H, W, 3) uint8; ``target``, object array of (H, W) uint8, 0 for
    background, then the position on the snake.
    """
    _require_subset(subset, ("train", "test"))
    with _open(folder, "snakes.npz") as archive:
        names = sorted(key.removesuffix("_image") for key in archive.files if key.endswith("_image"))
        names = [name for name in names if name.startswith(subset)]
        images, labels = ([archive[f"{name}_{kind}"] for name in names] for kind in ("image", "label"))
        return Bunch(data=make_object_array(list(images)), target=make_object_array(list(labels)), names=names)


def _require_subset(subset, choices):
    if subset not in choices:
        raise ValueError(f"subset must be one of {choices}, got {subset!r}.")
