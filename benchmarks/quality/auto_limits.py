"""Test the automatic choices on 35 difficult families with fresh seeds, against the truth and toulbar2.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/auto_limits.py [--models 2] [--seed 123] \
        [--tasks marginals estimates labelings lengths files] [--families ...] [--toulbar2 2 10 60 | --toulbar2]

The families are defined in ``support/hard_families.py``. Every run draws new models and prints its seed; ``--seed``
repeats a run. The task ``files`` uses the models of the UAI 2014 competition in the data folder.

``marginals`` prints the number of table cells that elimination needs, whether elimination is affordable (two seconds
and 1 GB), and whether ``AutoMarginals`` was exact. If it was not exact, and elimination fits into 8 GB, the mean error
is printed, and whether there was a warning. ``estimates`` prints the true mean error of marginals that are not exact
(messages or parallel tempering), over nodes or over factors, and its estimate, and for all models the fraction of
estimates that are not too low, and the median ratio. ``labelings`` prints score, bound and seconds of ``AutoMap``, and
the score of toulbar2 after each of the given seconds. "worse" counts the models on which ``AutoMap`` has a lower score
than toulbar2 after ten times the time of ``AutoMap``, or after the longest given time. ``lengths`` prints the accuracy
of a default ``TRWCRF`` on sequences of two rows, for which message passing was once used from 2,000 nodes on. Times are
processor seconds. A run takes about ten minutes without toulbar2. toulbar2 takes all given seconds on models that it
does not solve, 2 and 10 by default. ``--toulbar2`` without seconds omits it; it is also omitted if pytoulbar2 is not
installed.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.hard_families import ESTIMATED, LABELED, SUMMED
from support.toulbar2 import is_installed, solve

from sklearn_crf import TRWCRF
from sklearn_crf.datasets import read_evidence, read_uai
from sklearn_crf.inference import AutoMap, AutoMarginals, JunctionTree, exact_inference
from sklearn_crf.inference._results import compare_statistics
from sklearn_crf.models import clamped, score

LENGTHS = (500, 1000, 1900, 2100, 4000, 10_000)


def timed(call):
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def warned(call):
    """Return the result of a call, and the number of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return call(), len(caught)


def summed(name, model):
    """Print one line of marginals; return whether elimination was affordable, and whether it was used."""
    affordable = exact_inference(model) is not None
    (found, n_warnings), seconds = timed(lambda: warned(lambda: AutoMarginals().marginals(model)))
    error = "exact" if found.bound == "exact" else error_of(model, found)
    print(
        f"{name:<26}{'affordable' if affordable else 'too wide':<12}{found.method:<34}{seconds:7.2f} s  {error}"
        f"{'  warned' if n_warnings else ''}",
        flush=True,
    )
    return affordable, found.bound == "exact"


def estimated(name, model):
    """Print one line of an error estimate; return the estimate and the true mean error."""
    found = AutoMarginals()._run_belief_propagation(model, None, 1)
    exact = JunctionTree(max_width=40, max_memory=8e9).marginals(model)
    error = compare_statistics(model, found, exact)
    print(f"{name:<26}{found.method:<34}error {error:.4f}, estimate {found.error:.4f}", flush=True)
    return found.error, error


def error_of(model, found):
    try:
        exact = JunctionTree(max_width=40, max_memory=8e9).marginals(model)
    except ValueError:
        return "truth not known"
    apart = np.abs(found.unary - exact.unary).sum(axis=1) / 2
    return f"mean error {apart.mean():.3f}, largest {apart.max():.2f}, log Z off by {found.log_z - exact.log_z:.2f}"


