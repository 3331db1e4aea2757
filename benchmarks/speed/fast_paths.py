"""Gain of each fast path: time of an evaluation of the objective with and without the path, on one thread.

    python benchmarks/speed/fast_paths.py [--repetitions 7]      # a minute

Every path of ``objectives/fast_paths.py`` evaluates data for which it was written. Without the path, the next
applicable path or the general computation is used. Both run alternately, and the shortest processor time of several
repetitions counts. A path should be removed if it is less than 1.3 times as fast.
"""

import argparse
import time

import _path  # noqa: F401  finds the support package
import numpy as np
import scipy.sparse as sp

from sklearn_crf._threads import limit_blas_threads
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import AutoMap, TightenBound, TreeInference, TRWMessagePassing
from sklearn_crf.inference.messages._with_fallback import MarginalsWithFallback
from sklearn_crf.learning import ContrastiveTraining
from sklearn_crf.learning._growing_sets import PlannedSets
from sklearn_crf.objectives import (
    EmpiricalRisk,
    Likelihood,
    Pseudolikelihood,
    RelaxedLikelihood,
    StructuredHinge,
)
from sklearn_crf.objectives.fast_paths import (
    FAST_PATHS,
    FOREST_DUALS,
    FORESTS,
    PLANES,
    applying,
    general_path_only,
    plane_oracle,
)
from sklearn_crf.potentials import (
    FeaturePairs,
    LinearPotentials,
    SparsePotentials,
    convert_to_feature_columns,
    make_pairwise_form,
)


def sparse_chains(objective, n_sentences=800, n_features=20_000, n_classes=9):
    """Return the risk of sentences with 15 sparse features for each word."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 40, n_sentences)
    X = [rows(rng, n, n_features) for n in lengths]
    encoded = encode_X(X, edge_features="constant", edge_types="tied")
    labels = encode_y([rng.integers(n_classes, size=n) for n in lengths], encoded).labels
    batches = make_batches(
        encoded, labels, max_nodes=4096, prepare=lambda example: convert_to_feature_columns(example, 1)
    )
    pairs = FeaturePairs.all(n_features, n_classes)
    potentials = SparsePotentials(pairs, n_features, n_classes, make_pairwise_form("full", n_classes))
    return EmpiricalRisk(objective, potentials, batches, n_jobs=1)


def chains(objective, n_sentences=400, n_features=10, n_classes=2):
    """Return the risk of sequences with dense features."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 40, n_sentences)
    X = [rng.normal(size=(n, n_features)) for n in lengths]
    encoded = encode_X(X, edge_features="constant", edge_types="tied")
    labels = encode_y([rng.integers(n_classes, size=n) for n in lengths], encoded).labels
    potentials = LinearPotentials(n_features, n_classes, make_pairwise_form("full", n_classes))
    return EmpiricalRisk(objective, potentials, make_batches(encoded, labels, max_nodes=4096), n_jobs=1)


def rows(rng, n, n_features, n_of_node=15):
    """Return a CSR matrix with the value 1 at random places, with the most frequent features first."""
    column = (n_features * rng.random((n, n_of_node)) ** 4).astype(int)
    return sp.csr_matrix((np.ones(column.size), (np.repeat(np.arange(n), n_of_node), column.ravel())), (n, n_features))


