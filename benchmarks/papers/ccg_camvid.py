"""Table 1 of Vickrey et al. 2010 on street frames of CamVid: pixel-wise errors of all learners, with tests.

    SKLEARN_CRF_DATA=folder python benchmarks/papers/ccg_camvid.py run [--learners PL "CCG(ICM+PL)"] [--frames 100]
    SKLEARN_CRF_DATA=folder python benchmarks/papers/ccg_camvid.py sizes [--sizes 46 92 184]
    SKLEARN_CRF_DATA=folder python benchmarks/papers/ccg_camvid.py drives
    python benchmarks/papers/ccg_camvid.py table [--save docs/results/ccg_camvid]
    python benchmarks/papers/ccg_camvid.py margin

The split is the usual split of CamVid: 367 training frames, 101 validation frames and 233 test frames, as graphs of
about sixty regions (``support/street_regions.py`` describes the features). C is a power of ten from 1e-4 to 100. To
choose C, learners are trained on every third training frame and evaluated on the validation frames. The search starts
at 0.1 and ends when neither neighbouring value has fewer errors. With this C, the learner is trained on all training
frames. The number of rounds of constraint generation, or of epochs of contrastive divergence, is also chosen on the
validation frames. The row "CCG, chosen" is the generator with the fewest errors on the validation frames.

Frames of a drive are similar. In the tests, ten consecutive test frames therefore count as one observation. Frames
within 300 frames of a training frame of the same drive are omitted. Results of the two drives are also reported
separately. ``--frames`` limits the number of frames of each part. ``drives`` evaluates the validation frames, which, in
contrast to the test frames, come from a drive that also has training frames. ``sizes`` trains some learners on fewer
frames, with the C chosen before. ``margin`` is a separate task, on which margin and likelihood differ by construction.
Every fit is written to a JSON file, from which an interrupted run continues.
"""

import argparse
import os
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import _path  # noqa: F401  finds the support package
import numpy as np
from ccg_scenes import holm
from scipy.stats import ttest_1samp
from sklearn.exceptions import ConvergenceWarning
from support.record import read_record, write_record
from support.scene_learners import (
    MESSAGES,
    PAPER,
    REGIONS,
    RecordedCCG,
    RecordedCD,
    WithChosenC,
    contrastive,
    divergence,
    independent,
    margin,
    shared,
)
from support.street_regions import BLOCK, Streets

from sklearn_crf import TRWCRF, ContrastiveCRF, M3NClassifier
from sklearn_crf.learning import ContrastiveTraining

STREETS = replace(
    REGIONS, n_regions=None, n_components=44, generated_weight=1.0, n_rounds=15, n_rounds_tried=15, n_planes=40,
    n_planes_tried=40, n_epochs={1: 40, 10: 20, 100: 8}, strengths=(1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0),
)  # fmt: skip
#: Every third frame is used to choose C.
THIN = 3
FIRST_STRENGTH = 0.1


def pseudolikelihood(C, costs, protocol, tried):
    # Packs many small graphs into a batch, as the other learners do.
    return ContrastiveCRF(C, learning=ContrastiveTraining(generator=None), tol=1e-4, **shared(protocol))


def generated(generator, init="pl", sweeps=10):
    return contrastive(generator, init, sweeps, kind=RecordedCCG)


#: The most informative learners come first, in case a run is interrupted.
LEARNERS = {
    "Independent": WithChosenC(independent),
    "PL": WithChosenC(pseudolikelihood),
    "MM(ICM-MV)": margin("icm"),
    "CCG(MP-MV+PL)": generated("map_mv"),
    "CCG(ICM-MV+PL)": generated("icm_mv"),
    "CD-1": divergence(1, RecordedCD),
    "CCG(ICM+PL)": generated("icm"),
    "MM(MP-MV)": margin(MESSAGES),
    "CCG(MP+PL)": generated("map"),
    "CCG(Gibbs-10+PL)": generated("gibbs"),
    "CCG(ICM-MV)": generated("icm_mv", "empty"),
    "CD-10": divergence(10, RecordedCD),
    "CCG(ICM)": generated("icm", "empty"),
    "CCG(Gibbs-1+PL)": generated("gibbs", sweeps=1),
    "CCG(MP-MV)": generated("map_mv", "empty"),
    "CCG(MP)": generated("map", "empty"),
    "CCG(Gibbs-100+PL)": generated("gibbs", sweeps=100),
    "CD-100": divergence(100, RecordedCD),
}
GENERATED = [name for name in LEARNERS if name.startswith("CCG") and "Gibbs" not in name]
CHOSEN = "CCG, chosen"


