"""Pixel classification with multi-conditional mixtures of factor analysers (Kelm, Pal & McCallum 2006, section 4).

For every image, number of training pixels N and number of components K: fit the joint likelihood (JL), the conditional
likelihood (CL) and the multi-conditional likelihood with several alpha from the same five k-means starts, keep the
restart with the best criterion, and measure accuracy on the N training pixels and on the inference region.

The paper's lasso trimaps are not public. They are imitated from the ground truth: the inference region is the band of
pixels within a distance of the object's boundary (a tenth of the square root of the object's area, at least 8 pixels);
half of the N training pixels are drawn from the object outside the band, half from the background outside it.

    SKLEARN_CRF_DATA=/path/to/data python benchmarks/mcl_pixels.py --images 20 --jobs 2
    python benchmarks/mcl_pixels.py --report

``--cells figures`` runs what the paper's figures 3 and 4 show (K = 5 for all N, all K for N = 1000), ``--cells all``
every pair. A file of results per image and pair is written to ``benchmarks/results/mcl_pixels``: an interrupted run
goes on where it was.
"""

import argparse
import os
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
from _record import read_record, write_record
from joblib import Parallel, delayed
from scipy.ndimage import distance_transform_edt
from scipy.stats import wilcoxon

from sklearn_crf import MultiConditionalMFA
from sklearn_crf.preprocessing import PixelFeatures

SIZES, COMPONENTS = (500, 1000, 2000, 5000), (2, 3, 5, 10)
CRITERIA = {
    "CL": {"alpha": 0.0},
    "0.001": {"alpha": 0.001},
    "0.01": {"alpha": 0.01},
    "0.1": {"alpha": 0.1},
    "1": {"alpha": 1.0},
    "JL": {"objective": "joint"},
}
FIGURES = [(n, 5) for n in SIZES] + [(1000, k) for k in COMPONENTS if k != 5]
MAX_TEST_PIXELS = 20000


def regions(truth):
    """Object, background and inference region from ground truth (255, 0, and 128 for mixed pixels)."""
    inside = truth > 127
    distance = np.where(inside, distance_transform_edt(inside), distance_transform_edt(~inside))
    band = distance <= max(8.0, 0.1 * np.sqrt(inside.sum()))
    mixed = truth == 128
    return inside & ~band & ~mixed, ~inside & ~band & ~mixed, band & ~mixed


def sample(mask, n, rng):
    pixels = np.flatnonzero(mask)
    return rng.choice(pixels, min(n, len(pixels)), replace=False)