def pictures(make_objective, n_classes, n_images=40, side=32):
    """Return the risk of images with six features for each pixel."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=(n_images, side, side))
    X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 6))
    encoded = encode_X(X, edge_features="difference", edge_types="offset")
    labels = encode_y(y, encoded)
    batches = make_batches(encoded, labels.labels, max_nodes=4096)
    potentials = LinearPotentials(
        6, n_classes, make_pairwise_form("potts", n_classes), n_edge_features=encoded.n_edge_features,
        n_edge_types=encoded.n_edge_types,
    )  # fmt: skip
    return EmpiricalRisk(make_objective(encoded, labels, batches, potentials), potentials, batches, n_jobs=1)


def plain_rows(n_rows=50_000, n_features=20, n_classes=3):
    """Return the risk of rows of a table."""
    rng = np.random.default_rng(0)
    encoded = encode_X(rng.normal(size=(n_rows, n_features)), lattice_ndim=0)
    labels = encode_y(rng.integers(n_classes, size=n_rows), encoded).labels
    potentials = LinearPotentials(n_features, n_classes, make_pairwise_form("potts", n_classes))
    return EmpiricalRisk(Likelihood(TreeInference()), potentials, make_batches(encoded, labels), n_jobs=1)


def hinge(*_, n_classes=2):
    return StructuredHinge(AutoMap(), 1.0 - np.eye(n_classes))


def relaxed(*_):
    return RelaxedLikelihood(MarginalsWithFallback(TRWMessagePassing("covering", tol=1e-3), TightenBound()))


def with_sets(encoded, labels, batches, potentials):
    """Return the risk of the pseudolikelihood and a set of twelve labelings of each image."""
    planned = PlannedSets(ContrastiveTraining(), encoded.n_examples, labels)
    objective, rng, zeros = planned.objective(encoded, batches, potentials), np.random.default_rng(1), np.zeros
    for batch, sets in zip(batches, objective.sets, strict=True):
        model = potentials.model(zeros(potentials.n_coef), batch.example)
        for member, (start, stop) in enumerate(zip(batch.node_ptr[:-1], batch.node_ptr[1:], strict=True)):
            truth = batch.labels[start:stop]
            changed = rng.random((12, stop - start)) < 0.05
            drawn = np.where(changed, rng.integers(potentials.n_classes, size=changed.shape), truth)
            sets.add_set(model, [truth, *drawn], member=member)
    return objective


RISKS = {
    "chains": lambda: sparse_chains(Likelihood(TreeInference())),
    "graphs": lambda: pictures(relaxed, 3),
    "nodes given neighbours": lambda: pictures(lambda *_: Pseudolikelihood(), 3),
    "nodes without edges": plain_rows,
    "minimum cuts of lattices": lambda: pictures(hinge, 2),
    "nodes and sets": lambda: pictures(with_sets, 3),
    "pooled pullback": lambda: sparse_chains(Pseudolikelihood(), n_features=200_000),
}

PLANES_OF = {
    "planes of forests": lambda: chains(hinge()),
    "duals of sparse forests": lambda: sparse_chains(hinge(n_classes=9), n_sentences=100, n_features=500),
    "minimum cuts of lattices": RISKS["minimum cuts of lattices"],
}


def weights_of(risk):
    """Return small random weights under which edges prefer equal labels."""
    coef = 0.1 * np.random.default_rng(2).normal(size=risk.potentials.n_coef)
    edge_coef = risk.potentials.unpack(coef).edge_coef
    edge_coef[...] = np.abs(edge_coef)
    return coef


def ways_of_risk(path):
    """Return two functions that evaluate all batches: with a path, and without it."""
    risk = RISKS[path.name]()
    coef = weights_of(risk)
    first, *others = applying(FAST_PATHS, risk.objective, risk.potentials, risk.batches)
    assert first is path
    quick = path(risk)
    if not others:
        return lambda: quick.value_grad(risk, coef, None), lambda: risk.value_grad(coef)
    next_one = others[0](risk)
    return lambda: quick.value_grad(risk, coef, None), lambda: next_one.value_grad(risk, coef, None)


def ways_of_planes(kind):
    """Return two functions that compute the cutting planes of all batches: with a fast path, and without it."""
    risk = PLANES_OF[kind.name]()
    coef, ones = weights_of(risk), np.ones(risk.potentials.n_coef)
    with general_path_only():
        general = plane_oracle(risk, 1.0, ones)
    quick = plane_oracle(risk, 1.0, ones, by_dual=True)
    assert type(quick) is kind
    return lambda: of_all(quick, coef[quick.places]), lambda: of_all(general, coef)


def of_all(oracle, x):
    for block in range(len(oracle.sizes)):
        oracle(block, x)


def least_times(ways, repetitions):
    """Return the least processor time of each function, in seconds."""
    least = [np.inf] * len(ways)
    for _ in range(repetitions):
        for k, way in enumerate(ways):
            start = time.process_time()
            way()
            least[k] = min(least[k], time.process_time() - start)
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    print(f"{'path':36s}{'with':>10s}{'without':>10s}{'gain':>7s}")
    cases = [(path.name, ways_of_risk(path)) for path in FAST_PATHS]
    cases += [(f"planes by {kind.name}", ways_of_planes(kind)) for kind in FORESTS + FOREST_DUALS + PLANES]
    for name, ways in cases:
        with limit_blas_threads():
            quick, slow = least_times(ways, options.repetitions)
        print(f"{name:36s}{1e3 * quick:7.2f} ms{1e3 * slow:7.2f} ms{slow / quick:7.1f}")


if __name__ == "__main__":
    main()
