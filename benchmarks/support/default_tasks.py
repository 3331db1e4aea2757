"""Small tasks with every kind of data for ``quality/defaults.py``, drawn by a seed."""

import gzip
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.spatial import Delaunay
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_multilabel_classification
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from sklearn_crf import Example
from sklearn_crf.datasets import make_noisy_shapes
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import GibbsSampler
from sklearn_crf.models import PairwiseModel
from sklearn_crf.preprocessing import SequenceVectorizer
from support.conll_features import sentences, token_features
from support.horse_pixels import horse_photographs, pixels_of
from support.picture_tasks import characters


class Task(NamedTuple):
    """Training and test examples."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    missing_label: Any = None


def _archive(*names):
    return np.load(Path(os.environ["SKLEARN_CRF_DATA"]).joinpath(*names))


# Chains ------------------------------------------------------------------------------------------------------------


def letters(rng, n_train):
    """Return handwritten words, with 128 pixels per letter and 26 classes."""
    archive = _archive("ocr_letters", "ocr_letters.npz")
    ends = archive["word_ptr"][1:-1]
    X, y = np.split(archive["images"].reshape(-1, 128).astype(float), ends), np.split(archive["labels"], ends)
    chosen = rng.permutation(len(X))
    train, test = chosen[:n_train], chosen[n_train : n_train + 300]
    return Task([X[i] for i in train], [y[i] for i in train], [X[i] for i in test], [y[i] for i in test])


def tagged_text(rng, n_train, column):
    """Return sentences of CoNLL-2000: chunks with CRFsuite's features, or parts of speech with features of words."""
    read = list(sentences("train"))
    read = [read[i] for i in rng.permutation(len(read))[: n_train + 200]]
    if column == 1:
        names = [[_word_features(sentence, t) for t in range(len(sentence))] for sentence in read]
    else:
        names = [token_features(sentence) for sentence in read]
    vectorizer = SequenceVectorizer().fit(names[:n_train])
    y = [np.array([token[column] for token in sentence]) for sentence in read]
    X, X_test = vectorizer.transform(names[:n_train]), vectorizer.transform(names[n_train:])
    return Task(X, y[:n_train], X_test, y[n_train:])


def _word_features(sentence, t):
    word = sentence[t][0]
    names = [f"w={word.lower()}", f"end={word[-3:]}", f"start={word[:2]}", f"upper={word[0].isupper()}"]
    return [*names, f"digit={any(map(str.isdigit, word))}"]


