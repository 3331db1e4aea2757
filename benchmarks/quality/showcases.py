"""Compare good features alone and inside a field, on real data: the table and the pictures of the page of showcases.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/showcases.py --record docs/results/showcases/showcases.json
    python benchmarks/quality/showcases.py --tasks strokes letters    # two tasks
    python benchmarks/quality/showcases.py --table --record docs/results/showcases/showcases.json    # stored results

With ``--pictures docs/_static/showcases``, a picture of the first split of each task is drawn.

A classifier of single nodes and a field have the same features, the same training data, and no option chosen on test
data. "smoothed" are the classifier's probabilities, averaged over neighbours by a Gaussian whose width is the best for
out-of-fold probabilities of the training data. Each split is another division of people or images, or another random
seed. "exercises" needs seglearn and "volume" needs nilearn, which contain their data; all other tasks need the folder.
A run continues from its record. All tasks take about fifteen minutes of processor time.
"""

import argparse
import os
import time
import warnings
from itertools import islice
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
import scipy.sparse as sp
from scipy.ndimage import gaussian_filter
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from support.bundles import load_grabcut, load_ocr_letters, load_stanford_superpixels
from support.conll_features import sentences, token_features
from support.horse_pixels import horse_photographs, pixels_of
from support.record import read_record, write_record

from sklearn_crf import TRWCRF, MultiLabelField, RegressionTreeField
from sklearn_crf.metrics import entity_f1_score
from sklearn_crf.preprocessing import ClassifierScores, FilterBank, LocalImageFeatures, NodeTransformer
from sklearn_crf.rtf import JPEG, GaussianNoise

WIDTHS = (0, 0.5, 1, 1.5, 2, 3, 4, 6, 9)  # standard deviations of the Gaussian in nodes; steps to neighbours in graphs
N_SPLITS = 4


def folder(name):
    return Path(os.environ["SKLEARN_CRF_DATA"]) / name


def nodes(x):
    """Return the features of an example, which is an array or a graph."""
    return getattr(x, "node_features", x)


def rows(X):
    return np.concatenate([nodes(x).reshape(-1, nodes(x).shape[-1]) for x in X])


def flat(y):
    return np.concatenate([np.ravel(part) for part in y])


def accuracy(y, found, missing_label=None):
    known = flat(y) != missing_label
    return float(np.mean(flat(found)[known] == flat(y)[known]))


def chosen(parts, index):
    return [[part[i] for i in index] for part in parts]


class Clock:
    """Processor seconds of named parts of a task."""

    def __init__(self):
        self.seconds, self.start = {}, None

    def __call__(self, name):
        self.start = time.process_time()
        self.name = name
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.seconds[self.name] = self.seconds.get(self.name, 0.0) + time.process_time() - self.start


# Scores of a classifier, alone, smoothed and inside a field ---


def by_scores(classifier, X, y, X_test, missing_label=None, cv=3):
    """Return labels of the test examples by a classifier, its smoothed probabilities and a field, and CPU seconds."""
    clock = Clock()
    scores = ClassifierScores(classifier, cv=cv, passthrough=False, missing_label=missing_label)
    with clock("field"):
        # The field on the scores
        Z = scores.fit_transform(X, y)
        field = TRWCRF(missing_label=missing_label).fit(Z, y)
        Z_test = scores.transform(X_test)
        found = {"field": list(field.predict(Z_test))}
        # The field on the scores ends
    classes, known = scores.classes_, flat(y) != missing_label

    def smoothed(Z, width):
        return [classes[averaged(np.exp(nodes(z)), z, width).argmax(-1)] for z in Z]

    width = max(WIDTHS, key=lambda width: np.sum(flat(smoothed(Z, width))[known] == flat(y)[known]))
    found |= {"alone": smoothed(Z_test, 0), "smoothed": smoothed(Z_test, width)}
    return found, clock.seconds


