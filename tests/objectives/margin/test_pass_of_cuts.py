"""Losses of best labelings by one cut for each lattice, compared with inference."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import DRFClassifier
from sklearn_crf.encoding import Batch, Example
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import ICM, AutoMap, GraphCut
from sklearn_crf.learning import SaddlePointTraining
from sklearn_crf.objectives import EmpiricalRisk, FastRisk, PlaneOracle, SaddlePoint, StructuredHinge
from sklearn_crf.objectives.margin._pass_of_cuts import PassOfCuts
from sklearn_crf.objectives.margin._planes import PlanesOfCuts
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form


def batches_of(shapes):
    rng = np.random.default_rng(0)
    found = []
    for i, shape in enumerate(shapes):
        graph = lattice(shape)
        features = rng.uniform(0.2, 1, size=(graph.n_edges, 2))
        example = Example(
            rng.normal(size=(graph.n_nodes, 3)),
            graph,
            features,
            edge_type=graph.lattice_edge_type.copy(),
        )
        labels = rng.integers(2, size=graph.n_nodes).astype(np.int32)
        found.append(Batch(example, np.array([i]), np.array([0, graph.n_nodes]), labels))
    return found


def potentials_of(batches, **options):
    n_edge_types = int(batches[0].example.edge_type.max()) + 1
    return LinearPotentials(
        3, 2, make_pairwise_form("potts", 2), n_edge_types=n_edge_types, n_edge_features=2, **options
    )


def submodular_weights(potentials):
    coef = np.random.default_rng(1).normal(size=potentials.n_coef)
    edge_coef = potentials.unpack(coef).edge_coef
    edge_coef[...] = np.abs(edge_coef)
    return coef


def apart(risk, coef):
    """Compute the risk by inference on the model of each batch."""
    return EmpiricalRisk(risk.objective, risk.potentials, risk.batches).value_grad(coef)


def by_path_alone(risk, coef):
    return PassOfCuts(risk).value_grad(risk, coef, None)


@pytest.mark.parametrize("shape", [(40,), (3, 4, 5)])
def test_chains_and_volumes(shape):
    batches = batches_of([shape] * 2)
    potentials = potentials_of(batches, fit_intercept=False)
    risk = FastRisk(SaddlePoint(GraphCut()), potentials, batches)
    coef = submodular_weights(potentials)
    found, expected = by_path_alone(risk, coef), apart(risk, coef)
    assert found.value == pytest.approx(expected.value)
    assert_allclose(found.gradient, expected.gradient, atol=1e-9)


@pytest.mark.parametrize("edge_weight", [0.0, -0.7], ids=["no edges", "not submodular"])
def test_what_is_no_cut_is_inferred(edge_weight):
    batches = batches_of([(6, 7), (4, 9)])
    potentials = potentials_of(batches)
    risk = FastRisk(SaddlePoint(AutoMap()), potentials, batches)
    coef = submodular_weights(potentials)
    potentials.unpack(coef).edge_coef[...] = edge_weight
    assert by_path_alone(risk, coef) is None
    found, expected = risk.value_grad(coef), apart(risk, coef)
    assert found.value == pytest.approx(expected.value)
    assert_allclose(found.gradient, expected.gradient)
    assert found.n_nonsubmodular == expected.n_nonsubmodular
    assert (found.n_nonsubmodular > 0) == (edge_weight < 0)


def test_scores_beyond_the_limit_are_the_error_of_models():
    batches = batches_of([(6, 7)])
    potentials = potentials_of(batches)
    risk = FastRisk(SaddlePoint(AutoMap()), potentials, batches)
    with pytest.raises(ValueError, match="in magnitude at most"):
        risk.value_grad(1e101 * submodular_weights(potentials))


def test_others_have_no_such_pass():
    batches = batches_of([(6, 7)])
    potentials = potentials_of(batches)
    general = Graph(42, batches[0].example.graph.edges)
    unlabelled = batches_of([(6, 7)])[0]
    unlabelled.labels[3] = -1
    small = batches_of([(2, 3)])
    example = batches[0].example
    assert PassOfCuts.applies(SaddlePoint(AutoMap()), potentials, batches)
    assert not PassOfCuts.applies(SaddlePoint(ICM()), potentials, batches)
    assert not PassOfCuts.applies(SaddlePoint(AutoMap()), potentials, [unlabelled])
    assert not PassOfCuts.applies(SaddlePoint(AutoMap()), potentials, small)  # by enumeration
    assert not PassOfCuts.applies(
        SaddlePoint(AutoMap()), LinearPotentials(3, 3, make_pairwise_form("potts", 3)), batches
    )
    of_graph = Batch(
        Example(example.node_features, general, example.edge_features, edge_type=example.edge_type),
        batches[0].members,
        batches[0].node_ptr,
        batches[0].labels,
    )
    assert not PassOfCuts.applies(SaddlePoint(AutoMap()), potentials, [of_graph])


def test_lattices_of_several_shapes_have_the_same_bits_for_any_number_of_threads():
    batches = batches_of([(6, 7), (12, 5), (3, 4, 5), (40,), (6, 7)])
    for batch in batches:
        batch.example.edge_type[...] %= 2
    batches[1] = replace(batches[1], weight=np.array([2.5]))
    potentials = potentials_of(batches)
    coef = submodular_weights(potentials)
    found = []
    for n_jobs in (1, 2, 3):
        risk = FastRisk(SaddlePoint(GraphCut()), potentials, batches, n_jobs=n_jobs)
        found.append(by_path_alone(risk, coef))
    for each in found[1:]:
        assert each.value == found[0].value
        assert_array_equal(each.gradient, found[0].gradient)
    expected = apart(risk, coef)
    assert found[0].value == pytest.approx(expected.value)
    assert found[0].n_errors == expected.n_errors
    assert_allclose(found[0].gradient, expected.gradient, atol=1e-9)


@pytest.mark.parametrize("members", [[0, 1, 2], [2], [1, 0]])
def test_planes_of_a_block_are_the_planes_of_its_batches(members):
    batches = batches_of([(6, 7), (12, 5), (9, 9)])
    potentials = potentials_of(batches)
    risk = FastRisk(StructuredHinge(GraphCut(), 1 - np.eye(2)), potentials, batches)
    coef = submodular_weights(potentials)
    found = PlanesOfCuts(risk, 0.7, np.ones(potentials.n_coef), [members])(0, coef)
    expected = PlaneOracle(risk, 0.7, np.ones(potentials.n_coef), [members])(0, coef)
    for part, of_batches in zip(found, expected, strict=True):
        assert_allclose(part, of_batches, atol=1e-9)


def test_fits_have_the_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(3)
    y = np.zeros((5, 12, 9), dtype=int)
    y[:, 3:8, 2:7] = 1
    X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 2))
    X.flags.writeable = False
    fits = [DRFClassifier(learning=SaddlePointTraining(), n_jobs=n_jobs, max_iter=30).fit(X, y) for n_jobs in (1, 2)]
    assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert_array_equal(fits[0].edge_coef_, fits[1].edge_coef_)
    assert_array_equal(fits[0].loss_curve_, fits[1].loss_curve_)
