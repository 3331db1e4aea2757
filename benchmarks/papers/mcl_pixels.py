"""Pixel classification with multi-conditional mixtures of factor analysers (Kelm et al. 2006, Figures 3 and 4).

For every image, background, number of training pixels N and number of components K, the script fits three criteria
from the same k-means starts: the conditional likelihood (CL), the multi-conditional likelihood with several alpha,
and the joint likelihood (JL), by expectation-maximisation and by L-BFGS. Of several starts, the result with the best
criterion is kept. Accuracy and log-loss are measured on the N training pixels and on the inference region.

The paper's lasso trimaps are not public. They are imitated from the ground truth: the inference region is the band of
pixels within a distance w of the object's boundary, where w is a tenth of the square root of the object's area, and
at least 8 pixels. Half of the N training pixels are drawn from the object outside the band, and half from the
background outside the band. The background is the rest of the image (``image``), or the part within 3 w of the
boundary (``strip``), as if a lasso were drawn around the object.

    SKLEARN_CRF_DATA=/path/to/data python benchmarks/papers/mcl_pixels.py --images 50 --jobs 2
    python benchmarks/papers/mcl_pixels.py --report --figure docs/_static/mcl_pixels.png

``--cells figures`` runs the pairs of N and K in the paper's figures (K = 5 for all N, all K for N = 1000), and
``--cells all`` runs all pairs. All records of an image and pair are stored in a JSON file under
``benchmarks/results/mcl_pixels``. An interrupted run continues, and the report covers the images for which all pairs
are stored.
"""

import argparse
import os
import time
import warnings
import zlib
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from joblib import Parallel, delayed
from scipy.ndimage import distance_transform_edt
from scipy.stats import wilcoxon
from sklearn.metrics import log_loss
from support.record import read_record, write_record

from sklearn_crf import MultiConditionalMFA
from sklearn_crf.preprocessing import PixelFeatures

SIZES, COMPONENTS, BACKGROUNDS = (500, 1000, 2000, 5000), (2, 3, 5, 10), ("image", "strip")
CRITERIA = {
    "JL": {"objective": "joint", "solver": "em"},
    "JL L-BFGS": {"objective": "joint", "solver": "lbfgs"},
    "1": {"alpha": 1.0},
    "0.1": {"alpha": 0.1},
    "0.01": {"alpha": 0.01},
    "0.001": {"alpha": 0.001},
    "CL": {"alpha": 0.0},
}
COMPARISONS = [
    ("CL", "JL"),
    ("1", "JL"),
    ("0.1", "JL"),
    ("0.01", "JL"),
    ("0.01", "CL"),
    ("0.001", "CL"),
    ("JL L-BFGS", "JL"),
]
FIGURES = [(n, 5) for n in SIZES] + [(1000, k) for k in COMPONENTS if k != 5]
MAX_TEST_PIXELS = 20000


def regions(truth, background):
    """Return object, background and inference region from a mask (255, 0, and 128 for mixed pixels)."""
    inside = truth > 127
    distance = np.where(inside, distance_transform_edt(inside), distance_transform_edt(~inside))
    width = max(8.0, 0.1 * np.sqrt(inside.sum()))
    mixed = truth == 128
    band = distance <= width
    behind = ~inside & ~band & ~mixed
    if background == "strip":
        behind &= distance <= 3 * width
    return inside & ~band & ~mixed, behind, band & ~mixed


def sample(mask, n, rng):
    pixels = np.flatnonzero(mask)
    return rng.choice(pixels, min(n, len(pixels)), replace=False)


