"""Margins and solvers of M3NClassifier: objective and test accuracy against time, and training on large data.

``multi`` is a segmentation into four states, with a weight for every pair of states. Some neighbouring regions have
states that avoid each other, and no inference is exact. ``binary`` is a segmentation into two states with associative
weights, for which minimum cuts are exact and the relaxation is tight. Every margin is trained to one tolerance after
the other, each time from the beginning, until ``--limit`` seconds of processor time are over. All weights are evaluated
by the same objective, the linear relaxation at temperature zero. This objective is computed by dual decomposition, so
it is never too small, and is printed relative to the highest dual value that any method proved. Results are stored in
``--json``, and drawn by ``figure``.

``size`` trains on 1,000 examples of 200 nodes and 8 states with the default solver, on one thread and on two threads.
``chains`` trains all solvers with their default tolerance of 0.01 on artificial chains of several sizes, with C=1.
``chunks`` trains Frank-Wolfe to several gaps, the bundle method and ``TRWCRF`` on 1,000 sentences of CoNLL-2000 with
sparse features. This is repeated once, and each time the next 500 sentences of the training part are the test data.
``threads`` measures the time of a pass of solvers that process mini-batches or all examples in a pass. One and two
threads are measured alternately, because other programs may use the machine; the shortest of three times counts.

    python benchmarks/papers/m3n_recipes.py multi|binary [--limit 30] [--json m3n_recipes.json]
    python benchmarks/papers/m3n_recipes.py figure [--json m3n_recipes.json] [--output docs/_static/m3n_recipes.png]
    python benchmarks/papers/m3n_recipes.py size|chains|chunks|threads
"""

import argparse
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.exceptions import ConvergenceWarning
from support.memory import peak_megabytes
from support.record import read_record, write_record

from sklearn_crf import TRWCRF, M3NClassifier
from sklearn_crf.inference import AD3, IncMP
from sklearn_crf.learning import JointMargin, ReparameterizedMargin, SmoothedMargin
from sklearn_crf.preprocessing import SequenceVectorizer

TOLERANCES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)

# Names in figures, and their parameters.
CONTENDERS = {
    "max_margin, cutting_plane": {"solver": "cutting_plane"},
    "max_margin, one_slack": {"solver": "one_slack"},
    "max_margin, frank_wolfe": {"solver": "frank_wolfe"},
    "max_margin, bmrm": {"solver": "bmrm"},
    "max_margin, subgradient": {"solver": "subgradient"},
    "relaxed_margin, cutting_plane": {"learning": "relaxed_margin", "solver": "cutting_plane"},
    "relaxed_margin, bmrm": {"learning": "relaxed_margin", "solver": "bmrm"},
    "dual_margin": {"learning": "dual_margin"},
    "smoothed_margin, T = 0.1": {"learning": SmoothedMargin(temperature=0.1)},
    "smoothed_margin, T = 0.01": {"learning": SmoothedMargin(temperature=0.01)},
    "reparameterized_margin, T = 0.1": {"learning": ReparameterizedMargin(temperature=0.1)},
    "reparameterized_margin, IncMP": {
        "learning": ReparameterizedMargin(temperature=0),
        "inference": IncMP(max_iter=500, tol=1e-6),
    },
    "joint_margin, T = 0.1": {"learning": JointMargin(temperature=0.1)},
}


def regions(n, side, n_states, rng):
    """Return labels of smooth regions."""
    fields = gaussian_filter(rng.normal(size=(n_states, n, side, side)), (0, 0, 1.5, 1.5))
    return fields.argmax(axis=0)


def multi():
    """Return four states on 10 x 10 pixels, one-hot with noise; states 0 and 2 are swapped on every other column."""
    rng = np.random.default_rng(0)
    y = regions(30, 10, 4, rng)
    swapped = np.where(y == 0, 2, np.where(y == 2, 0, y))
    y = np.where(np.arange(10) % 2 == 1, swapped, y)
    X = np.eye(4)[y] + 1.2 * rng.normal(size=(*y.shape, 4))
    return X[:10], y[:10], X[10:], y[10:], {"C": 0.02, "pairwise": "full"}


def binary():
    """Return two states on 16 x 16 pixels, with one noisy feature."""
    rng = np.random.default_rng(1)
    y = regions(30, 16, 2, rng)
    X = y[..., None] + rng.normal(size=(*y.shape, 1))
    return X[:10], y[:10], X[10:], y[10:], {"C": 0.02, "pairwise": "associative"}


TASKS = {"multi": multi, "binary": binary}


def relaxed_objective(model, X, y):
    """Return an upper bound on half the squared weights plus C times the relaxed hinges of a fitted model."""
    judging = {"learning": "relaxed_margin", "inference": AD3(tol=1e-5), "solver": "bmrm"}
    parameters = model.get_params(deep=False) | judging
    judge = M3NClassifier(**parameters | {"warm_start": True, "max_iter": 1, "tol": 0.0})
    fitted = {name: value for name, value in vars(model).items() if name.endswith("_")}
    judge.__dict__.update(fitted)
    judge.fit(X, y)
    return float(judge.loss_curve_[0] + judge.duality_gap_ - (judge.loss_curve_[-1] - judge.dual_curve_[-1]))


