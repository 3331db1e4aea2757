"""Compare fits with scores of durations and features of runs with plain chains, and measure one long sequence.

    python benchmarks/speed/segments.py --record segments.json    # a quarter of an hour

The data are activities of three to twelve labels with durations of 6 to 30 steps and noisy features. Each pair of fits
runs alternately, ``--repeats`` times; ``--features`` names the features of runs, where ``none`` stands for durations
alone. The script prints medians of processor times, the iterations, the fraction of
correct nodes on new sequences, and the ratio of the times of one iteration. For one long sequence of ``--steps`` steps,
the script prints processor times and additional memory of the best labeling and of the marginals. An interrupted run
continues from its record. ``--flash 2000`` only compares the log-partition and its gradient of one sequence of 2,000
steps with those of flash-semicrf, which must be installed, on one thread.
"""

import argparse
import time
from functools import partial
from itertools import product
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.memory import forget_peak, peak_megabytes
from support.record import recorded

from sklearn_crf import TRWCRF, M3NClassifier
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import AutoMap, AutoMarginals
from sklearn_crf.models import PairwiseModel, SegmentModel
from sklearn_crf.potentials import PairwiseTables, Segments

CLASSIFIERS = {"TRWCRF": TRWCRF, "M3NClassifier": M3NClassifier}


def activities(n_sequences, n_classes, seed, n_steps=500):
    """Return features and labels of sequences in which each activity takes 6 to 30 steps."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n_sequences):
        labels, label = [], int(rng.integers(n_classes))
        while len(labels) < n_steps:
            labels += [label] * int(rng.integers(6, 31))
            label = (label + int(rng.integers(1, n_classes))) % n_classes
        y.append(np.array(labels[:n_steps]))
        X.append(np.eye(n_classes)[y[-1]] + rng.normal(scale=2.0, size=(n_steps, n_classes)))
    return X, y


def fitted(estimator, train, test):
    """Return the processor seconds and iterations of a fit, and its share of right nodes on new sequences."""
    start = time.process_time()
    estimator.fit(*train)
    seconds = time.process_time() - start
    return {"seconds": seconds, "iterations": int(estimator.n_iter_), "right": float(estimator.score(*test))}


def compared(name, n_classes, n_durations, features, repeats):
    """Return the medians of fits of a plain chain and of a chain with segments, run in turn."""
    train, test = activities(40, n_classes, 0), activities(40, n_classes, 1)
    segments = PairwiseTables("full", segments=Segments(n_durations, features=None if features == "none" else features))
    kinds = {"plain": "full", "segments": segments}
    runs = [{k: fitted(CLASSIFIERS[name](pairwise=v), train, test) for k, v in kinds.items()} for _ in range(repeats)]
    found = {k: {what: float(np.median([run[k][what] for run in runs])) for what in runs[0][k]} for k in kinds}
    each = [part["seconds"] / part["iterations"] for part in found.values()]
    return {
        **found,
        "ratio of fits": found["segments"]["seconds"] / found["plain"]["seconds"],
        "ratio": each[1] / each[0],
    }


def of_long_sequence(n_steps, n_classes, n_durations):
    """Return the processor seconds of inference on one sequence, and the memory beyond its scores in MB."""
    rng = np.random.default_rng(0)
    pairwise = PairwiseModel(lattice((n_steps,)), rng.normal(size=(n_steps, n_classes)), [np.eye(n_classes)])
    model = SegmentModel(pairwise, rng.normal(size=(n_classes, n_durations)))
    found = {"scores, MB": model.unary.nbytes / 2**20}
    for name, run in {"map": AutoMap().map, "marginals": AutoMarginals().marginals}.items():
        forget_peak()
        before, start = peak_megabytes(), time.process_time()
        run(model)
        found[name] = {"seconds": time.process_time() - start, "MB": peak_megabytes() - before}
    return found


def beside_flash_semicrf(n_steps, n_classes, n_durations):
    """Return processor seconds of the log-partition and its gradient, by flash-semicrf and by this package."""
    import flash_semicrf
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    unary, table, durations = (rng.normal(size=(n, n_classes)) for n in (n_steps, n_classes, n_durations))
    np.fill_diagonal(table, -1e9)  # flash-semicrf joins equal labels of successive runs unless they are forbidden
    sums = np.concatenate([np.zeros((1, n_classes)), unary.cumsum(axis=0)])[np.newaxis]
    inputs = [torch.tensor(scores, requires_grad=True) for scores in (sums, table, durations)]
    length, start = torch.tensor([n_steps]), time.process_time()
    options = {"semiring": "log", "use_triton": False}
    theirs = flash_semicrf.semi_crf_streaming_forward(*inputs, length, n_durations, **options)
    theirs.sum().backward()
    found = {"flash-semicrf": time.process_time() - start}
    unary[0] += np.logaddexp.reduce(table, axis=0)  # flash-semicrf begins with a transition
    np.fill_diagonal(table, 0.0)
    by_duration = np.concatenate([durations, np.full((1, n_classes), -np.inf)]).T  # no longer runs
    model = SegmentModel(PairwiseModel(lattice((n_steps,)), unary, table[np.newaxis]), by_duration)
    start = time.process_time()
    ours = AutoMarginals().marginals(model)
    return found | {"ours": time.process_time() - start, "difference": abs(ours.log_z - theirs.item())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--durations", type=int, nargs="+", default=[5, 20, 50])
    parser.add_argument("--classes", type=int, nargs="+", default=[3, 12])
    parser.add_argument("--features", nargs="+", default=["none", "ends", "mean"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10**6)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--flash", type=int, metavar="STEPS", help="compare one sequence with flash-semicrf")
    arguments = parser.parse_args()
    if arguments.flash:
        for n_classes, n_durations in product(arguments.classes, arguments.durations):
            run = partial(beside_flash_semicrf, arguments.flash, n_classes, n_durations)
            key = f"flash-semicrf, {arguments.flash} steps, {n_classes} labels, {n_durations} durations"
            print(key, recorded(arguments.record, key, run), flush=True)
        return
    for n_classes in arguments.classes:
        for n_durations in arguments.durations:
            size = f"{n_classes} labels, {n_durations} durations"
            for name, features in product(CLASSIFIERS, arguments.features):
                run = partial(compared, name, n_classes, n_durations, features, arguments.repeats)
                # Records of fits without features have no part for features.
                key = f"{name}, {size}" + ("" if features == "none" else f", {features}")
                print(key, recorded(arguments.record, key, run), flush=True)
            key = f"{arguments.steps} steps, {size}"
            run = partial(of_long_sequence, arguments.steps, n_classes, n_durations)
            print(key, recorded(arguments.record, key, run), flush=True)


if __name__ == "__main__":
    main()