def averaged(proba, x, width):
    """Return probabilities averaged over a lattice by a Gaussian, or over a graph by steps to neighbours."""
    if not hasattr(x, "node_features"):
        return gaussian_filter(proba, (*(width,) * (proba.ndim - 1), 0))
    tail, head = np.asarray(x.edges).T
    n_nodes, ones = len(proba), np.ones(len(tail))
    steps = sp.coo_array((ones, (tail, head)), shape=(n_nodes, n_nodes)).tocsr()
    steps = steps + steps.T + sp.eye_array(n_nodes)
    for _ in range(int(np.ceil(width))):
        proba = (steps @ proba) / steps.sum(axis=1)[:, np.newaxis]
    return proba


def boosting(**options):
    return HistGradientBoostingClassifier(max_iter=30, random_state=0, **options)


# Tasks: functions of the number of a split, which return scores, seconds and pictures by name ---


def exercises(split):
    from seglearn.datasets import load_watch

    bunch, rng = load_watch(), np.random.default_rng(0)
    people, sides, kinds = (np.asarray(bunch[name]).astype(int) for name in ("subject", "side", "y"))

    def by_second(series):  # (T, 6) at 50 Hz
        windows = series[: len(series) // 50 * 50].reshape(-1, 50, 6)
        return np.concatenate([windows.mean(1), windows.std(1), windows.min(1), windows.max(1)], axis=1)

    X, y, groups = [], [], []
    for person, side in sorted(set(zip(people, sides, strict=True))):
        parts = rng.permutation(np.flatnonzero((people == person) & (sides == side)))
        features = [by_second(bunch["X"][i]) for i in parts]
        X.append(np.concatenate(features))
        y.append(np.concatenate([np.repeat(kinds[i], len(x)) for i, x in zip(parts, features, strict=True)]))
        groups.append(person)
    train, test = list(GroupKFold(N_SPLITS).split(X, groups=groups))[split]
    (X, y), (X_test, y_test) = chosen((X, y), train), chosen((X, y), test)
    # The folds of the scores are of people too, because both arms of a person move alike.
    cv = list(GroupKFold(4).split(X, groups=[groups[i] for i in train]))
    found, seconds = by_scores(boosting(), X, y, X_test, cv=cv)
    strips = {
        name: np.repeat(labels[0][np.newaxis], 20, axis=0) for name, labels in [*found.items(), ("truth", y_test)]
    }
    return {name: accuracy(y_test, labels) for name, labels in found.items()}, seconds, strips


def volume(split):
    from nilearn.datasets import load_mni152_gm_template, load_mni152_template, load_mni152_wm_template

    loaders = load_mni152_template, load_mni152_gm_template, load_mni152_wm_template
    scan, grey, white = (np.asarray(load(resolution=3).dataobj) for load in loaders)
    tissue = np.where(scan > 0, np.stack([1 - grey - white, grey, white]).argmax(0), -1)
    noisy = scan / scan.max() + np.random.default_rng(split).normal(scale=0.2, size=scan.shape)
    window = np.stack(
        [np.roll(noisy, (i, j, k), (0, 1, 2)) for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1)], axis=-1
    )
    X = np.concatenate([window, gaussian_filter(noisy, 2)[..., np.newaxis]], axis=-1).astype(np.float32)
    fifth = scan.shape[1] // 5
    parts = [np.s_[:, k * fifth : (k + 1) * fifth] for k in range(5)]
    X, y = [X[part] for part in parts], [tissue[part] for part in parts]
    found, seconds = by_scores(boosting(), X[::2], y[::2], X[1::2], -1)
    level = np.s_[:, :, scan.shape[2] // 2]
    shown = {"scan with noise": noisy[parts[1]], **{name: labels[0] for name, labels in found.items()}, "truth": y[1]}
    shown = {name: np.where(y[1] < 0, 0, part)[level].T for name, part in shown.items()}
    return {name: accuracy(y[1::2], labels, -1) for name, labels in found.items()}, seconds, shown


def horses(split):
    bunch = horse_photographs()
    order = np.random.default_rng(split).permutation(len(bunch.data))[:40]
    X, y = pixels_of(bunch, order)
    found, seconds = by_scores(boosting(), list(X[:20]), list(y[:20]), list(X[20:]))
    shown = {"photograph": X[20, ..., 0], **{name: labels[0] for name, labels in found.items()}, "truth": y[20]}
    return {name: accuracy(y[20:], labels) for name, labels in found.items()}, seconds, shown


def superpixels(split):
    bunch = load_stanford_superpixels(folder("stanford_superpixels"))
    train, test = list(KFold(N_SPLITS, shuffle=True, random_state=0).split(bunch.data))[split]
    data = bunch.data, [labels.astype(int) for labels in bunch.target]
    (X, y), (X_test, y_test) = chosen(data, train), chosen(data, test)
    found, seconds = by_scores(boosting(max_features=0.2), X, y, X_test, -1)
    with np.load(folder("stanford_superpixels") / "superpixels.npz") as archive:
        regions = archive[archive.files[test[0]]]
    shown = {name: labels[0][regions] for name, labels in [*found.items(), ("truth", y_test)]}
    return {name: accuracy(y_test, labels, -1) for name, labels in found.items()}, seconds, shown


# The same features, alone and inside a field ---


def strokes(split):
    bunch, clock, scores, shown = load_grabcut(folder("grabcut")), Clock(), {}, None
    features = make_pipeline(
        LocalImageFeatures(("intensity", "mean"), scales=(2.0,)),
        NodeTransformer(make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), StandardScaler())),
    )
    for k in range(split, len(bunch.data), 2 * N_SPLITS):
        half = np.s_[::2, ::2]
        image, marks, truth = (part[k][half] for part in (bunch.data, bunch.scribbles, bunch.target))
        X, known = features.fit_transform(image[np.newaxis] / 255.0), marks >= 0
        with clock("alone"):
            alone = LogisticRegression(max_iter=1000).fit(X[0][known], marks[known])
            found = {"alone": alone.predict(X[0].reshape(-1, X.shape[-1])).reshape(truth.shape)}
        with clock("field"):
            found["field"] = TRWCRF(missing_label=-1).fit(X, marks[np.newaxis]).predict(X)[0]
        for name, labels in found.items():
            scores.setdefault(name, []).append(accuracy([truth], [labels], -1))
        shown = shown or {"strokes": marks, **found, "truth": truth}
    return {name: float(np.mean(own)) for name, own in scores.items()}, clock.seconds, shown