def run_image(name, image, truth, cells, folder, options):
    """Record every background, N, K and criterion of an image; records on disk are kept."""
    missing = [(b, n, k) for b in BACKGROUNDS for n, k in cells if not (folder / f"{name}_{b}_{n}_{k}.json").exists()]
    if not missing:
        return
    warnings.simplefilter("ignore")
    features = PixelFeatures(texture_scale=options.texture_scale).fit_transform(image[None])[0].reshape(-1, 9)
    labels = (truth > 127).ravel().astype(int)
    for background, n, k in missing:
        records = one_cell(name, features, labels, regions(truth, background), n, k, options)
        records = [{"image": name, "background": background, "n": n, "k": k} | record for record in records]
        path = folder / f"{name}_{background}_{n}_{k}.json"
        write_record(path, records)


def one_cell(name, features, labels, parts, n, k, options):
    foreground, background, band = parts
    # Every K and criterion gets the same pixels, and every criterion the same starts.
    test = sample(band, MAX_TEST_PIXELS, np.random.default_rng(zlib.crc32(name.encode())))
    rng = np.random.default_rng(zlib.crc32(f"{name} {n}".encode()))
    train = np.r_[sample(foreground, n // 2, rng), sample(background, n // 2, rng)]
    for criterion, kwargs in CRITERIA.items():
        model = MultiConditionalMFA(
            k, 3, noise="tied", n_init=options.n_init, max_iter=options.max_iter, random_state=0, **kwargs
        )
        start = time.process_time()
        model.fit(features[train], labels[train])
        record = {"criterion": criterion, "cpu_seconds": time.process_time() - start, "n_iter": model.n_iter_}
        record |= {"converged": bool(model.converged_), "loss": float(model.restart_losses_.min())}
        record |= {"n_init": options.n_init, "max_iter": options.max_iter, "n_train": len(train)}
        for part, rows in (("train", train), ("test", test)):
            probability = model.predict_proba(features[rows])
            record[f"{part}_accuracy"] = float((probability.argmax(axis=1) == labels[rows]).mean())
            record[f"{part}_log_loss"] = float(log_loss(labels[rows], probability, labels=[0, 1]))
        yield record


def load(folder, n_images):
    images, truths = (np.load(Path(folder) / "grabcut" / f"{part}.npz") for part in ("images", "trimap"))
    for name in sorted(images.files)[:n_images]:
        yield name, images[name], truths[name]


class Results:
    """Records of all images that have the most cells, by measure, background, criterion, N and K."""

    def __init__(self, folder):
        images = {}
        for path in sorted(Path(folder).glob("*.json")):
            for record in read_record(path, []):
                images.setdefault(record["image"], []).append(record)
        most = max(map(len, images.values()))
        self.images = {name: records for name, records in images.items() if len(records) == most}
        self.records = [record for records in self.images.values() for record in records]
        self.cells = sorted({(record["n"], record["k"]) for record in self.records})

    def values(self, measure, background, criterion, n=None, k=None):
        """Return one number for each image: the mean over the chosen sizes and numbers of components."""
        return np.array(
            [
                np.mean(
                    [
                        r[measure]
                        for r in records
                        if (r["background"], r["criterion"]) == (background, criterion)
                        and n in (None, r["n"])
                        and k in (None, r["k"])
                    ]
                )
                for records in self.images.values()
            ]
        )

    def table(self, measure, background, digits):
        """Return means over images, with a row for each N and K and a column for each criterion."""
        lines = ["   N   K " + "".join(f"{c:>11}" for c in CRITERIA)]
        for n, k in self.cells:
            means = [np.mean(self.values(measure, background, c, n, k)) for c in CRITERIA]
            lines.append(f"{n:5} {k:3} " + "".join(f"{m:11.{digits}f}" for m in means))
        return "\n".join(lines)

    def compare(self, measure, background, better, worse, **where):
        """Return the mean difference and the p-value of the two-sided Wilcoxon signed-rank test over images."""
        difference = self.values(measure, background, better, **where)
        difference -= self.values(measure, background, worse, **where)
        p = wilcoxon(difference).pvalue if np.any(difference) else 1.0
        at = " ".join(f"{key.upper()}={value}" for key, value in where.items()) or "all of these"
        higher, lower = (difference > 0).sum(), (difference < 0).sum()
        pair, signs = f"{better:>9} - {worse:<9}", f"higher {higher:2}, lower {lower:2}"
        return f"{pair} {at:12} {difference.mean():+8.4f}  {signs}  p = {p:.4f}"


def report(folder):
    results = Results(folder)
    print(f"{len(results.images)} images")
    for background in BACKGROUNDS:
        for measure, digits in (("test_accuracy", 4), ("test_log_loss", 3), ("train_accuracy", 4)):
            print(f"\nbackground: {background}, mean {measure}\n{results.table(measure, background, digits)}")
        for measure in ("test_accuracy", "test_log_loss"):
            print(f"\nbackground: {background}, differences of {measure}, Wilcoxon signed-rank tests over images")
            for where in (*({"n": n, "k": 5} for n in SIZES), *({"n": 1000, "k": k} for k in (2, 3, 10)), {}):
                if not where or (where["n"], where["k"]) in results.cells:
                    for a, b in COMPARISONS:
                        print(results.compare(measure, background, a, b, **where))
    print()
    for criterion in CRITERIA:
        own = [r for r in results.records if r["criterion"] == criterion]
        seconds = sum(r["cpu_seconds"] for r in own)
        converged = 100 * np.mean([r["converged"] for r in own])
        above = 100 * np.mean([r["test_log_loss"] > np.log(2) for r in own])
        print(
            f"{criterion:>9}: {seconds:6.0f} s CPU for {len(own)} models, {converged:3.0f} % converged, test log-loss "
            f"above ln 2 in {above:3.0f} %"
        )
    return results


def draw(results, path):
    """Draw the paper's Figures 3 and 4, log-loss below accuracy, with lines over the criteria from JL to CL."""
    import matplotlib.pyplot as plt

    shown = [criterion for criterion in CRITERIA if criterion != "JL L-BFGS"]
    panels = [("test", "n", SIZES), ("train", "n", SIZES), ("test", "k", COMPONENTS)]
    figure, axes = plt.subplots(4, 3, figsize=(11, 11), sharex=True, layout="constrained")
    for row, (background, measure) in enumerate((b, m) for b in BACKGROUNDS for m in ("accuracy", "log_loss")):
        for ax, (part, axis, levels) in zip(axes[row], panels, strict=True):
            for level in levels:
                cell = (level, 5) if axis == "n" else (1000, level)
                if cell in results.cells:
                    means = [results.values(f"{part}_{measure}", background, c, *cell).mean() for c in shown]
                    ax.plot(shown, means, marker="o", ms=3, label=f"{axis.upper()} = {level}")
            ax.set_title(f"{part} {measure.replace('_', '-')}, background: {background}", fontsize=9)
            ax.legend(fontsize=7)
            if measure == "log_loss" and part == "train":
                ax.set_yscale("log")
    for ax in axes[-1]:
        ax.set_xlabel("JL, alpha, CL")
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--cells", choices=["figures", "all"], default="figures")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--max-iter", type=int, default=300)
    parser.add_argument("--n-init", type=int, default=5)
    parser.add_argument("--texture-scale", default="linear")
    parser.add_argument("--results", default=str(Path(__file__).parents[1] / "results" / "mcl_pixels"))
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--figure", help="file for the drawn figures")
    options = parser.parse_args()
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    if not options.report:
        data = os.environ.get("SKLEARN_CRF_DATA")
        if data is None:
            raise SystemExit("set SKLEARN_CRF_DATA to the folder that holds grabcut/images.npz")
        cells = FIGURES if options.cells == "figures" else [(n, k) for n in SIZES for k in COMPONENTS]
        Parallel(n_jobs=options.jobs)(
            delayed(run_image)(name, image, truth, cells, folder, options)
            for name, image, truth in load(data, options.images)
        )
    results = report(folder)
    if options.figure:
        draw(results, options.figure)


if __name__ == "__main__":
    main()
