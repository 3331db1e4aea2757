"""Table 1 of Kumar, August & Hebert (2005): learning rules under three inferences.

The protocol follows the paper: binary images of 64 x 64 pixels, features [1, I] of pixels and [1, |I_i - I_j|] of
pairs, ten noisy copies of one shape for training, 50 copies of each of four shapes for testing, and two models of
noise. Every learning rule is combined with every inference algorithm. Rules that do not converge are run from several
random starts. The paper's images are not available, and the shapes of this benchmark differ, so only compare the
order of the entries. In addition to the paper's five rules with the paper's step size, the benchmark has steps of a
chosen size, SPA from the weights of single pixels, SPA as a convex problem, PMA by tree-reweighted marginals, and
pseudolikelihood with a penalty on edges. Nothing is chosen on test images: the step size is the size with which the
first start of a rule has the fewest errors on training images, and the penalty is chosen by the errors of MPM on
training images. Times are CPU seconds on one thread.

    python benchmarks/papers/drf_table1.py                  # all parts
    python benchmarks/papers/drf_table1.py --parts table    # without times, scales and starts
    python benchmarks/papers/drf_table1.py --quick          # two starts, 40 test images
    python benchmarks/papers/drf_table1.py --parts table --records table1.json    # continues an interrupted run
    python benchmarks/papers/drf_table1.py --parts table --rows "PMA" "SPA, convex"
    python benchmarks/papers/drf_table1.py --parts table --records table1.json --save docs/results/drf_table1
"""

import argparse
import copy
import time
import warnings
from functools import partial
from pathlib import Path
from typing import NamedTuple

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.stats import wilcoxon
from sklearn.exceptions import ConvergenceWarning
from support.record import read_record, write_record

from sklearn_crf import DRFClassifier
from sklearn_crf.datasets import make_binary_shapes, make_noisy_shapes
from sklearn_crf.inference import LoopyBP
from sklearn_crf.learning import LEARNINGS, GradientSteps
from sklearn_crf.potentials import PairwiseTables

NOISES = ("gaussian", "bimodal")
# The paper's 1e-5 times the sum over 10 * 64 * 64 pixels, as a step along their mean.
PAPER_STEP = 0.41
# Without a loss, only the ratio of steps to initial weights matters. The paper's initial weights are unknown.
STEPS = (0.1, PAPER_STEP, 2.0)
INFERENCES = ("map", "mpm", "icm")
PARTS = ("table", "times", "scales", "starts")
# In the paper, learning by SPA takes 300 times the seconds of its minimum cuts; some trajectories need more steps.
MAX_ITER = 400
# Inverse strengths of a penalty on edges to choose from.
EDGE_CS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
# Inference of each learning rule; pl and cd need no inference. MMA only needs the most probable labels, which converge
# long before the marginals (section 6 of the paper), so few sweeps are enough.
LEARNS_WITH = {"pma": "mpm", "spa": "map", "mma": LoopyBP(max_iter=20), "pl": "mpm", "cd": "mpm"}


class Row(NamedTuple):
    """One way of learning."""

    rule: str
    # Candidate options; the first start's errors on training images choose among them.
    options: tuple = ({},)
    # Rules with a loss begin where the estimator begins, the other rules at several random starts. Contrastive
    # divergence begins at the weights of single pixels, with several seeds: elsewhere its gradient nearly vanishes long
    # before it converges.
    starts: str = "one"