def letters(split):
    bunch, clock = load_ocr_letters(folder("ocr_letters")), Clock()
    order = np.random.default_rng(split).permutation(len(bunch.data))[:1500]

    def with_neighbours(word):  # pixels of a letter, of the letter before it and of the letter after it
        padded = np.pad(np.asarray(word, dtype=float), [(1, 1), (0, 0)])
        return np.concatenate([padded[:-2], padded[1:-1], padded[2:]], axis=1)

    X, y = [with_neighbours(bunch.data[i]) for i in order], [np.asarray(bunch.target[i]) for i in order]
    with clock("alone"):
        alone = LogisticRegression(C=0.1, max_iter=500).fit(rows(X[:500]), flat(y[:500]))
        found = {"alone": [alone.predict(x) for x in X[500:]]}
    with clock("field"):
        found["field"] = list(TRWCRF(C=0.1).fit(X[:500], y[:500]).predict(X[500:]))
    return {name: accuracy(y[500:], labels) for name, labels in found.items()}, clock.seconds, None


def chunks(split):
    def load(name, first):
        found = list(islice(sentences(name), first, first + 1000))
        return [[dict.fromkeys(own, 1) for own in token_features(s)] for s in found], [
            np.array([token[2] for token in s]) for s in found
        ]

    (train, y), (test, y_test), clock = load("train", 1000 * split), load("test", 0), Clock()
    vectorizer = DictVectorizer().fit([token for sentence in train for token in sentence])
    X, X_test = ([vectorizer.transform(sentence) for sentence in part] for part in (train, test))
    with clock("alone"):
        alone = LogisticRegression(max_iter=200).fit(sp.vstack(X), flat(y))
        found = {"alone": [alone.predict(x) for x in X_test]}
    with clock("field"):
        found["field"] = list(TRWCRF(weights="seen").fit(X, y).predict(X_test))
    return {name: entity_f1_score(y_test, labels) for name, labels in found.items()}, clock.seconds, None