def labeled(name, model, limits):
    """Print one labeling; return whether it is proven best, and whether toulbar2 is better in ten times the time."""
    found, seconds = timed(lambda: AutoMap().map(model))
    line = f"{name:<26}{found.score:12.6g} <={found.bound:12.6g}{seconds:7.2f} s"
    rivals = []
    for limit in limits:
        labels, proven, used = solve(model, limit)
        value = -np.inf if labels is None else score(model, labels)
        line += f"  toulbar2 {value:.6g}{' proven' if proven else ''} {used:.1f} s"
        if used <= 10 * seconds or not rivals:
            rivals.append(value)
        if proven:
            break
    is_worse = found.score < max(rivals, default=-np.inf) - 1e-6 * max(1.0, abs(found.score))
    print(f"{line}{'  WORSE' if is_worse else ''}", flush=True)
    return found.certified, is_worse


def sequences(n_nodes, rng):
    """Return two rows of labels that persist along and across, and noisy features of the labels."""
    length = n_nodes // 2
    labels = np.cumsum(rng.random(length) < 0.1) % 2
    both = np.stack((labels, np.where(rng.random(length) < 0.1, 1 - labels, labels)))
    return both[..., None] + 1.2 * rng.normal(size=(2, length, 1)), both


def accuracy(n_nodes, rng):
    """Return the accuracy on sequences of one length, of a default field trained on short sequences."""
    train = [sequences(300, rng) for _ in range(10)]
    test = [sequences(n_nodes, rng) for _ in range(max(2, 20_000 // n_nodes))]
    field = TRWCRF().fit([x for x, _ in train], [y for _, y in train])
    return field.score([x for x, _ in test], [y for _, y in test])


def files():
    """Yield the models of the competition with their evidence, by name."""
    folder = Path(os.environ["SKLEARN_CRF_DATA"]) / "uai2014"
    for path in sorted(folder.glob("*/*.uai.gz")):
        model, evidence = read_uai(path), path.with_suffix("").with_suffix(".uai.evid")
        yield (
            path.name.removesuffix(".uai.gz"),
            clamped(model, read_evidence(evidence, model.n_nodes)) if (evidence.exists()) else model,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=2, help="number of models of each family")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--tasks", nargs="*", default=["marginals", "labelings", "lengths"])
    parser.add_argument("--families", nargs="*")
    parser.add_argument("--toulbar2", nargs="*", type=int, default=[2, 10], metavar="SECONDS")
    options = parser.parse_args()
    options.toulbar2 = options.toulbar2 if options.toulbar2 and is_installed() else []
    print(f"--seed {options.seed}")

    def drawn(families):
        for name, make in families.items():
            for number in range(options.models if not options.families or name in options.families else 0):
                yield f"{name} / {number}", make(np.random.default_rng([options.seed, number]))

    if "marginals" in options.tasks:
        results = np.array([summed(name, model) for name, model in drawn(SUMMED)])
        print(f"{len(results)} models, {results[:, 0].sum()} affordable, {results.all(axis=1).sum()} of them exact\n")
    warnings.simplefilter("ignore")
    if "estimates" in options.tasks:
        estimates, errors = np.array([estimated(name, model) for name, model in drawn(ESTIMATED)]).T
        counted = errors > 1e-3
        n_high, ratio = (estimates >= 0.99 * errors)[counted].sum(), np.median((estimates / errors)[counted])
        print(f"{len(errors)} models, {counted.sum()} of them with errors above 0.001")
        print(f"{n_high} of these estimates are not too low, median ratio {ratio:.2f}\n")
    if "labelings" in options.tasks:
        results = np.array([labeled(name, model, options.toulbar2) for name, model in drawn(LABELED)])
        print(f"{len(results)} models, {results[:, 0].sum()} proven, {results[:, 1].sum()} worse than toulbar2\n")
    if "files" in options.tasks:
        for name, model in files():
            summed(name, model)
            labeled(name, model, options.toulbar2)
    if "lengths" in options.tasks:
        for n_nodes in LENGTHS:
            print(
                f"two rows, {n_nodes:>6} nodes: accuracy {accuracy(n_nodes, np.random.default_rng(options.seed)):.3f}"
            )


if __name__ == "__main__":
    main()