FIXED = ({"step_size": PAPER_STEP},)
ROWS = {
    "PMA": Row("pma"),
    "PMA, tree-reweighted": Row("pma", ({"inference": "trw"},)),
    "SPA, paper's step": Row("spa", FIXED, "random"),
    "SPA, chosen step": Row("spa", tuple({"step_size": step} for step in STEPS), "random"),
    "SPA, own start": Row("spa", FIXED),
    "SPA, convex": Row("spa", ({"solver": "bundle"},)),
    "MMA, paper's step": Row("mma", FIXED, "random"),
    "MMA, chosen step": Row("mma", tuple({"step_size": step} for step in STEPS), "random"),
    "PL": Row("pl"),
    "PL, penalty on edges": Row("pl", tuple({"pairwise": PairwiseTables("ising", C=C)} for C in EDGE_CS)),
    "CD": Row("cd", FIXED, "seeds"),
}
# Rows for testing the paper's claims: the paper's rules with its step, and the best variant of each rule.
AS_PRINTED = {"pma": "PMA", "spa": "SPA, paper's step", "mma": "MMA, paper's step", "pl": "PL", "cd": "CD"}
AT_BEST = {
    "pma": "PMA",
    "spa": "SPA, own start",
    "mma": "MMA, chosen step",
    "pl": "PL, penalty on edges",
    "cd": "CD",
}
# Per cent of wrong test pixels by MAP, MPM and ICM, and seconds of learning, as printed in the paper.
PAPER = {
    "gaussian": {
        "pma": (2.73, 2.51, 3.91),
        "spa": (2.49, 7.64, 3.98),
        "mma": (34.34, 2.96, 4.11),
        "pl": (3.82, 3.10, 3.89),
        "cd": (3.78, 2.82, 4.09),
    },
    "bimodal": {
        "pma": (6.45, 5.48, 17.39),
        "spa": (5.82, 19.19, 14.88),
        "mma": (26.53, 5.70, 16.00),
        "pl": (17.69, 7.31, 22.22),
        "cd": (8.88, 6.29, 8.92),
    },
}


class Data(NamedTuple):
    """Training and test images of one noise model."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class Cell(NamedTuple):
    """One entry of the table."""

    errors: np.ndarray  # (n_starts, n_test) shares of wrong pixels
    length: float  # neighbours that differ, predicted over true: below 1 is too smooth, above 1 too rough

    @property
    def percent(self):
        """Mean error in per cent."""
        return 100 * self.errors.mean()

    @property
    def spread(self):
        """Standard deviation over starts, in per cent."""
        return 100 * self.errors.mean(axis=1).std()


def make_data(noise, n_train, n_test):
    """Return noisy copies of the first shape for training, and of all four shapes for testing."""
    names = make_binary_shapes().names
    X_train, y_train, _ = make_noisy_shapes(noise, n_train, shapes=names[:1], random_state=0)
    X_test, y_test, _ = make_noisy_shapes(noise, n_test // len(names), random_state=1)
    return Data(X_train, y_train, X_test, y_test)


def learn(rule, data, **parameters):
    """Return the fitted estimator of one rule and its seconds; options belong to the rule or to the estimator."""
    kind = LEARNINGS[{"pl": "pseudolikelihood"}.get(rule, rule)]
    own = {name: parameters.pop(name) for name in kind().get_params() if name in parameters}
    as_printed = {"step_schedule": "constant", "edge_scale": 1}
    own = {name: value for name, value in as_printed.items() if name in kind().get_params()} | own
    estimator = DRFClassifier(
        learning=kind(**own), **{"inference": LEARNS_WITH[rule], "pairwise": "ising", **parameters}
    )
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(data.X_train, data.y_train)
    return estimator, time.process_time() - start


def use(estimator, inference, data):
    """Return labels of the test images by an inference, which may differ from the inference used in learning."""
    other = copy.copy(estimator).set_params(inference=inference)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return other.predict(data.X_test)


def error_rates(labels, y):
    """Return the share of wrong pixels of each image."""
    return np.mean(labels != y, axis=(1, 2))


def boundary_length(labels):
    """Count the pairs of neighbours with different labels, over all images."""
    return np.sum(labels[:, 1:] != labels[:, :-1]) + np.sum(labels[:, :, 1:] != labels[:, :, :-1])


def weight_norm(estimator):
    """Return the Euclidean norm of all weights."""
    parts = (estimator.coef_, estimator.intercept_, estimator.edge_coef_)
    return float(np.sqrt(sum(np.sum(np.square(part)) for part in parts)))


def run(noise, names, n_starts, n_test, record, save):
    """Yield the table's entries for one noise model; ``record`` holds the entries of earlier runs."""
    data = make_data(noise, 10, n_test)
    for name in names:
        row = ROWS[name]
        key = f"{noise}, {name}, {n_starts} starts, {n_test} images"
        if key not in record:
            record[key] = measure(row, data, n_starts)
            save()
        found = record[key]
        seconds = f"{np.mean(found['learning_seconds']):.1f} s to learn, {found['seconds']:.0f} s in all"
        print(f"  {noise}, {name}: {found['options']}, {seconds}", *found["weights"], sep="\n    ", flush=True)
        yield name, found


