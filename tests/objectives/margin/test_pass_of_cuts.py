"""Losses of best labelings by one cut of each lattice: the same as by inference, scores and statistics apart."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import DRFClassifier
from sklearn_crf.encoding import Batch, Example
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import ICM, AutoMap, GraphCut
from sklearn_crf.learning import SaddlePointTraining
from sklearn_crf.objectives import EmpiricalRisk, FastRisk, PlaneOracle, SaddlePoint, StructuredHinge, plane_oracle
from sklearn_crf.objectives.margin._pass_of_cuts import PassOfCuts
from sklearn_crf.potentials import LinearPotentials, pairwise_form

COST = np.array([[0.0, 2.0], [0.5, 0.0]])


def batches_of(shapes, *, n_edge_features=2, connectivity=1, dtype=np.float64, weighted=False, node_weight=False):
    rng = np.random.default_rng(0)
    found = []
    for i, shape in enumerate(shapes):
        graph = lattice(shape, connectivity)
        features = rng.uniform(0.2, 1, size=(graph.n_edges, n_edge_features)).astype(dtype)
        example = Example(
            rng.normal(size=(graph.n_nodes, 3)).astype(dtype),
            graph,
            features if n_edge_features else None,
            edge_type=graph.lattice_edge_type.copy(),
        )
        labels = rng.integers(2, size=graph.n_nodes).astype(np.int32)
        of_nodes = rng.uniform(size=graph.n_nodes) if node_weight else None
        weight = np.array([1.5 + i]) if weighted else None
        found.append(Batch(example, np.array([i]), np.array([0, graph.n_nodes]), labels, weight, of_nodes))
    return found


def potentials_of(batches, form="potts", **options):
    example = batches[0].example
    n_edge_features = 1 if example.edge_features is None else example.edge_features.shape[1]
    options = {"n_edge_types": int(example.edge_type.max()) + 1, "n_edge_features": n_edge_features} | options
    return LinearPotentials(3, 2, pairwise_form(form, 2), **options)


def submodular_weights(potentials, seed=1):
    coef = np.random.default_rng(seed).normal(size=potentials.n_coef)
    edge_coef = potentials.unpack(coef).edge_coef
    edge_coef[...] = np.abs(edge_coef)
    return coef


def apart(risk, coef):
    """The risk by inference on the model of each batch."""
    return EmpiricalRisk(risk.objective, risk.potentials, risk.batches).value_grad(coef)


def by_path_alone(risk, coef):
    return PassOfCuts(risk).value_grad(risk, coef, None)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_edge_features": 0},
        {"n_edge_features": 1},
        {"connectivity": 2},
        {"weighted": True},
        {"node_weight": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("cost", [None, COST], ids=["saddle point", "hinge"])
def test_the_same_as_apart(options, cost, dtype):
    batches = batches_of([(6, 7), (6, 7), (4, 9)], dtype=dtype, **options)
    potentials = potentials_of(batches)
    objective = SaddlePoint(AutoMap()) if cost is None else StructuredHinge(GraphCut(), cost)
    risk = FastRisk(objective, potentials, batches)
    assert risk.path == PassOfCuts.name
    coef = submodular_weights(potentials)
    found, expected = risk.value_grad(coef), apart(risk, coef)
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    assert_allclose(found.value, expected.value, rtol=tolerance)
    assert_allclose(found.gradient, expected.gradient, rtol=tolerance, atol=tolerance)
    assert found.n_errors == pytest.approx(expected.n_errors)
    assert found.converged
    assert found.n_nonsubmodular == expected.n_nonsubmodular == found.gap == 0
    assert found.gradient.dtype == np.float64


@pytest.mark.parametrize("shape", [(40,), (3, 4, 5)])
def test_chains_and_volumes(shape):
    batches = batches_of([shape] * 2)
    potentials = potentials_of(batches, fit_intercept=False)
    risk = FastRisk(SaddlePoint(GraphCut()), potentials, batches)
    coef = submodular_weights(potentials)
    found, expected = by_path_alone(risk, coef), apart(risk, coef)
    assert found.value == pytest.approx(expected.value)
    assert_allclose(found.gradient, expected.gradient, atol=1e-9)


def test_the_gradient_is_that_of_the_value():
    batches = batches_of([(5, 6)])
    potentials = potentials_of(batches, form="full")
    risk = FastRisk(StructuredHinge(AutoMap(), COST), potentials, batches)
    coef = 0.1 * submodular_weights(potentials)
    edge_coef = potentials.unpack(coef).edge_coef
    edge_coef[..., [1, 2]] -= 1
    step = 1e-6 * np.random.default_rng(2).normal(size=len(coef))
    found = by_path_alone(risk, coef)
    ahead, behind = (by_path_alone(risk, coef + sign * step).value for sign in (1, -1))
    assert (ahead - behind) / 2 == pytest.approx(found.gradient @ step, rel=1e-6)


def test_some_batches_and_any_number_of_threads():
    batches = batches_of([(6, 7), (5, 5), (6, 7), (4, 9)])
    potentials = potentials_of(batches)
    coef = submodular_weights(potentials)
    found = [FastRisk(SaddlePoint(AutoMap()), potentials, batches, n_jobs=n_jobs).value_grad(coef) for n_jobs in (1, 3)]
    assert found[0].value == found[1].value
    assert_array_equal(found[0].gradient, found[1].gradient)
    risk = FastRisk(SaddlePoint(AutoMap()), potentials, batches)
    some = risk.value_grad(coef, [1, 3])
    assert some.value == pytest.approx(sum(risk.oracle(i, coef).value for i in (1, 3)))


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


@pytest.mark.parametrize("options", [{}, {"weighted": True}, {"node_weight": True}, {"dtype": np.float32}], ids=str)
@pytest.mark.parametrize("edge_weight", [None, -0.7], ids=["cuts", "not submodular"])
def test_planes_are_those_of_inference(options, edge_weight):
    batches = batches_of([(6, 7), (4, 9)], **options)
    potentials = potentials_of(batches)
    coef, blocks = submodular_weights(potentials), [[0, 1]]
    if edge_weight is not None:
        potentials.unpack(coef).edge_coef[...] = edge_weight
    scale = np.random.default_rng(2).uniform(0.5, 2, size=potentials.n_coef)
    quick = plane_oracle(EmpiricalRisk(StructuredHinge(AutoMap(), COST), potentials, batches), 0.3, scale, blocks)
    apart = PlaneOracle(EmpiricalRisk(StructuredHinge(AutoMap(), COST), potentials, batches), 0.3, scale, blocks)
    assert (quick._cuts.plane(0, coef) is None) == (edge_weight is not None)
    tolerance = 1e-4 if batches[0].example.node_features.dtype == np.float32 else 1e-9
    for found, expected in zip(quick(0, coef / scale), apart(0, coef / scale), strict=True):
        assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


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
    assert not PassOfCuts.applies(SaddlePoint(AutoMap()), LinearPotentials(3, 3, pairwise_form("potts", 3)), batches)
    of_graph = Batch(
        Example(example.node_features, general, example.edge_features, edge_type=example.edge_type),
        batches[0].members,
        batches[0].node_ptr,
        batches[0].labels,
    )
    assert not PassOfCuts.applies(SaddlePoint(AutoMap()), potentials, [of_graph])


class _Silent(SaddlePoint):
    """A rule of a user with another loss."""

    def loss_statistics(self, *arguments, **options):
        loss = super().loss_statistics(*arguments, **options)
        return loss._replace(terms=0.0 * loss.terms)


def test_subclasses_keep_their_own_loss():
    batches = batches_of([(6, 7)])
    potentials = potentials_of(batches)
    assert FastRisk(_Silent(AutoMap()), potentials, batches).value_grad(submodular_weights(potentials)).value == 0


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