class Run:
    """A store of fits in a file, with frames that are only read when a fit is missing."""

    def __init__(self, options):
        self.path, self._options, self._streets = options.results, options, None

    @property
    def streets(self):
        if self._streets is None:
            if "SKLEARN_CRF_DATA" not in os.environ:
                raise SystemExit("set SKLEARN_CRF_DATA to the folder that holds camvid/")
            self._streets = Streets(os.environ["SKLEARN_CRF_DATA"], self.path.parent, self._options.frames)
            frames = {"names": self._streets.names, "blocks": self._streets.blocks.tolist()}
            frames |= {"best": self._streets.best_error(), "n_train": len(self._streets.X)}
            self.keep("frames", frames)
        return self._streets

    def kept(self, key, make, C=None):
        """Return the entry of a key; make and write the entry if it is missing or belongs to another C."""
        record = read_record(self.path, {})
        if key not in record or record[key].get("C") != C:
            self.keep(key, make())
            print(f"{key}: {_shown(read_record(self.path, {})[key])}", flush=True)
        return read_record(self.path, {})[key]

    def keep(self, key, entry):
        # Another process may have written to the file meanwhile.
        write_record(self.path, read_record(self.path, {}) | {key: entry})


def _shown(entry):
    return {name: value for name, value in entry.items() if not isinstance(value, list)}


def visits(model, X, y):
    """Return pairs of seconds and a fitted model: one pair for each round if the learner records rounds."""
    if hasattr(model, "record"):
        return model.record(X, y)
    before = time.process_time()
    model.fit(X, y)
    return [(time.process_time() - before, model)]


def best_visit(run, name, C, frames):
    """Return the round with the fewest errors on the frames that choose options, and a record of the rounds."""
    streets, rows = run.streets, range(len(run.streets.X))[frames]
    X, y, costs = ([part[i] for i in rows] for part in (streets.X, streets.y, streets.costs))
    learner = LEARNERS[name]
    if isinstance(learner, WithChosenC):
        model = learner.make(C, costs, STREETS, False)
    else:
        model, _ = learner(SimpleNamespace(protocol=STREETS))
    found = visits(model, X, y)
    errors = [_rate(*streets.wrong_and_total("val", then, "icm")) for _, then in found]
    best = int(np.argmin(errors))
    return found[best][1], {"rounds": best, "of": len(found) - 1, "val": errors[best], "seconds": found[-1][0]}


def result_of(run, name, C, frames=slice(None)):
    """Fit a learner, and return a record with the wrong and all pixels of each test frame."""
    model, entry = best_visit(run, name, C, frames)
    for field, inference in (("wrong", "icm"), ("wrong_max_product", "max_product")):
        wrong, total = run.streets.wrong_and_total("test", model, inference)
        entry |= {field: wrong.tolist(), "total": total.tolist(), f"test_{inference}": _rate(wrong, total)}
    return entry | {"C": C, "coupling": float(model.edge_coef_.ravel()[0])}


def _rate(wrong, total):
    return float(np.sum(wrong) / np.sum(total))


def chosen_strength(run, name):
    """Return the C chosen on the frames for choosing, or None for a learner without C."""
    if not isinstance(LEARNERS[name], WithChosenC):
        return None

    def error(number):
        if not 0 <= number < len(STREETS.strengths):
            return np.inf
        C = STREETS.strengths[number]
        return run.kept(f"{name} tried C={C:g}", lambda: best_visit(run, name, C, slice(None, None, THIN))[1])["val"]

    best = STREETS.strengths.index(FIRST_STRENGTH)
    while True:
        better = min((best - 1, best, best + 1), key=error)
        if error(better) == error(best):
            return STREETS.strengths[best]
        best = better


def run_all(options):
    run = Run(options)
    for name in options.learners:
        C = chosen_strength(run, name)
        run.kept(name, lambda name=name, C=C: result_of(run, name, C), C)


def sizes(options):
    """Record test errors after training on fewer, evenly spread frames."""
    run = Run(options)
    for name in options.learners:
        for size in options.sizes:

            def fit(name=name, size=size):
                frames = np.linspace(0, len(run.streets.X) - 1, size).astype(int)
                step = slice(None, None, max(1, round(len(run.streets.X) / len(frames))))
                return result_of(run, name, chosen_strength(run, name), step)

            run.kept(f"{name} of {size} frames", fit, chosen_strength(run, name))


