"""Edge features that depend on the distances between the neighbours of a lattice."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.encoding import SpacedEdges
from sklearn_crf.graphs import build_disjoint_union, lattice
from sklearn_crf.potentials import PairwiseTables

RNG = np.random.default_rng(0)
VOLUMES = RNG.normal(size=(4, 3, 4, 5, 2))
LABELS = (VOLUMES.sum(axis=-1) > 0).astype(int)
SPACING = 5.0, 1.0, 2.0


def spaced(**options):
    return PairwiseTables("symmetric", spacing=SPACING, **options)


def distances(graph):
    """Return the lengths of edges, computed from the positions of both nodes."""
    place = np.stack(np.unravel_index(graph.edges, graph.shape), axis=-1) * np.array(SPACING)
    return np.sqrt(((place[:, 0] - place[:, 1]) ** 2).sum(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edge_types", ["tied", "offset"])
@pytest.mark.parametrize("kind", ["constant", "difference"])
def test_edge_features_equal_distances_from_positions(kind, edge_types, dtype):
    options = {"C": 0.1, "max_iter": 5}
    values = VOLUMES.astype(dtype)
    field = TRWCRF(edge_features=kind, pairwise=spaced(edge_types=edge_types), **options).fit(values, LABELS)
    graph = lattice(values.shape[1:4])
    d = distances(graph)[:, np.newaxis]

    def by_hand(x):
        rows = x.reshape(-1, 2)
        contrast = np.abs(rows[graph.edges[:, 0]] - rows[graph.edges[:, 1]]) / d
        features = np.hstack([np.ones_like(d), 1 / d, *([contrast] if kind == "difference" else [])])
        edge_type = graph.lattice_edge_type if edge_types == "offset" else None
        return Example(rows, graph, features.astype(dtype), edge_type=edge_type)

    given = TRWCRF(pairwise=PairwiseTables("symmetric"), **options)
    given.fit([by_hand(x) for x in values], [y.ravel() for y in LABELS])
    assert_allclose(field.edge_coef_, given.edge_coef_, atol=1e-6 if dtype == np.float64 else 1e-3)
    proba = field.predict_proba(values[:1])[0].reshape(-1, 2)
    assert_allclose(proba, given.predict_proba([by_hand(values[0])])[0], atol=1e-6 if dtype == np.float64 else 1e-3)


@pytest.mark.parametrize("kind", ["constant", "difference"])
@pytest.mark.parametrize("unit", [1e-6, 2.0, 1e3])
def test_the_unit_of_the_spacing_does_not_matter(kind, unit):
    field = TRWCRF(edge_features=kind, pairwise=spaced()).fit(VOLUMES, LABELS)
    tables = PairwiseTables("symmetric", spacing=np.multiply(SPACING, unit))
    other = clone(field).set_params(pairwise=tables).fit(VOLUMES, LABELS)
    assert_allclose(other.edge_coef_, field.edge_coef_, atol=1e-8)
    assert_allclose(other.predict_proba(VOLUMES), field.predict_proba(VOLUMES), atol=1e-8)


@pytest.mark.parametrize("connectivity", [1, 2, 3, [[2, 0, -1], [0, 3, 0]]])
def test_lengths_of_diagonals(connectivity):
    parts = [lattice(shape, connectivity) for shape in ((3, 4, 5), (2, 6, 1), (3, 4, 5))]
    lengths = SpacedEdges(np.abs, SPACING).measure(build_disjoint_union(parts))
    assert_allclose(lengths, np.concatenate([distances(part) for part in parts]))


def decay(x_tail, x_head, distance=None):
    return np.exp(-distance)[:, np.newaxis]


@pytest.mark.parametrize("estimator", [DRFClassifier, M3NClassifier, ContrastiveCRF, TRWCRF])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_classifier_takes_spacing(estimator):
    for edge_features in ("auto", decay):
        field = estimator(edge_features=edge_features, pairwise=spaced(), max_iter=5)
        labels = clone(field).fit(VOLUMES, LABELS)
        assert labels.edge_coef_.shape[1] == (1 if edge_features is decay else 4)
        again = pickle.loads(pickle.dumps(labels))
        assert_array_equal(again.predict(VOLUMES), labels.predict(VOLUMES))
        # Volumes of other sizes have the same distances.
        assert labels.predict([VOLUMES[0][:2]])[0].shape == (2, 4, 5)


def test_unit_distances_keep_differences():
    unit = PairwiseTables("symmetric", spacing=(1, 1, 1))
    found = TRWCRF(edge_features="difference", pairwise=unit, max_iter=5).fit(VOLUMES, LABELS)
    plain = TRWCRF(edge_features="difference", pairwise=PairwiseTables("symmetric"), max_iter=5).fit(VOLUMES, LABELS)
    assert found.edge_coef_.shape[1] == plain.edge_coef_.shape[1] + 1


@pytest.mark.parametrize(
    ("spacing", "message"),
    [
        ((5.0, 1.0), "spacing has 2 numbers, but X holds lattices of 3 axes"),
        ((5.0, 1.0, 0.0), "spacing must be positive numbers"),
        ((5.0, np.nan, 1.0), "spacing must be"),
    ],
)
def test_wrong_spacing(spacing, message):
    with pytest.raises(ValueError, match=message):
        TRWCRF(pairwise=PairwiseTables(spacing=spacing)).fit(VOLUMES, LABELS)


def test_graphs_without_distances():
    loop = Example(np.eye(3), [[0, 1], [1, 2], [0, 2]])
    with pytest.raises(ValueError, match="spacing needs lattices of 3 axes, got a graph without offsets"):
        TRWCRF(pairwise=spaced()).fit([loop] * 2, [[0, 1, 0]] * 2)
    own = Example(np.eye(3), lattice((3,)), np.ones((2, 1)))
    with pytest.raises(ValueError, match="spacing is for computed edge features"):
        TRWCRF(pairwise=PairwiseTables(spacing=(1.0,))).fit([own] * 2, [[0, 1, 0]] * 2)