def scenes(split):
    parts, clock, scores = np.load(folder("multilabel") / "scene.npz"), Clock(), {}
    X, Y = (np.concatenate([parts[f"{name}_train"], parts[f"{name}_test"]]) for name in "XY")
    order = np.random.default_rng(split).permutation(len(X))
    train, test = order[:1211], order[1211:]
    X = StandardScaler().fit(X[train]).transform(X).astype(np.float64)
    models = {
        "alone": MultiOutputClassifier(LogisticRegression(C=0.01, max_iter=500)),
        "field": MultiLabelField(TRWCRF(C=0.01, pairwise="ising")),
    }
    for name, model in models.items():
        with clock(name):
            found = model.fit(X[train], Y[train].astype(int)).predict(X[test])
        scores[name] = float(np.mean((found == Y[test]).all(axis=1)))
    return scores, clock.seconds, None


def restored(split, corruption):
    """Return the PSNR of boosted trees of single pixels and of a tree field, both with the same filter responses."""
    clock, rng, found = Clock(), np.random.default_rng(split), {}
    with np.load(folder("bsds500") / "bsds500_train_gray_half.npz") as archive:
        clean = [archive[name][:96, :120].astype(float) for name in archive.files[40 * split : 40 * split + 40]]
    with np.load(folder("bsds500") / "bsds500_test_gray_half.npz") as archive:
        truth = [archive[name].astype(float) for name in archive.files[::10]]
    given, given_test = ([np.asarray(corruption(i, rng), dtype=float) for i in images] for images in (clean, truth))
    bank = FilterBank("rfs").fit(given)
    X, X_test = bank.transform(given), bank.transform(given_test)
    with clock("alone"):
        wrong = flat([image - own for image, own in zip(clean, given, strict=True)])
        alone = HistGradientBoostingRegressor(max_iter=100, random_state=0).fit(rows(X), wrong)
        found["alone"] = [
            g + alone.predict(rows([x])).reshape(g.shape) for g, x in zip(given_test, X_test, strict=True)
        ]
    with clock("field"):
        field = RegressionTreeField(filter_bank=None, random_state=0).fit(X, [image[..., None] for image in clean])
        found["field"] = [image[..., 0] for image in field.predict(X_test)]

    def psnr(images):
        return [10 * np.log10(255**2 / np.mean((a - b) ** 2)) for a, b in zip(images, truth, strict=True)]

    found["given"] = given_test
    shown = {name: images[3] for name, images in [*found.items(), ("truth", truth)]}
    return {name: float(np.mean(psnr(images))) for name, images in found.items()}, clock.seconds, shown


def noise(split):
    return restored(split, GaussianNoise(25))


def blocks(split):
    return restored(split, JPEG(10))


# Table and pictures ---

TASKS = {
    "exercises": (exercises, "seven exercises, each second of a watch", "trees on statistics of a second"),
    "letters": (letters, "letters of handwritten words", "logistic regression on pixels of three letters"),
    "chunks": (chunks, "chunks of CoNLL-2000, F1", "logistic regression on windows of five words"),
    "strokes": (strokes, "photographs from strokes", "logistic regression on colours, means and products"),
    "horses": (horses, "pixels of horses", "trees on brightness, means, gradient and position"),
    "superpixels": (superpixels, "superpixels of scenes", "trees on 519 features"),
    "volume": (volume, "tissues of a brain, with noise", "trees on windows of 3 x 3 x 3 voxels and a mean"),
    "scenes": (scenes, "photographs with several labels", "a logistic regression for each label, 294 features"),
    "noise": (noise, "photographs with noise of 25, dB", "trees on 38 filter responses"),
    "blocks": (blocks, "photographs, JPEG of quality 10, dB", "trees on 38 filter responses"),
}