def measure(row, data, n_starts):
    """Return the results of one learning method as plain lists and numbers."""
    begin = time.process_time()
    options, runs = learn_row(row, data, n_starts)
    found = {
        "options": repr(options),
        "learning_seconds": [seconds for _, seconds in runs],
        "weights": [described(estimator, data) for estimator, _ in runs],
        "entries": {},
    }
    for inference in INFERENCES:
        labels = [use(estimator, inference, data) for estimator, _ in runs]
        found["entries"][inference] = {
            "wrong": [np.sum(each != data.y_test, axis=(1, 2)).tolist() for each in labels],
            "length": np.mean([boundary_length(each) for each in labels]) / boundary_length(data.y_test),
        }
    return {**found, "seconds": time.process_time() - begin}


def learn_row(row, data, n_starts):
    """Return the chosen options, and one run for each start."""
    first = [(options, learn(row.rule, data, **start_of(row, 0), **options)) for options in row.options]
    counts = [training_errors(row, estimator, data) for _, (estimator, _) in first] if len(first) > 1 else [0]
    options, run_of_first = first[int(np.argmin(counts))]
    seeds = range(1, n_starts if row.starts != "one" else 1)
    return options, [run_of_first, *(learn(row.rule, data, **start_of(row, seed), **options) for seed in seeds)]


def start_of(row, seed):
    """Return the options that set a run's start and its largest number of iterations."""
    if row.starts == "random":
        return {"init": "random", "random_state": seed, "max_iter": MAX_ITER}
    return {"random_state": seed, "max_iter": MAX_ITER}


def training_errors(row, estimator, data):
    """Count the wrong training pixels, by the rule's own inference if it has one."""
    if row.rule in ("spa", "mma"):
        return np.min(estimator.error_curve_)
    return np.sum(estimator.predict(data.X_train) != data.y_train)


def described(estimator, data):
    """Describe the learned weights and how training went."""
    weights = np.concatenate([estimator.intercept_, estimator.coef_.ravel(), estimator.edge_coef_.ravel()])
    errors = np.nanmin(np.append(estimator.error_curve_, np.inf)) / data.y_train.size
    counted = f"{100 * errors:5.2f} % of training pixels wrong" if np.isfinite(errors) else "errors not counted"
    return f"{np.round(weights, 2)} {counted}, {estimator.n_iter_} iterations"


def cells_of(found, n_pixels=64 * 64):
    """Return the entries of one record by inference."""
    return {
        inference: Cell(np.array(entry["wrong"]) / n_pixels, entry["length"])
        for inference, entry in found["entries"].items()
    }


def table_of(noise, cells, learning_seconds):
    """Return the figures of this package beside the figures of the paper, headings first."""
    paper = {row: PAPER[noise][rule] for rule, row in AS_PRINTED.items()}
    rows = [["learned by", *(name.upper() for name in INFERENCES), "CPU seconds to learn", "in the paper"]]
    for name, entries in cells.items():
        texts = [
            f"{entry.percent:.2f}" + (f" ± {entry.spread:.2f}" if len(entry.errors) > 1 else "")
            for entry in entries.values()
        ]
        printed = " / ".join(f"{value:.2f}" for value in paper[name]) if name in paper else ""
        rows.append([name, *texts, f"{learning_seconds[name]:.1f}", printed])
    return rows


def is_better(first, second):
    """Return whether one entry has fewer errors, and the p-value of a Wilcoxon test paired over test images."""
    difference = first.errors.mean(axis=0) - second.errors.mean(axis=0)
    p = wilcoxon(difference).pvalue if np.any(difference) else 1.0
    return bool(difference.mean() < 0 and p < 0.01), p