def one_cell(name, image, truth, n, k, options):
    """Accuracies of all criteria on one image for one N and K, as rows of a table."""
    features = PixelFeatures(texture_scale=options.texture_scale).fit_transform(image[None])[0].reshape(-1, 9)
    foreground, background, band = regions(truth)
    labels = (truth > 127).ravel().astype(int)
    # The same pixels for every K and criterion, the same starts for every criterion.
    test = sample(band, MAX_TEST_PIXELS, np.random.default_rng(zlib.crc32(name.encode())))
    rng = np.random.default_rng(zlib.crc32(f"{name} {n}".encode()))
    train = np.r_[sample(foreground, n // 2, rng), sample(background, n // 2, rng)]
    rows = []
    for criterion, kwargs in CRITERIA.items():
        model = MultiConditionalMFA(k, 3, n_init=options.n_init, max_iter=options.max_iter, random_state=0, **kwargs)
        start = time.process_time()
        model.fit(features[train], labels[train])
        seconds = time.process_time() - start
        accuracy = [model.score(features[part], labels[part]) for part in (train, test)]
        rows.append([n, k, criterion, *accuracy, seconds, model.converged_, model.n_iter_])
    return rows


def load(folder, n_images):
    images, truths = (np.load(Path(folder) / "grabcut" / f"{part}.npz") for part in ("images", "trimap"))
    for name in sorted(images.files)[:n_images]:
        yield name, images[name], truths[name]


def run_and_save(path, *args):
    warnings.simplefilter("ignore")
    write_record(path, one_cell(*args))


def table(results, column, digits=2):
    """Mean accuracy in percent, rows N and K, a column a criterion."""
    lines = ["   N   K " + "".join(f"{c:>8}" for c in CRITERIA)]
    for n, k in cells_of(results):
        means = [100 * np.mean(values(results, column, c, n, k)) for c in CRITERIA]
        lines.append(f"{n:5} {k:3} " + "".join(f"{m:8.{digits}f}" for m in means))
    return "\n".join(lines)


def cells_of(results):
    """Pairs (N, K) that all images have."""
    return sorted(set.intersection(*({(row[0], row[1]) for row in rows} for rows in results)))


def values(results, column, criterion, n=None, k=None):
    """One number an image: the mean over the chosen sizes and numbers of components."""
    out = []
    for rows in results:
        chosen = [r[column] for r in rows if r[2] == criterion and n in (None, r[0]) and k in (None, r[1])]
        out.append(np.mean(chosen))
    return np.array(out)


def compare(results, better, worse, **where):
    """Mean difference in percent, and the p-value of the two-sided Wilcoxon signed-rank test over images."""
    difference = values(results, 4, better, **where) - values(results, 4, worse, **where)
    p = wilcoxon(difference).pvalue if np.any(difference) else 1.0
    at = " ".join(f"{key.upper()}={value}" for key, value in where.items()) or "all of these"
    wins, losses = (difference > 0).sum(), (difference < 0).sum()
    name = {"CL": "CL", "JL": "JL"}
    a, b = (name.get(c, f"alpha={c}") for c in (better, worse))
    return f"{a:>12} - {b:<12} {at:12} {100 * difference.mean():+6.2f}  wins {wins:2} : {losses:2}  p = {p:.4f}"


def report(folder):
    images = {}
    for path in sorted(Path(folder).glob("*.json")):
        images.setdefault(path.name.rsplit("_", 2)[0], []).extend(read_record(path, []))
    most = max(map(len, images.values()))
    complete = {name: rows for name, rows in images.items() if len(rows) == most}
    results = list(complete.values())
    print(f"{len(results)} images\n\nMean test accuracy, percent\n{table(results, 4)}")
    print(f"\nMean training accuracy, percent\n{table(results, 3)}\n")
    print("\nDifferences of test accuracy in percent points, Wilcoxon signed-rank tests over images")
    for n in sorted({n for n, k in cells_of(results) if k == 5}):
        for a, b in (("CL", "JL"), ("0.01", "CL"), ("0.001", "CL"), ("0.01", "JL"), ("0.1", "JL"), ("1", "JL")):
            print(compare(results, a, b, n=n, k=5))
    for where in (*({"n": n} for n in sorted({n for n, _ in cells_of(results)})), {}):
        for a, b in (("CL", "JL"), ("0.001", "CL"), ("0.01", "CL"), ("0.01", "JL"), ("0.1", "JL"), ("1", "JL")):
            print(compare(results, a, b, **where))
    rows = [row for rows in results for row in rows]
    for criterion in CRITERIA:
        own = [row for row in rows if row[2] == criterion]
        seconds, converged = sum(row[5] for row in own), np.mean([row[6] for row in own])
        print(f"{criterion:>6}: {seconds:7.0f} s for {len(own)} models, {100 * converged:.0f}% of them converged")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--cells", choices=["figures", "all"], default="all")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--max-iter", type=int, default=300)
    parser.add_argument("--n-init", type=int, default=5)
    parser.add_argument("--texture-scale", default="linear")
    parser.add_argument("--results", default=str(Path(__file__).parent / "results" / "mcl_pixels"))
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    if not options.report:
        data = os.environ.get("SKLEARN_CRF_DATA")
        if data is None:
            raise SystemExit("set SKLEARN_CRF_DATA to the folder that holds grabcut/images.npz")
        cells = FIGURES if options.cells == "figures" else [(n, k) for n in SIZES for k in COMPONENTS]
        Parallel(n_jobs=options.jobs)(
            delayed(run_and_save)(path, name, image, truth, n, k, options)
            for name, image, truth in load(data, options.images)
            for n, k in cells
            if not (path := folder / f"{name}_{n}_{k}.json").exists()
        )
    report(folder)


if __name__ == "__main__":
    main()