def stress(rng, n_train):
    """Return words with five kinds of stress marks of letters, and features of each letter and its neighbours."""
    with gzip.open(Path(os.environ["SKLEARN_CRF_DATA"]) / "g2p" / "nettalk.txt.gz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    rows = [lines[i] for i in rng.permutation(len(lines))[: n_train + 400]]
    names = [
        [[f"{k}{word[t + k]}" for k in (-1, 0, 1) if 0 <= t + k < len(word)] for t in range(len(word))]
        for word, *_ in rows
    ]
    vectorizer = SequenceVectorizer().fit(names[:n_train])
    y = [np.array(list(marks)) for _, _, marks, _ in rows]
    X, X_test = vectorizer.transform(names[:n_train]), vectorizer.transform(names[n_train:])
    return Task(X, y[:n_train], X_test, y[n_train:])


def hidden_states(rng, n_train, transitions, n_features=3, noise=1.2, length=40):
    """Return chains of states drawn from a Markov chain, observed with Gaussian noise."""
    transitions = np.asarray(transitions) / np.sum(transitions, axis=1, keepdims=True)
    means = rng.normal(size=(len(transitions), n_features))
    y = np.empty((n_train + 60, length), dtype=int)
    y[:, 0] = rng.integers(len(transitions), size=len(y))
    steps = np.cumsum(transitions, axis=1)
    for t in range(1, length):
        y[:, t] = (rng.random((len(y), 1)) > steps[y[:, t - 1]]).sum(axis=1)
    X = means[y] + rng.normal(scale=noise, size=(*y.shape, n_features))
    return Task(X[:n_train], y[:n_train], X[n_train:], y[n_train:])


STICKY = np.eye(4) * 12 + 1
ALTERNATING = 1 + 8 * np.roll(np.eye(3), 1, axis=1) - np.eye(3) * 0.9


# Lattices ----------------------------------------------------------------------------------------------------------


def noisy_lattices(rng, n_train, shape, n_classes, noise=0.8, coupling=1.0, connectivity=1, n_features=2, scale=1.0):
    """Return labels drawn from a Potts field, observed with Gaussian noise."""
    graph = lattice(shape, connectivity)
    model = PairwiseModel(graph, np.zeros((graph.n_nodes, n_classes)), coupling * np.eye(n_classes)[None])
    n = n_train + 8
    seed = int(rng.integers(2**31 - 1))
    y = GibbsSampler(burn_in=60).sample(model, n, random_state=seed).reshape(n, *shape)
    means = rng.normal(size=(n_classes, n_features)) * 1.2
    X = scale * (means[y] + rng.normal(scale=noise, size=(*y.shape, n_features)))
    return Task(X[:n_train], y[:n_train], X[n_train:], y[n_train:])


def regions(rng, n_train, shape, n_classes, noise=1.0):
    """Return smooth regions, in which the label of a node is the largest of several blurred noise images."""
    n = n_train + 8
    smooth = gaussian_filter(rng.normal(size=(n, n_classes, *shape)), (0, 0, *[2.5] * len(shape)))
    y = smooth.argmax(axis=1)
    X = np.eye(n_classes)[y] + rng.normal(scale=noise, size=(*y.shape, n_classes))
    return Task(X[:n_train], y[:n_train], X[n_train:], y[n_train:])


def squares(rng, noise=0.7):
    """Return ten training and ten test images of one square each."""
    y = np.zeros((20, 16, 16), dtype=int)
    for image in y:
        top, left = rng.integers(2, 7, size=2)
        image[top : top + 7, left : left + 7] = 1
    X = (y + rng.normal(scale=noise, size=y.shape))[..., np.newaxis]
    return Task(X[:10], y[:10], X[10:], y[10:])


def shapes(rng, noise):
    """Return noisy silhouettes at half size."""
    X, y, _ = make_noisy_shapes(noise, 6, random_state=int(rng.integers(2**31 - 1)))
    X, y = X[:, ::2, ::2], y[:, ::2, ::2]
    chosen = rng.permutation(len(X))
    return Task(X[chosen[:8]], y[chosen[:8]], X[chosen[8:]], y[chosen[8:]])


def horses(rng, n_train, shape):
    """Return reduced photographs of horses with eight unscaled features per pixel."""
    bunch = horse_photographs()
    train, test = rng.permutation(bunch.train)[:n_train], rng.permutation(bunch.test)[:20]
    step = 64 // shape[0]
    X, y = pixels_of(bunch, train)
    X_test, y_test = pixels_of(bunch, test)
    return Task(X[:, ::step, ::step], y[:, ::step, ::step], X_test[:, ::step, ::step], y_test[:, ::step, ::step])


# Sky, building, road, tree, car. Pixels of other classes are unlabelled.
_STREET_CLASSES = (0, 1, 3, 5, 8)


def streets(rng, n_train):
    """Return street frames at a third of their size, with colours and positions, and labels of five classes."""
    parts = []
    for part, n in (("train", n_train), ("test", 12)):
        archive = _archive("camvid", f"camvid_{part}.npz")
        chosen = rng.permutation(len(archive["images"]))[:n]
        colours = archive["images"][chosen][:, 1::3, 1::3].astype(float)
        labels = archive["labels"][chosen][:, 1::3, 1::3].astype(int)
        places = np.meshgrid(*(np.linspace(0, 1, length) for length in labels.shape[1:]), indexing="ij")
        places = np.broadcast_to(np.stack(places, axis=-1), (*labels.shape, 2))
        parts += [np.concatenate([colours, places], axis=-1), np.where(np.isin(labels, _STREET_CLASSES), labels, -1)]
    return Task(*parts, missing_label=-1)


def strokes(rng):
    """Return a photograph, labelled by strokes on object and background for training, and completely for testing."""
    images, truths, marks = (_archive("grabcut", f"{name}.npz") for name in ("images", "trimap", "scribbles2"))
    key = images.files[int(rng.integers(len(images.files)))]
    image, truth, mark = (part[key][::4, ::4] for part in (images, truths, marks))
    y = mark.astype(int)[None] - 1
    y_test = np.where(truth == 128, -1, (truth == 255).astype(int))[None]
    X = image[None].astype(float)
    return Task(X, y, X, y_test, missing_label=-1)


def hidden_characters(rng):
    """Return handwritten characters whose middle is hidden by a box, and labels of ink."""
    X, y = characters("train", 120)
    chosen = rng.permutation(len(X))
    X, y = X[chosen, ::2, ::2], y[chosen, ::2, ::2]
    return Task(X[:20], y[:20], X[20:40], y[20:40])


# Graphs ------------------------------------------------------------------------------------------------------------


def superpixels(rng, n_train):
    """Return superpixels of scenes, with features from twenty principal components of roots of histograms."""
    features, edges, labels = (_archive("stanford_superpixels", f"{name}.npz") for name in _SCENE_FILES)
    keys = [features.files[i] for i in rng.permutation(len(features.files))[: n_train + 10]]
    rows = [np.sqrt(np.maximum(features[key].astype(float)[:, :400], 0)) for key in keys]
    reduction = PCA(20, random_state=0).fit(np.concatenate(rows[:n_train]))
    X = [
        Example(np.hstack([reduction.transform(x), features[key][:, 400:403], features[key][:, 454:455]]), edges[key])
        for x, key in zip(rows, keys, strict=True)
    ]
    y = [labels[key].astype(int) for key in keys]
    return Task(X[:n_train], y[:n_train], X[n_train:], y[n_train:], missing_label=-1)


_SCENE_FILES = "features", "edges", "segment_labels"


def friends(rng, n_nodes, n_classes=3):
    """Return two social graphs, for training and testing: friends mostly share a group, and features are weak."""
    means = rng.normal(size=(n_classes, 5))
    parts = []
    for _ in range(2):
        y = rng.integers(n_classes, size=n_nodes)
        pairs = rng.integers(n_nodes, size=(12 * n_nodes, 2))
        likely = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 0.35, 0.03)
        pairs = np.unique(np.sort(pairs[rng.random(len(pairs)) < likely], axis=1), axis=0)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        parts += [[Example(means[y] + rng.normal(scale=2.0, size=(n_nodes, 5)), pairs)], [y]]
    return Task(*parts)