def drives(options):
    """Record errors by frame on the frames for choosing, whose drive also has training frames."""
    run = Run(options)
    for name in options.learners:
        C = chosen_strength(run, name)

        def fit(name=name, C=C):
            model, entry = best_visit(run, name, C, slice(None))
            wrong, total = run.streets.wrong_and_total("val", model, "icm")
            blocks = (np.arange(len(wrong)) // BLOCK).tolist()
            return entry | {"wrong": wrong.tolist(), "total": total.tolist(), "blocks": blocks, "C": C}

        run.kept(f"{name} where options are chosen", fit, C)


# Tests -------------------------------------------------------------------------------------------------------------

#: Pairs of learners; the paper finds fewer errors for the first of each pair.
CLAIMED = [
    ("Independent", "PL"),
    *[(name, "Independent") for name in ("CCG(ICM+PL)", "CCG(MP+PL)", "CCG(ICM-MV+PL)", "CCG(MP-MV+PL)")],
    *[(name, "MM(ICM-MV)") for name in ("CCG(ICM+PL)", "CCG(MP+PL)", "CCG(ICM-MV+PL)", "CCG(MP-MV+PL)")],
    *[(name, "PL") for name in ("CCG(ICM+PL)", "CCG(MP+PL)", "CCG(ICM-MV+PL)", "CCG(MP-MV+PL)")],
    ("CCG(ICM+PL)", "CCG(Gibbs-100+PL)"),
    ("CCG(ICM+PL)", "CD-10"),
]
OTHERS = [
    *[(CHOSEN, name) for name in ("Independent", "PL", "MM(ICM-MV)")],
    *[("CCG(ICM-MV+PL)", name) for name in ("CCG(ICM+PL)", "CCG(ICM-MV)", "CCG(Gibbs-10+PL)", "CD-1")],
    ("MM(ICM-MV)", "Independent"),
    ("CCG(ICM-MV)", "MM(ICM-MV)"),
]


def block_differences(results, a, b):
    """Return the error of a minus the error of b in each block of consecutive frames."""
    blocks = np.array(results[a].get("blocks", results["frames"]["blocks"]))
    total = np.bincount(blocks, results[a]["total"])
    return (np.bincount(blocks, results[a]["wrong"]) - np.bincount(blocks, results[b]["wrong"])) / total


def difference(results, a, b):
    """Return the mean difference over blocks, half of its 95 % interval, and the p-value of the t-test over blocks."""
    found = block_differences(results, a, b)
    test = ttest_1samp(found, 0)
    interval = test.confidence_interval()
    return found.mean(), (interval.high - interval.low) / 2, test.pvalue


def errors_by_drive(entry, names):
    drives = np.array([name.rpartition("_")[0] for name in names])
    wrong, total = np.array(entry["wrong"]), np.array(entry["total"])
    return {drive: _rate(wrong[drives == drive], total[drives == drive]) for drive in dict.fromkeys(drives.tolist())}


def table(options):
    results = read_record(options.results, {})
    if "frames" not in results:
        raise SystemExit(f"{options.results} holds no results: run first.")
    names = [name for name in LEARNERS if name in results]
    found = [name for name in GENERATED if name in results]
    if found:
        best = min(found, key=lambda name: results[name]["val"])
        results[CHOSEN] = results[best]
        print(f"{CHOSEN}: {best}")
    frames = results["frames"]
    drives = list(dict.fromkeys(name.rpartition("_")[0] for name in frames["names"]))
    headings = [
        "learner",
        "error",
        *drives,
        "max-product",
        "for choosing",
        "C",
        "rounds",
        "coupling",
        "seconds",
        "paper",
    ]
    rows = []
    for name in names:
        entry = results[name]
        apart = errors_by_drive(entry, frames["names"])
        errors = [entry["test_icm"], *(apart[drive] for drive in drives), entry["test_max_product"], entry["val"]]
        C = "" if entry["C"] is None else f"{entry['C']:g}"
        rounds = f"{entry['rounds']} of {entry['of']}" if entry["of"] else ""
        paper = f"{PAPER[name]:.3f}" if name in PAPER else ""
        last = [C, rounds, f"{entry['coupling']:.2f}", f"{entry['seconds']:.1f}", paper]
        rows.append([name, *(f"{error:.3f}" for error in errors), *last])
    n_blocks = len(set(frames["blocks"]))
    print(f"{frames['n_train']} training frames, {len(frames['names'])} test frames in {n_blocks} blocks")
    print(f"best labels of the regions: {frames['best']:.3f}")
    show(headings, rows)
    test_headings = ["learner", "less the error of", "difference", "p", "corrected p"]
    tests = [*test_rows(results, CLAIMED), *test_rows(results, OTHERS)]
    print("\nDifferences, half of their 95 % intervals, p of t-tests over blocks, corrected by Holm in each group")
    show(test_headings, tests)
    near = " where options are chosen"
    found = [name.removesuffix(near) for name in results if name.endswith(near)]
    pairs = [(a + near, b + near) for a, b in [*CLAIMED, *OTHERS] if a in found and b in found]
    own = [[a.removesuffix(near), b.removesuffix(near), *rest] for a, b, *rest in test_rows(results, pairs)]
    print("\nThe same on frames for choosing")
    show(test_headings, own)
    size_rows = rows_by_size(results)
    if size_rows:
        print()
        show(size_rows[0], size_rows[1:])
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        tables = {"errors": [headings, *rows], "tests": [test_headings, *tests], "sizes": size_rows}
        tables["drives"] = [test_headings, *own] if own else []
        for name, content in tables.items():
            if content:
                write_record(options.save / f"table_{name}.json", content)


def test_rows(results, pairs):
    pairs = [(a, b) for a, b in pairs if a in results and b in results]
    found = [difference(results, a, b) for a, b in pairs]
    corrected = holm([p for *_, p in found]) if found else []
    return [
        [a, b, f"{mean:+.4f} ± {half:.4f}", f"{p:.2g}", f"{many:.2g}"]
        for (a, b), (mean, half, p), many in zip(pairs, found, corrected, strict=True)
    ]


def rows_by_size(results):
    """Return test errors by the number of training frames."""
    found = {}
    for key in results:
        name, of, size = key.removesuffix(" frames").partition(" of ")
        if of:
            found[name, int(size)] = f"{results[key]['test_icm']:.3f}"
    counts = sorted({size for _, size in found})
    names = [name for name in LEARNERS if any(name == other for other, _ in found)]
    rows = [[name, *(found.get((name, size), "") for size in counts)] for name in names]
    return [["learner", *(f"{size} frames" for size in counts)], *rows] if rows else []


def show(headings, rows):
    widths = [max(len(row[k]) for row in (headings, *rows)) for k in range(len(headings))]
    for row in (headings, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


# A task where margin and likelihood differ by construction ---------------------------------------------------------


def no_majority(n_chains, rng, length=10):
    """Return chains of nodes with one of three symbols; symbol k has label k with probability 0.4, others with 0.3.

    No label has a majority, and labels are independent given the symbols. The lowest possible error rate is 0.6. The
    hinge loss whose margin is the number of errors is minimal if all labels have equal scores.
    """
    symbol = rng.integers(3, size=(n_chains, length))
    shift = rng.choice(3, p=[0.4, 0.3, 0.3], size=symbol.shape)
    return np.eye(3)[symbol], (symbol + shift) % 3


def margin_task(options):
    print("learner          error rate (0.6 is the least, 0.667 is chance), scale of the weights")
    for seed in range(3):
        rng = np.random.default_rng(seed)
        (X, y), (X_test, y_test) = no_majority(1000, rng), no_majority(1000, rng)
        models = {
            "Likelihood": TRWCRF(),
            "PL": ContrastiveCRF(learning=ContrastiveTraining(generator=None)),
            "CCG(Gibbs-10+PL)": ContrastiveCRF(learning=ContrastiveTraining(generator="gibbs"), random_state=0),
            "CCG(MP+PL)": ContrastiveCRF(random_state=0),
            "CCG(MP-MV+PL)": ContrastiveCRF(learning=ContrastiveTraining(generator="map_mv"), random_state=0),
            "MM": M3NClassifier(random_state=0),
        }
        for name, model in models.items():
            model.fit(X, y)
            print(f"{name:16s} {1 - model.score(X_test, y_test):.3f}  {np.abs(model.coef_).max():.3f}", flush=True)


COMMANDS = {"run": run_all, "sizes": sizes, "drives": drives, "table": table, "margin": margin_task}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=sorted(COMMANDS))
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS))
    parser.add_argument("--frames", type=int, help="number of frames of each part; default: all")
    parser.add_argument("--sizes", nargs="+", type=int, default=[46, 92, 184])
    default = Path(__file__).parents[1] / "results" / "ccg_camvid" / "results.json"
    parser.add_argument("--results", type=Path, default=default)
    parser.add_argument("--save", type=Path, help="folder for the tables of the documentation")
    options = parser.parse_args()
    few = ["Independent", "PL", "MM(ICM-MV)", "CCG(MP-MV+PL)"]
    options.learners = options.learners or (few if options.what in ("sizes", "drives") else list(LEARNERS))
    warnings.simplefilter("ignore", ConvergenceWarning)
    COMMANDS[options.what](options)


if __name__ == "__main__":
    main()