def compare(name, limit, path, only):
    """Record every contender at every tolerance."""
    X, y, X_test, y_test, settings = TASKS[name]()
    results = read_record(path, {})
    results.setdefault(name, {})
    for contender, parameters in CONTENDERS.items():
        if only not in contender:
            continue
        if contender == "dual_margin" and settings["pairwise"] == "associative":
            continue  # this solver has no bounds on weights
        rows = results[name][contender] = []
        for tol in TOLERANCES:
            model = M3NClassifier(
                **settings, **parameters, edge_features="constant", tol=tol, max_iter=300, random_state=0
            )
            start = time.process_time()
            model.fit(X, y)
            seconds = time.process_time() - start
            rows.append(
                {
                    "tol": tol,
                    "seconds": seconds,
                    "objective": relaxed_objective(model, X, y),
                    "dual": float(model.dual_curve_[-1]),
                    "calls": int(model.n_inference_calls_),
                    "accuracy": model.score(X_test, y_test),
                }
            )
            words = "  ".join(f"{key} {value:.5g}" for key, value in rows[-1].items())
            print(f"{name}: {contender:31s} {words}", flush=True)
            write_record(path, results)
            if seconds > limit / 4:
                break


def draw(path, output):
    """Draw both tasks: the objective above the best bound, and errors on test images, against seconds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = read_record(path, {})
    if not results:
        raise SystemExit(f"{path} holds no results: run 'multi' or 'binary' first")
    figure, axes = plt.subplots(2, len(results), figsize=(11, 7), layout="constrained", sharex="col", squeeze=False)
    styles = {
        contender: {"marker": marker, "color": f"C{k % 10}", "markersize": 5, "linewidth": 1, "label": contender}
        for k, (contender, marker) in enumerate(zip(CONTENDERS, "os>D^Pvx*hp1<", strict=True))
    }
    for column, (name, contenders) in zip(axes.T, results.items(), strict=True):
        # Cutting planes of labelings also lie below the relaxed hinge losses, so any of their dual values is a bound.
        bound = max(row["dual"] for rows in contenders.values() for row in rows)
        for contender in [known for known in CONTENDERS if known in contenders]:
            rows = contenders[contender]
            seconds = [row["seconds"] for row in rows]
            column[0].loglog(seconds, [row["objective"] / bound - 1 + 1e-6 for row in rows], **styles[contender])
            column[1].semilogx(seconds, [100 * (1 - row["accuracy"]) for row in rows], **styles[contender])
        column[0].set(title=name)
        column[1].set(xlabel="seconds of the processor")
    axes[0, 0].set(ylabel="objective above the best bound")
    axes[1, 0].set(ylabel="wrong pixels of test images [%]")
    handles = {label: line for axis in axes[0] for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(output, dpi=120)


def large(n_examples=1000):
    """Return chains of 200 nodes with 8 states."""
    rng = np.random.default_rng(0)
    steps = rng.random((n_examples, 200)) < 0.2
    y = np.cumsum(steps * rng.integers(1, 8, size=steps.shape), axis=1) % 8
    return np.eye(8)[y] + rng.normal(size=(*y.shape, 8)), y


def large_grids(n_examples=1000):
    """Return grids of 10 x 20 nodes with 8 states and Potts weights."""
    rng = np.random.default_rng(0)
    fields = gaussian_filter(rng.normal(size=(8, n_examples, 10, 20)), (0, 0, 1.5, 1.5))
    y = fields.argmax(axis=0)
    return np.eye(8)[y] + rng.normal(size=(*y.shape, 8)), y


def report_fit(name, X, y, **options):
    """Time and print one fit; the ratio of processor to clock time tells how many processors were busy."""
    model = M3NClassifier(C=1.0 / len(X), edge_features="constant", random_state=0, **options)
    start, start_wall = time.process_time(), time.perf_counter()
    model.fit(X, y)
    seconds, wall = time.process_time() - start, time.perf_counter() - start_wall
    print(
        f"{name:34s} n_jobs={options['n_jobs']}  {seconds:7.2f} s of processors, {wall:7.2f} s, "
        f"{seconds / wall:.2f} busy  gap {model.duality_gap_ / model.loss_curve_.min():.2g} of the objective "
        f"after {model.n_iter_}  peak {peak_megabytes():.0f} MB",
        flush=True,
    )


def size():
    """Time the default solver on large data: chains with full tables, and grids with Potts weights."""
    for name, make, options in (("chains", large, {"pairwise": "full"}), ("grids", large_grids, {})):
        X, y = make()
        for n_jobs in (1, 2):
            report_fit(f"1,000 {name} of 200 nodes, 8 states", X, y, n_jobs=n_jobs, tol=1e-2, **options)


# Chains, their nodes, states and features, and the noise of the features.
CHAINS = [
    (60, 150, 3, 2, 1.0),
    (1000, 10, 3, 5, 1.5),
    (300, 30, 5, 10, 2.0),
    (20, 500, 2, 4, 2.0),
    (2000, 20, 4, 3, 1.0),
    (100, 40, 8, 20, 2.5),
    (200, 25, 10, 8, 1.5),
]


def noisy_chains(n, n_nodes, n_states, n_features, noise):
    """Return chains whose states change at one node in twenty; the test part is half as large as the training part."""
    rng = np.random.default_rng(1)
    centres, changes = rng.normal(size=(n_states, n_features)), rng.random((n * 3 // 2, n_nodes)) < 0.05
    changes[:, 0] = True
    latest = np.maximum.accumulate(np.where(changes, np.arange(n_nodes), 0), axis=1)
    y = np.take_along_axis(rng.integers(n_states, size=changes.shape), latest, axis=1)
    X = centres[y] + noise * rng.normal(size=(*y.shape, n_features))
    return X[:n], y[:n], X[n:], y[n:]


def chains(only):
    """Print seconds, objective and accuracy of every solver on chains."""
    for sizes in CHAINS:
        X, y, X_test, y_test = noisy_chains(*sizes)
        for solver in ("cutting_plane", "one_slack", "bmrm"):
            if only not in solver:
                continue
            model = M3NClassifier(solver=solver, tol=0.01)
            start = time.process_time()
            model.fit(X, y)
            print(
                f"{sizes[0]} x {sizes[1]} nodes, {sizes[2]} states, {sizes[3]} features, {solver:14s}"
                f"{time.process_time() - start:7.2f} s  objective {model.loss_curve_[-1]:9.2f}  gap "
                f"{model.duality_gap_ / model.loss_curve_[-1]:.3f}  right {model.score(X_test, y_test):.4f}",
                flush=True,
            )


def chunks(only):
    """Print seconds and accuracy of solvers on sentences with sparse features, and of maximum likelihood."""
    from support.peer_tagging import read_chunks

    X, y = read_chunks("train", 3000)
    y = [np.array(labels) for labels in y]
    halves = []
    for first in (0, 1500):
        learned, tested = slice(first, first + 1000), slice(first + 1000, first + 1500)
        vectorizer = SequenceVectorizer()
        halves.append((vectorizer.fit_transform(X[learned]), y[learned], vectorizer.transform(X[tested]), y[tested]))
    contenders = {
        f"{solver} to {tol}": M3NClassifier(solver=solver, tol=tol, random_state=0)
        for solver, tol in (("frank_wolfe", 0.5), ("frank_wolfe", 0.2), ("frank_wolfe", 0.05), ("bmrm", 0.01))
    }
    for C in (0.1, 1.0, 10.0):
        for name, model in (contenders | {"TRWCRF": TRWCRF()}).items():
            if only not in name:
                continue
            seconds, right = 0.0, []
            for features, labels, *tested in halves:
                start = time.process_time()
                model.set_params(C=C).fit(features, labels)
                seconds += time.process_time() - start
                right.append(model.score(*tested))
            print(f"C={C:<4} {name:20s}{seconds / 2:7.2f} s  right {100 * np.mean(right):.2f} %", flush=True)


def seconds_of_passes(X, y, options, n_repeats=3):
    """Return the shortest times of three passes minus the times of one pass, on one thread and on two alternately."""
    least = {}
    for _ in range(n_repeats):
        for n_jobs in (1, 2):
            for max_iter in (1, 3):
                model = M3NClassifier(
                    C=1.0 / len(X), edge_features="constant", random_state=0, max_iter=max_iter, tol=0.0, n_jobs=n_jobs,
                    **options,
                )  # fmt: skip
                start = time.perf_counter()
                model.fit(X, y)
                seconds = time.perf_counter() - start
                least[n_jobs, max_iter] = min(least.get((n_jobs, max_iter), np.inf), seconds)
    return [(least[n_jobs, 3] - least[n_jobs, 1]) / 2 for n_jobs in (1, 2)]


def threads(only):
    """Time one and two threads, for each solver that splits its passes or mini-batches among threads."""
    for name, make, settings in (("chains", large, {"pairwise": "full"}), ("grids", large_grids, {})):
        X, y = make()
        for solver in ("bmrm", "cutting_plane", "subgradient"):
            if only in f"{name} {solver}":
                one, two = seconds_of_passes(X, y, {"solver": solver, **settings})
                print(
                    f"{name:7s} {solver:14s} a pass {1e3 * one:7.1f} ms on one thread, {1e3 * two:7.1f} ms on two: "
                    f"{one / two:.2f} times less",
                    flush=True,
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=[*TASKS, "figure", "size", "chains", "chunks", "threads"])
    parser.add_argument("--limit", type=float, default=30.0, help="processor seconds for each method")
    parser.add_argument("--only", default="", help="run only methods whose name contains this text")
    parser.add_argument("--json", type=Path, default=Path("m3n_recipes.json"))
    parser.add_argument("--output", type=Path, default=Path("docs/_static/m3n_recipes.png"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if options.part in TASKS:
        compare(options.part, options.limit, options.json, options.only)
    elif options.part == "figure":
        draw(options.json, options.output)
    elif options.part == "size":
        size()
    else:
        {"chains": chains, "chunks": chunks, "threads": threads}[options.part](options.only)


if __name__ == "__main__":
    main()