def planar_graphs(rng, n_train, scale):
    """Return Delaunay graphs of points in the plane whose labels form regions. ``scale`` multiplies the features."""
    X, y = [], []
    for _ in range(n_train + 8):
        places = rng.random((150, 2))
        centres, kinds = rng.random((12, 2)), rng.integers(3, size=12)
        labels = kinds[np.argmin(((places[:, None] - centres) ** 2).sum(axis=-1), axis=1)]
        triangles = Delaunay(places).simplices
        pairs = np.unique(np.sort(np.concatenate([triangles[:, [a, b]] for a, b in ((0, 1), (1, 2), (0, 2))])), axis=0)
        features = np.eye(3)[labels] + rng.normal(scale=0.9, size=(150, 3))
        X.append(Example(scale * features, pairs))
        y.append(labels)
    return Task(X[:n_train], y[:n_train], X[n_train:], y[n_train:])


# Several labels, and rows ------------------------------------------------------------------------------------------


def scene_labels(rng, n_train):
    """Return features of photographs and six labels of scenery, of which several may be present."""
    archive = _archive("multilabel", "scene.npz")
    chosen = rng.permutation(len(archive["X_train"]))[:n_train]
    test = rng.permutation(len(archive["X_test"]))[:600]
    return Task(
        archive["X_train"][chosen], archive["Y_train"][chosen], archive["X_test"][test], archive["Y_test"][test]
    )