def table(record):
    """Return the rows of the table, headings first."""
    found = [["task", "alone", "alone, smoothed", "in a field", "gain", "splits better", "CPU s"]]
    for name, (_, task, features) in TASKS.items():
        splits = record.get(name, [])
        if not splits:
            continue
        scores = {key: np.array([s["scores"][key] for s in splits]) for key in splits[0]["scores"]}
        in_db = scores["alone"].mean() > 1
        unit, form = (1, ".2f") if in_db else (100, ".1f")
        cells = {key: f"{unit * own.mean():{form}}" for key, own in scores.items()}
        gains = unit * (scores["field"] - scores["alone"])
        seconds = np.mean([s["seconds"]["field"] for s in splits])
        found.append(
            [
                f"{task}: {features}",
                cells["alone"],
                cells.get("smoothed", ""),
                cells["field"],
                f"{gains.mean():+{form}} ± {gains.std(ddof=1) if len(gains) > 1 else 0:{form}}",
                f"{np.sum(gains > 0)} of {len(gains)}",
                f"{seconds:.1f}",
            ]
        )
    return found


def draw(name, shown, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    order = [key for key in shown if key not in ("alone", "smoothed", "field", "truth")]
    order += [key for key in ("alone", "smoothed", "field", "truth") if key in shown]
    is_tall = name == "exercises"
    shape = (len(order), 1) if is_tall else (1, len(order))
    size = (7, 0.5 * len(order)) if is_tall else (2.3 * len(order), 2.1)
    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained")
    labels = [np.asarray(shown[key]) for key in order if key in ("alone", "field", "truth")]
    is_grey = any(part.dtype.kind == "f" for part in labels)
    top = 255 if is_grey else max(part.max() for part in labels)
    for ax, key in zip(axes, order, strict=True):
        picture = np.asarray(shown[key])
        options = {"cmap": "gray"} if is_grey or picture.dtype.kind == "f" else {"cmap": "viridis"}
        if is_grey or picture.dtype.kind != "f":
            options |= {"vmin": 0 if is_grey or picture.min() >= 0 else -1, "vmax": top}
        ax.imshow(picture, interpolation="nearest", aspect="auto" if is_tall else "equal", **options)
        ax.set(xticks=[], yticks=[])
        title = {"field": "in a field"}.get(key, key)
        if is_tall:
            ax.set_ylabel(title, rotation=0, ha="right", va="center")
        else:
            ax.set_title(title, fontsize=10)
    path.mkdir(parents=True, exist_ok=True)
    figure.savefig(path / f"{name}.png", dpi=80)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--splits", type=int, default=N_SPLITS, choices=range(1, N_SPLITS + 1))
    parser.add_argument("--record", type=Path, help="file of results, from which a run continues")
    parser.add_argument("--pictures", type=Path, help="folder for a picture of the first split of each task")
    parser.add_argument("--table", action="store_true", help="only print stored results")
    arguments = parser.parse_args()
    record = read_record(arguments.record, {})
    for name in arguments.tasks if not arguments.table else ():
        for split in range(len(record.get(name, [])), arguments.splits):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scores, seconds, shown = TASKS[name][0](split)
            record = read_record(arguments.record, record)
            record.setdefault(name, []).append({"scores": scores, "seconds": seconds})
            write_record(arguments.record, record)
            print(name, split, {key: round(value, 4) for key, value in scores.items()}, flush=True)
            if shown and split == 0 and arguments.pictures:
                draw(name, shown, arguments.pictures)
    if arguments.record:
        write_record(arguments.record.with_name("table_scores.json"), table(record))
    for row in table(record):
        print(" | ".join(row))


if __name__ == "__main__":
    main()
