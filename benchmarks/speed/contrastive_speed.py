"""Measure time and memory of stored assignments: 100 for each of 500 graphs of 300 nodes, on one thread.

    python benchmarks/speed/contrastive_speed.py [--graphs 500] [--assignments 100]

There are two kinds of assignments: results of iterated conditional modes from random labels, as constraint generation
stores them, and random labels, which are the worst case. "sets" is the computation of derivatives with respect to
scores from given scores. "risk" is the computation of the gradient with respect to weights from given weights. Times
are the shortest processor times of several repetitions.
"""

import argparse
import time
from itertools import pairwise

import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf._threads import limit_blas_threads
from sklearn_crf.encoding import Batch, Example
from sklearn_crf.graphs import build_disjoint_union, lattice
from sklearn_crf.inference import ICM
from sklearn_crf.objectives import AssignmentSets, ContrastiveSets, EmpiricalRisk, SetsOfBatches
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form

SHAPE = 15, 20
# The default of make_batches.
MOST_NODES = 4096


def training_batches(n_graphs, n_classes, rng):
    """Yield smooth random labels with noise, in batches of the estimator's size."""
    graph = lattice(SHAPE)
    fields = gaussian_filter(rng.normal(size=(n_graphs, n_classes, *SHAPE)), (0, 0, 2, 2))
    labels = fields.argmax(axis=1).reshape(n_graphs, -1).astype(np.int32)
    features = np.eye(n_classes)[labels] + rng.normal(size=(*labels.shape, n_classes))
    most = MOST_NODES // graph.n_nodes
    for start in range(0, n_graphs, most):
        members = np.arange(start, min(start + most, n_graphs))
        example = Example(features[members].reshape(-1, n_classes), build_disjoint_union([graph] * len(members)))
        yield Batch(example, members, graph.n_nodes * np.arange(len(members) + 1), labels[members].ravel())


def stored_assignments(kind, model, batch, n_assignments, rng):
    """Return the contrastive sets of a batch, one for each graph."""
    rows = rng.integers(model.n_columns, size=(n_assignments, len(batch.labels))).astype(np.int32)
    if kind == "local optima":
        rows = np.array([ICM().map(model, init=start).labels for start in rows])
    sets = AssignmentSets(model, batch.labels, batch.node_ptr)
    for member, (start, stop) in enumerate(pairwise(batch.node_ptr)):
        sets.add_set(model, np.concatenate((batch.labels[None, start:stop], rows[:, start:stop])), member=member)
    return sets


def least_time(function, n_repetitions=7):
    least = np.inf
    for _ in range(n_repetitions):
        before = time.process_time()
        function()
        least = min(least, time.process_time() - before)
    return 1000 * least


def measured(kind, coef, potentials, batches, n_assignments, rng):
    """Return one row of the table."""
    models = [potentials.model(coef, batch.example) for batch in batches]
    pairs = list(zip(models, batches, strict=True))
    sets = [stored_assignments(kind, model, batch, n_assignments, rng) for model, batch in pairs]
    risk = EmpiricalRisk(SetsOfBatches([ContrastiveSets(part) for part in sets]), potentials, batches)
    with limit_blas_threads():
        of_sets = least_time(lambda: [part.terms_and_statistics(m) for part, m in zip(sets, models, strict=True)])
        of_risk = least_time(lambda: risk.value_grad(coef))
    n_stored, megabytes = sum(part.n_assignments for part in sets), sum(part.nbytes for part in sets) / 1e6
    return f"{n_stored} stored, {megabytes:5.1f} MB, sets {of_sets:5.1f} ms, risk {of_risk:5.1f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=500)
    parser.add_argument("--assignments", type=int, default=100)
    options = parser.parse_args()
    print(f"{options.graphs} graphs of {np.prod(SHAPE)} nodes, {options.assignments} assignments each; one thread")
    for n_classes in (2, 8):
        rng = np.random.default_rng(0)
        batches = list(training_batches(options.graphs, n_classes, rng))
        potentials = LinearPotentials(n_classes, n_classes, make_pairwise_form("full", n_classes))
        coef = potentials.pack(
            np.eye(n_classes)[-potentials.n_columns :], np.zeros(potentials.n_columns), np.eye(n_classes).ravel()
        )
        for kind in ("local optima", "random labels"):
            row = measured(kind, coef, potentials, batches, options.assignments, rng)
            print(f"{n_classes} states, {kind:13s}: {row}", flush=True)


if __name__ == "__main__":
    main()