def drawn_labels(rng, n_train, n_labels):
    """Return random bags of words with several labels."""
    seed = int(rng.integers(2**31 - 1))
    X, y = make_multilabel_classification(n_train + 500, n_classes=n_labels, n_labels=3, random_state=seed)
    return Task(X[:n_train], y[:n_train], X[n_train:], y[n_train:])


def plain_rows(rng, load):
    """Return a data set of scikit-learn, half of it for testing."""
    X, y = load(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=int(rng.integers(2**31 - 1)))
    return Task(X, y, X_test, y_test)


# Kind of data and function that draws a task, by name. Labels of neighbours are dependent, except in rows.
TASKS = {
    "letters, 60 words": ("chains", lambda rng: letters(rng, 60)),
    "letters, 300 words": ("chains", lambda rng: letters(rng, 300)),
    "sticky states": ("chains", lambda rng: hidden_states(rng, 20, STICKY)),
    "alternating states": ("chains", lambda rng: hidden_states(rng, 20, ALTERNATING)),
    "chunks, 100 sentences": ("text", lambda rng: tagged_text(rng, 100, 2)),
    "parts of speech, 200 sentences": ("text", lambda rng: tagged_text(rng, 200, 1)),
    "stress, 300 words": ("text", lambda rng: stress(rng, 300)),
    "squares": ("images", squares),
    "shapes, Gaussian noise": ("images", lambda rng: shapes(rng, "gaussian")),
    "shapes, bimodal noise": ("images", lambda rng: shapes(rng, "bimodal")),
    "Potts, 2 classes": ("images", lambda rng: noisy_lattices(rng, 8, (24, 24), 2, 1.5, 0.8)),
    "Potts, 4 classes": ("images", lambda rng: noisy_lattices(rng, 8, (24, 24), 4)),
    "Potts, 8 classes": ("images", lambda rng: noisy_lattices(rng, 8, (24, 24), 8, 1.0, 1.4)),
    "chessboards": ("images", lambda rng: noisy_lattices(rng, 8, (24, 24), 2, 1.5, -0.8)),
    "regions, 5 classes": ("images", lambda rng: regions(rng, 6, (24, 24), 5)),
    "horses, 8 of 32 x 40": ("images", lambda rng: horses(rng, 8, (32, 40))),
    "horses, 20 of 64 x 80": ("images", lambda rng: horses(rng, 20, (64, 80))),
    "streets, 10 of 30 x 40": ("images", lambda rng: streets(rng, 10)),
    "strokes on a photograph": ("images", strokes),
    "hidden characters": ("images", hidden_characters),
    "volumes, 2 classes": ("volumes", lambda rng: regions(rng, 3, (10, 12, 12), 2)),
    "volumes, 4 classes": ("volumes", lambda rng: regions(rng, 3, (10, 12, 12), 4)),
    "superpixels, 10 scenes": ("graphs", lambda rng: superpixels(rng, 10)),
    "friends, 480 nodes": ("graphs", lambda rng: friends(rng, 480)),
    "planar graphs": ("graphs", lambda rng: planar_graphs(rng, 8, 1.0)),
    "planar graphs in other units": ("graphs", lambda rng: planar_graphs(rng, 8, 1000.0)),
    "scene labels": ("labels", lambda rng: scene_labels(rng, 400)),
    "5 drawn labels": ("labels", lambda rng: drawn_labels(rng, 300, 5)),
    "10 drawn labels": ("labels", lambda rng: drawn_labels(rng, 300, 10)),
    "digits": ("rows", lambda rng: plain_rows(rng, load_digits)),
    "wine": ("rows", lambda rng: plain_rows(rng, load_wine)),
    "breast cancer": ("rows", lambda rng: plain_rows(rng, load_breast_cancer)),
    "iris": ("rows", lambda rng: plain_rows(rng, load_iris)),
}


def drawn(name, seed):
    """Return the kind of data of a task, and its data."""
    kind, draw = TASKS[name]
    return kind, draw(np.random.default_rng([seed, list(TASKS).index(name)]))