def claims_of(cells, learning_seconds):
    """Return the paper's statements with verdicts, for its step and for each rule at its best, headings first."""
    columns = (AS_PRINTED, AT_BEST)
    better = [("map", "spa", other) for other in ("pma", "mma", "pl", "cd")]
    better += [("mpm", best, other) for best in ("pma", "mma") for other in ("spa", "pl", "cd")]

    def claim(words, verdict_of, *rules):
        # Only rows that were asked for.
        return [
            words,
            *(
                verdict_of(*(row[rule] for rule in rules)) if {row[rule] for rule in rules} <= cells.keys() else ""
                for row in columns
            ),
        ]

    rows = [["the paper says", "with its step", "each rule at its best"]]
    for inference, best, other in [*better, ("mpm", "pma", "mma")]:
        rows.append(
            claim(
                f"{inference.upper()}: {best.upper()} beats {other.upper()}",
                lambda first, second, name=inference: compared(cells[first][name], cells[second][name]),
                best,
                other,
            )
        )
    smooth, rough = "MAP with MMA's weights is too smooth", "MPM with SPA's weights is too rough"
    rows.append(claim(smooth, lambda row: verdict(cells[row]["map"].length, "<", 0.9), "mma"))
    rows.append(claim(rough, lambda row: verdict(cells[row]["mpm"].length, ">", 1.1), "spa"))
    rows.append(
        claim(
            "SPA learns ten times as fast as PMA",
            lambda spa, pma: verdict(learning_seconds[pma] / learning_seconds[spa], ">", 10),
            "spa",
            "pma",
        )
    )
    return [row for row in rows if any(row[1:])]


def compared(first, second):
    """Return a sentence that compares two entries of a column."""
    better, p = is_better(first, second)
    return f"{'holds' if better else 'does not hold'}: {first.percent:.2f} against {second.percent:.2f}, p = {p:.1g}"


def verdict(value, relation, bound):
    """Return a sentence that compares a number with a bound."""
    holds = value > bound if relation == ">" else value < bound
    return f"{'holds' if holds else 'does not hold'}: {value:.2f} {relation} {bound:.2f}"


def show(rows):
    """Print a table with columns as wide as their entries."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_scales(noise, n_test):
    """Print SPA's weights from a zero start: the step sets their scale, which affects MPM but not MAP."""
    data = make_data(noise, 10, n_test)
    print(f"\n{noise} noise: SPA from zero, by step_size")
    for step_size in (0.016, 0.08, 0.41, 2.0, 10.0):
        estimator, _ = learn("spa", data, init="zeros", step_size=step_size, max_iter=300)
        found = [use(estimator, name, data) for name in ("map", "mpm")]
        wrong = [100 * error_rates(labels, data.y_test).mean() for labels in found]
        length = boundary_length(found[1]) / boundary_length(data.y_test)
        norm, errors = weight_norm(estimator), estimator.error_curve_.min()
        print(f"  step {step_size:6.3f}: |w| {norm:8.2f}, training errors {errors:.0f}, ", end="")
        print(f"MAP {wrong[0]:6.2f} %, MPM {wrong[1]:6.2f} %, boundary length of MPM {length:.2f}")


def print_times(noise):
    """Print the seconds of equally many steps of equal length, as in the paper, and the seconds to a good MAP."""
    data = make_data(noise, 10, 4)
    cycling = {"step_size": PAPER_STEP, "n_cycles": 1000}
    smooth = {"solver": GradientSteps(step_size=PAPER_STEP)}
    steps = {"pma": smooth, "spa": cycling, "mma": cycling}
    seconds = {rule: learn(rule, data, max_iter=100, tol=0.0, **own)[1] for rule, own in steps.items()}
    print(f"\n{noise} noise: 100 gradient steps", ", ".join(f"{rule} {each:.1f} s" for rule, each in seconds.items()))
    print("  PMA over SPA,", verdict(seconds["pma"] / seconds["spa"], ">", 10))
    print("  PMA over MMA,", verdict(seconds["pma"] / seconds["mma"], ">", 1))
    runs = {
        "SPA, random start": learn("spa", data, init="random", step_size=STEPS[0], max_iter=MAX_ITER, random_state=0),
        "SPA, unary start": learn("spa", data, step_size=PAPER_STEP, max_iter=150),
        "PMA, gradient steps, random start": learn(
            "pma", data, init="random", random_state=0, max_iter=300, tol=0.0, **smooth
        ),
        "PMA, L-BFGS": learn("pma", data),
    }
    curves = {name: map_error_curve(estimator, data) for name, (estimator, _) in runs.items()}
    good = 1.05 * min(curve.min() for curve in curves.values())
    print(f"  until MAP's errors on five training images are within 5 % of the fewest, {100 * good:.2f} %")
    for name, (estimator, spent) in runs.items():
        reached = np.flatnonzero(curves[name] <= good)
        each = spent / estimator.n_iter_
        found = f"{reached[0] + 1} iterations, {each * (reached[0] + 1):.2f} s" if len(reached) else "never"
        print(f"    {name}: {found} ({estimator.n_iter_} iterations in all, at best {100 * curves[name].min():.2f} %)")


