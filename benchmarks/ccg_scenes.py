"""Table 1 and Figure 2 of Vickrey et al. 2010 on region graphs: every learner, cross-validated, pixel-wise error.

    python benchmarks/ccg_scenes.py run [--folds 10] [--learners PL "CCG(ICM+PL)"] [--results FILE]
    python benchmarks/ccg_scenes.py table [--results FILE]
    python benchmarks/ccg_scenes.py strengths [--fold 0] [--learners PL "CCG(ICM+PL)"] [--results FILE]
    python benchmarks/ccg_scenes.py curves [--fold 0] [--results FILE]
    python benchmarks/ccg_scenes.py figure [--results FILE] [--picture FILE]

99 street scenes of the Stanford Background set (``stanford_superpixels`` in the folder that SKLEARN_CRF_DATA names),
about 490 superpixels each; the paper had 715 images and larger regions. Inside each fold, features are scaled and
reduced to their principal components. The cost of a region is its area. Results are kept after every fit, so that a run
goes on where it stopped. C of every learner but contrastive divergence, which has none, is chosen on images held out of
the training part of each fold.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from _record import read_record, write_record
from _scene_learners import LEARNERS, ORDER, PAPER, RECORDED, WithChosenC, make_learner
from scipy.stats import ttest_1samp
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_crf import Example
from sklearn_crf.datasets import load_stanford_superpixels
from sklearn_crf.preprocessing import NodeTransformer

N_FOLDS, N_COMPONENTS = 10, 30
STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)
# Labelled by max-product too, to see what an empty start does to it, and which inference suits whom.
MAP_TOO = ("PL", "MM(ICM-MV)", "CCG(ICM)", "CCG(ICM+PL)", "CCG(ICM-MV)", "CCG(ICM-MV+PL)", "CCG(MP)", "CCG(MP+PL)",
           "CCG(MP-MV)", "CCG(MP-MV+PL)")  # fmt: skip
MEAN_COLOUR = slice(400, 403)


def edge_features(x):
    """A constant, and how much the mean colours differ."""
    features, (tail, head) = x.node_features, x.edges.T
    colour = np.abs(features[tail, MEAN_COLOUR] - features[head, MEAN_COLOUR]).mean(axis=1) / 64
    return np.stack((np.ones(len(tail)), colour), axis=1).astype(features.dtype)


class Scenes:
    """Graphs, labels, and areas of regions by true pixel label."""

    def __init__(self):
        data = load_stanford_superpixels(Path(os.environ["SKLEARN_CRF_DATA"]) / "stanford_superpixels")
        self.n_classes = len(data.target_names)
        self.X = [Example(x.node_features, x.graph, edge_features(x)) for x in data.data]
        self.y = [np.asarray(labels) for labels in data.target]
        self.pixels = []
        for regions, truth, x in zip(data.superpixels, data.pixel_target, self.X, strict=True):
            known = truth >= 0
            key = regions[known].astype(np.int64) * self.n_classes + truth[known]
            counts = np.bincount(key, minlength=x.n_nodes * self.n_classes)
            self.pixels.append(counts.reshape(x.n_nodes, self.n_classes))

    def training(self, i):
        """Graph, labels and areas of the regions of known label."""
        known = self.y[i] >= 0
        number = np.cumsum(known) - 1
        x = self.X[i]
        inside = known[x.edges].all(axis=1)
        graph = Example(x.node_features[known], number[x.edges[inside]], x.edge_features[inside])
        return graph, self.y[i][known], self.pixels[i].sum(axis=1)[known].astype(np.float64)

    def error(self, i, labels):
        """Wrong and all pixels of an image."""
        counts = self.pixels[i]
        return counts.sum() - counts[np.arange(len(labels)), labels].sum(), counts.sum()

    def error_rate(self, images, labels):
        """Of all pixels, and of those of each image."""
        wrong, total = np.array([self.error(i, part) for i, part in zip(images, labels, strict=True)]).T
        return float(wrong.sum() / total.sum()), (wrong / total).tolist()


def reduction():
    """A step fitted on the training part of each fold."""
    inner = make_pipeline(StandardScaler(), PCA(N_COMPONENTS, whiten=True, random_state=0))
    return NodeTransformer(inner)


class Fold:
    """Images of one fold with reduced features."""

    def __init__(self, scenes, number):
        self.scenes = scenes
        folds = list(KFold(N_FOLDS, shuffle=True, random_state=0).split(scenes.X))
        self.train, self.test = folds[number]
        self.X, self.y, self.areas = map(list, zip(*(scenes.training(i) for i in self.train), strict=True))
        step = reduction().fit(self.X)
        self.X = list(step.transform(self.X))
        self.X_test = list(step.transform([scenes.X[i] for i in self.test]))
        mean = np.concatenate(self.areas).mean()
        self.costs = [area / mean for area in self.areas]

    def fit(self, name, C=None):
        """The fitted learner, seconds of processor time, and what it chose; with a C it chooses none."""
        before = time.process_time()
        model, chosen = make_learner(name, self) if C is None else (LEARNERS[name].make(C, self.costs), {})
        model.fit(self.X, self.y)
        return model, time.process_time() - before, chosen

    def error(self, model, inference="icm"):
        model.set_params(inference=inference)
        return self.scenes.error_rate(self.test, model.predict(self.X_test))


def run(options):
    scenes = Scenes()
    for number in range(options.folds):
        fold = None
        for name in options.learners:
            key = f"{name} fold {number}"
            if key in read_record(options.results, {}):
                continue
            fold = fold or Fold(scenes, number)
            model, seconds, chosen = fold.fit(name)
            error, of_images = fold.error(model)
            entry = {"error": error, "images": of_images, "seconds": seconds, "rounds": getattr(model, "n_rounds_", 0)}
            if name in MAP_TOO:
                entry["error_max_product"], _ = fold.error(model, "max_product")
            # Another process may have written meanwhile.
            write_record(options.results, read_record(options.results, {}) | {key: entry | chosen})
            print(
                f"{key}: {entry['error']:.4f} after {seconds:.0f} s, {entry['rounds']} rounds {chosen or ''}",
                flush=True,
            )


def errors_of(results, name, field="error"):
    """Folds and their errors."""
    found = {}
    for number in range(N_FOLDS):
        entry = results.get(f"{name} fold {number}", {})
        if field in entry:
            found[number] = entry[field]
    return found


def lower_bound():
    scenes = Scenes()
    best = [counts.argmax(axis=1) for counts in scenes.pixels]
    return scenes.error_rate(range(len(best)), best)[0]


def table(options):
    results = read_record(options.results, {})
    print("learner             error    std folds max-product  seconds  paper")
    print(f"{'Lower bound':18s} {lower_bound():6.3f} {'':6s} {'':5s} {'':11s} {'':8s} {0.120:6.3f}")
    for name in ORDER:
        errors = list(errors_of(results, name).values())
        if not errors:
            continue
        spread = f"{np.std(errors, ddof=1):6.3f}" if len(errors) > 1 else " " * 6
        product = list(errors_of(results, name, "error_max_product").values())
        shown = f"{np.mean(product):11.3f}" if product else " " * 11
        seconds = np.mean(list(errors_of(results, name, "seconds").values()))
        paper = f"{PAPER[name]:6.3f}" if name in PAPER else " " * 6
        print(f"{name:18s} {np.mean(errors):6.3f} {spread} {len(errors):5d} {shown} {seconds:8.0f} {paper}")
    print("\nError of the first less that of the second; paired t-tests over folds and images (a fold's share a model)")
    for a, b in PAIRS:
        compare(results, a, b)
    print("\nError by max-product of the first less error by iterated conditional modes of the second, over folds")
    for a, b in PRODUCT_PAIRS:
        of_a, of_b = errors_of(results, a, "error_max_product"), errors_of(results, b)
        print_difference(a, b, *paired(of_a, of_b))


def paired(of_a, of_b):
    """Differences of the folds that both have, and which these are."""
    common = sorted(set(of_a) & set(of_b))
    return np.array([of_a[k] - of_b[k] for k in common]), common


def compare(results, a, b):
    over_folds, common = paired(errors_of(results, a), errors_of(results, b))
    of_a, of_b = errors_of(results, a, "images"), errors_of(results, b, "images")
    over_images = [np.subtract(of_a[k], of_b[k]) for k in common]
    print_difference(a, b, over_folds, common, over_images)


def print_difference(a, b, over_folds, common, over_images=None):
    if len(common) < 2:
        return
    tests = f"p = {ttest_1samp(over_folds, 0).pvalue:.2g} ({len(common)} folds)"
    if over_images is not None:
        over_images = np.concatenate(over_images)
        tests += f", {ttest_1samp(over_images, 0).pvalue:.2g} ({len(over_images)} images)"
    print(f"{a:18s} {b:18s} {over_folds.mean():+.4f}  {tests}")


PRODUCT_PAIRS = [
    (a, b)
    for a in ("CCG(ICM-MV)", "CCG(ICM-MV+PL)", "CCG(MP-MV)", "CCG(MP-MV+PL)", "MM(ICM-MV)", "PL")
    for b in dict.fromkeys((a, "MM(ICM-MV)", "Independent"))
]
PAIRS = [
    ("PL", "Independent"),
    ("MM(ICM-MV)", "Independent"),
    ("CCG(ICM-MV)", "Independent"),
    ("CCG(ICM-MV+PL)", "Independent"),
    ("CCG(ICM-MV+PL)", "PL"),
    ("CCG(ICM-MV+PL)", "CCG(ICM-MV)"),
    ("CCG(ICM-MV+PL)", "MM(ICM-MV)"),
    ("CCG(Gibbs-10)", "Independent"),
    ("CCG(Gibbs-10+PL)", "Independent"),
    ("CCG(ICM)", "Independent"),
    ("CCG(ICM)", "PL"),
    ("CCG(ICM)", "CCG(Gibbs-10)"),
    ("CCG(ICM-MV)", "CCG(ICM)"),
    ("CCG(ICM-MV)", "MM(ICM-MV)"),
    ("CCG(MP)", "CCG(ICM)"),
    ("CCG(MP-MV)", "MM(ICM-MV)"),
    ("CCG(MP-MV)", "MM(MP-MV)"),
    ("CCG(ICM)", "CD-10"),
    ("CCG(ICM+PL)", "PL"),
    ("CCG(ICM+PL)", "CCG(ICM)"),
    ("CCG(MP-MV+PL)", "MM(ICM-MV)"),
]


def strengths(options):
    """Test error of one fold for every C: what the choice of C is worth."""
    fold = None
    for name in options.learners:
        if not isinstance(LEARNERS[name], WithChosenC):
            continue
        for C in STRENGTHS:
            key = f"{name} C={C:g} fold {options.fold}"
            if key not in read_record(options.results, {}):
                fold = fold or Fold(Scenes(), options.fold)
                model, seconds, _ = fold.fit(name, C)
                of_modes, of_messages = (fold.error(model, inference)[0] for inference in ("icm", "max_product"))
                entry = {"error": of_modes, "error_max_product": of_messages, "seconds": seconds}
                write_record(options.results, read_record(options.results, {}) | {key: entry})
            entry = read_record(options.results, {})[key]
            print(
                f"{key}: {entry['error']:.4f}, max-product {entry['error_max_product']:.4f}, {entry['seconds']:.0f} s",
                flush=True,
            )


def curves(options):
    """Test error against processor time, one fold."""
    fold = Fold(Scenes(), options.fold)
    for name in RECORDED:
        key = f"{name} curve {options.fold}"
        if key in read_record(options.results, {}):
            continue
        model, _ = make_learner(name, fold, recorded=True)
        curve = [(seconds, fold.error(fitted)[0]) for seconds, fitted in model.record(fold.X, fold.y)]
        write_record(options.results, read_record(options.results, {}) | {key: curve})
        print(f"{key}: {len(curve)} points, {curve[-1][1]:.4f} after {curve[-1][0]:.0f} s", flush=True)


def figure(options):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = read_record(options.results, {})
    fig, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for name in RECORDED:
        curve = np.array(results.get(f"{name} curve {options.fold}", np.zeros((0, 2))))
        if len(curve):
            axis.plot(*curve.T, marker=".", label=name)
    axis.set(xlabel="seconds of processor time", ylabel="pixel-wise test error", xscale="log")
    fig.legend(loc="outside upper center", ncols=len(RECORDED), fontsize=8)
    fig.savefig(options.picture, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "table", "strengths", "curves", "figure"])
    parser.add_argument("--folds", type=int, default=N_FOLDS)
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("--learners", nargs="+", default=ORDER, choices=sorted(LEARNERS))
    parser.add_argument("--results", type=Path, default=Path("ccg_scenes.json"))
    parser.add_argument("--picture", type=Path, default=Path("ccg_scenes.png"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    commands = {"run": run, "table": table, "strengths": strengths, "curves": curves, "figure": figure}
    commands[options.what](options)


if __name__ == "__main__":
    main()