def map_error_curve(estimator, data):
    """Return the share of wrong pixels by MAP at each iterate, or each fourth if they are many; infinity elsewhere."""
    curve = np.full(estimator.n_iter_, np.inf)
    for i in range(0, estimator.n_iter_, 4 if estimator.n_iter_ > 40 else 1):
        visited = copy.copy(estimator).set_params(inference="map")
        flat = estimator.coef_path_[i]
        visited.coef_, visited.intercept_ = flat[:1].reshape(1, 1), flat[1:2]
        visited.edge_coef_ = flat[2:].reshape(estimator.edge_coef_.shape)
        curve[i] = error_rates(visited.predict(data.X_train[:5]), data.y_train[:5]).mean()
    return curve


def print_pma_starts(noise, n_starts, n_test):
    """Print PMA from random weights, where loopy belief propagation gives its loss several minima."""
    data = make_data(noise, 10, n_test)
    print(f"\n{noise} noise: PMA from random starts")
    runs = [learn("pma", data, init="random", random_state=seed) for seed in range(n_starts)]
    print(*(f"  {described(estimator, data)}, {seconds:.1f} s" for estimator, seconds in runs), sep="\n")
    found = [100 * error_rates(use(estimator, "mpm", data), data.y_test).mean() for estimator, _ in runs]
    print("  MPM on test images:", ", ".join(f"{each:.2f} %" for each in found))


def main():
    """Print all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two starts, 40 test images")
    parser.add_argument("--noise", choices=NOISES, help="only this noise model")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help="rows of the table to compute"
    )
    parser.add_argument("--records", type=Path, help="file for records, from which an interrupted run continues")
    parser.add_argument("--save", type=Path, help="folder for the tables of the documentation")
    arguments = parser.parse_args()
    n_starts, n_test = (2, 40) if arguments.quick else (3, 200)
    record = read_record(arguments.records, {})
    for noise in [arguments.noise] if arguments.noise else NOISES:
        if "table" in arguments.parts:
            save = partial(write_record, arguments.records, record)
            found = dict(run(noise, arguments.rows, n_starts, n_test, record, save))
            print_table(noise, found, arguments.save)
        if "times" in arguments.parts:
            print_times(noise)
        if "scales" in arguments.parts:
            print_scales(noise, n_test)
        if "starts" in arguments.parts:
            print_pma_starts(noise, n_starts, n_test)


def print_table(noise, found, folder):
    """Print the table of one noise model and the paper's claims; also write them to a folder, unless it is None."""
    cells = {name: cells_of(entry) for name, entry in found.items()}
    seconds = {name: float(np.mean(entry["learning_seconds"])) for name, entry in found.items()}
    tables = {f"{noise}": table_of(noise, cells, seconds), f"{noise}_claims": claims_of(cells, seconds)}
    print(f"\n{noise} noise: wrong test pixels in per cent, +- over starts; the paper's by MAP / MPM / ICM")
    for name, rows in tables.items():
        show(rows)
        print()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            write_record(folder / f"table_{name}.json", rows)
    print("Length of boundaries, predicted / true:")
    for name, entries in cells.items():
        print(f"  {name:22}" + "".join(f"{entry.length:8.2f}" for entry in entries.values()))


if __name__ == "__main__":
    main()
