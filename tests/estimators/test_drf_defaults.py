"""DRFClassifier with default options: no warnings, at least the accuracy of independent nodes, and its inference."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from field_data import noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from sklearn_crf import ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.datasets import make_noisy_digits, make_noisy_shapes
from sklearn_crf.encoding import Batch, make_trusted_example
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import TightenBound, TRWMessagePassing
from sklearn_crf.inference.messages._with_fallback import MarginalsWithFallback
from sklearn_crf.learning import PseudoMarginalTraining
from sklearn_crf.learning._few_labels import restrict_risk_to_labels
from sklearn_crf.learning._training import _build_node_risk
from sklearn_crf.objectives import EmpiricalRisk, RelaxedLikelihood, SoftmaxMargin
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form


def squares(noise):
    """Return twenty noisy images of a square, and their labels."""
    y = np.zeros((20, 16, 16), dtype=int)
    y[:, 4:12, 4:12] = 1
    X = y[..., np.newaxis] + np.random.default_rng(0).normal(scale=noise, size=(20, 16, 16, 1))
    return X, y


def digits():
    """Return small images, on which elimination is affordable."""
    X, y, _ = make_noisy_digits(24, random_state=0)
    return X, y


def shapes(noise):
    """Return two images of 64 x 64 pixels."""
    X, y, _ = make_noisy_shapes(noise, 2, shapes=["key"], random_state=0)
    return X, y


def balls():
    """Return volumes."""
    rng = np.random.default_rng(0)
    place = np.stack(np.mgrid[:8, :8, :8], axis=-1)
    y = np.array([np.linalg.norm(place - rng.uniform(2, 6, 3), axis=-1) < 3 for _ in range(8)]).astype(int)
    return y[..., np.newaxis] + rng.normal(scale=0.7, size=(*y.shape, 1)), y


def three_regions():
    """Return images of three classes."""
    rows, columns = np.mgrid[:18, :18]
    y = np.array([np.where(rows < 6 + k, 0, np.where(columns < 12 - k, 1, 2)) for k in range(6)])
    return np.eye(3)[y] + np.random.default_rng(0).normal(size=(*y.shape, 3)), y


def sticky_chains():
    """Return sequences whose state changes every tenth step."""
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.random((40, 40)) < 0.1, axis=1) % 3
    return np.eye(3)[y] + rng.normal(size=(40, 40, 3)), y


TASKS = {
    "clean squares": lambda: squares(0.05),
    "noisy squares": lambda: squares(0.7),
    "digits": digits,
    "gaussian shapes": lambda: shapes("gaussian"),
    "bimodal shapes": lambda: shapes("bimodal"),
    "balls": balls,
    "three regions": three_regions,
    "chains": sticky_chains,
}


def flat(X, y):
    """Return the values of all nodes as one array."""
    return np.concatenate([np.reshape(x, (-1, np.shape(x)[-1])) for x in X]), np.concatenate([np.ravel(a) for a in y])


@pytest.mark.parametrize("task", TASKS)
def test_defaults_are_silent_and_not_below_the_nodes_alone(task):
    X, y = TASKS[task]()
    half = len(X) // 2
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        field = DRFClassifier().fit(X[:half], y[:half])
        accuracy = field.score(X[half:], y[half:])
    alone = LogisticRegression(max_iter=1000).fit(*flat(X[:half], y[:half]))
    assert accuracy >= alone.score(*flat(X[half:], y[half:]))


@pytest.mark.parametrize(
    ("side", "inference"), [(4, "mpm"), (24, "trw")], ids=["elimination is affordable", "it is not"]
)
def test_the_training_graphs_choose_the_inference(side, inference):
    X, y = noisy_blobs(2, side)
    field = DRFClassifier().fit(X, y)
    assert (field.inference_, field.learning_) == (inference, "pma")


def test_learning_by_affordable_elimination_is_exact():
    X, y = noisy_blobs(4, 5)
    chosen = DRFClassifier(tol=1e-8).fit(X, y)
    exact = DRFClassifier(tol=1e-8, inference="junction_tree").fit(X, y)
    assert_allclose(chosen.edge_coef_, exact.edge_coef_, rtol=1e-5)
    assert_allclose(chosen.predict_proba(X), exact.predict_proba(X), atol=1e-6)


def test_a_failed_fit_keeps_the_inference_chosen():
    field = DRFClassifier().fit(*noisy_blobs(2, 24))
    with pytest.raises(ValueError, match="infinity"):
        field.fit(np.full((2, 4, 4, 1), np.inf), np.zeros((2, 4, 4), dtype=int))
    assert field.inference_ == "trw"


def test_convex_learning_is_that_of_a_tight_inner_problem():
    X, y = noisy_blobs(4, 12)
    loose = DRFClassifier(inference=TRWMessagePassing("chains")).fit(X, y)
    tight = DRFClassifier(
        inference=TRWMessagePassing("chains"),
        learning=RelaxedLikelihood(TRWMessagePassing("chains", tol=1e-7, max_iter=1000)),
    ).fit(X, y)
    assert_allclose(loose.loss_curve_[-1], tight.loss_curve_[-1], rtol=1e-3)


def test_the_inner_tolerance_follows_the_gradient():
    objective = RelaxedLikelihood(TRWMessagePassing(tol=0.1), final_tol=1e-3)
    assert objective.settle(5e-3)
    assert objective.inference.tol == pytest.approx(0.05)
    assert not objective.settle(1.0)
    assert objective.settle()
    assert objective.inference.tol == pytest.approx(0.005)
    assert not objective.is_settled
    assert objective.settle(0.0)
    assert objective.inference.tol == 1e-3
    assert objective.is_settled
    assert not objective.settle(0.0)
    assert not RelaxedLikelihood(TRWMessagePassing()).settle(0.0)


def test_the_fallback_is_as_accurate_as_the_inference():
    inference = MarginalsWithFallback(TRWMessagePassing(tol=0.1), TightenBound(tol=0.1))
    objective = RelaxedLikelihood(inference, final_tol=1e-3)
    objective.settle(5e-3)
    assert inference.fallback.tol == inference.messages.tol == pytest.approx(0.05)
    assert SoftmaxMargin(objective).settle(0.0)
    assert inference.fallback.tol == inference.messages.tol == 1e-3


# Few labels --------------------------------------------------------------------------------------------------------


def risk_of_strokes(side, n_labelled):
    """Return a risk of one image in which only the first pixels are labelled."""
    rng = np.random.default_rng(0)
    graph = lattice((side, side))
    labels = np.full(side * side, -1, dtype=np.int32)
    labels[:n_labelled] = rng.integers(0, 2, n_labelled)
    edge_features = rng.random((graph.n_edges, 2))
    example = make_trusted_example(
        rng.normal(size=(side * side, 3)), graph, edge_features, edge_type=np.zeros(graph.n_edges, dtype=np.int32)
    )
    potentials = LinearPotentials(3, 2, make_pairwise_form("ising", 2), n_edge_features=2)
    batch = Batch(example, np.array([0]), np.array([0, side * side]), labels)
    return EmpiricalRisk(RelaxedLikelihood(TRWMessagePassing(0.5 * np.ones(graph.n_edges))), potentials, [batch])


def test_nodes_near_labels_are_kept_with_their_edges():
    risk = risk_of_strokes(10, 1)
    near = restrict_risk_to_labels(risk, 3)
    # The triangle of pixels within three steps of a corner.
    assert near.batches[0].example.n_nodes == 10
    assert near.batches[0].example.graph.n_edges == 12
    assert near.n_labelled == risk.n_labelled
    first, part = risk.batches[0].example, near.batches[0].example
    assert_array_equal(part.node_features[0], first.node_features[0])
    tail, head = part.graph.edges[0]
    rows = np.flatnonzero((first.node_features == part.node_features[head]).all(axis=1))
    edge = np.flatnonzero((first.graph.edges == [tail, rows[0]]).all(axis=1))
    assert_array_equal(part.edge_features[0], first.edge_features[edge[0]])


def test_the_start_is_learned_from_labelled_nodes_alone():
    risk = risk_of_strokes(6, 7)
    nodes = _build_node_risk(risk)
    assert nodes.batches[0].example.n_nodes == 7
    # Unlabelled nodes without edges would change neither the loss nor its gradient.
    batch = risk.batches[0]
    without_edges = replace(batch, example=Example(batch.example.node_features, np.zeros((0, 2), dtype=np.int32)))
    whole = EmpiricalRisk(nodes.objective, risk.potentials, [without_edges])
    coef = np.random.default_rng(1).normal(size=risk.potentials.n_coef)
    found, expected = nodes.value_grad(coef), whole.value_grad(coef)
    assert_allclose(found.value, expected.value)
    assert_allclose(found.gradient, expected.gradient, atol=1e-12)


def test_where_most_nodes_are_near_all_are_kept():
    risk = risk_of_strokes(6, 12)
    assert restrict_risk_to_labels(risk, 3) is risk


def test_far_components_do_not_matter():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.full(30, -1)
    y[:4] = [0, 1, 1, 0]
    # A labelled chain of six nodes, and nodes without labels.
    edges = np.array([[i, i + 1] for i in range(29) if i != 5] + [[0, 2]])
    whole = Example(X, Graph(30, edges))
    part = Example(X[:6], Graph(6, edges[(edges < 6).all(axis=1)]))
    options = {"missing_label": -1, "tol": 1e-9}
    first = DRFClassifier(learning=PseudoMarginalTraining(reach=5), **options).fit([whole], [y])
    second = DRFClassifier(learning=PseudoMarginalTraining(reach=None), **options).fit([part], [y[:6]])
    assert_allclose(first.coef_, second.coef_, atol=1e-6)
    assert_allclose(first.edge_coef_, second.edge_coef_, atol=1e-6)


@pytest.mark.parametrize(("side", "chosen"), [(8, "mpm"), (12, "trw")])
def test_training_is_exact_where_that_costs_no_more_than_a_few_sweeps(side, chosen):
    rng = np.random.default_rng(0)
    y = np.kron(rng.integers(2, size=(6, side // 4, side // 4)), np.ones((4, 4), dtype=int))
    X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1))
    assert DRFClassifier(max_iter=2).fit(X, y).inference_ == chosen


@pytest.mark.parametrize("estimator", [DRFClassifier, ContrastiveCRF, M3NClassifier])
def test_edges_of_sparse_features_see_a_constant_by_default(estimator):
    y = [np.array([0, 0, 1, 1]), np.array([1, 0, 0])]
    chains = [sp.csr_array(np.eye(2)[labels]) for labels in y]
    graphs = [Example(chain, [[k, k + 1] for k in range(chain.shape[0] - 1)]) for chain in chains]
    for X in (chains, graphs):
        assert estimator().fit(X, y).edge_coef_.shape[1] == 1
        with pytest.raises(ValueError, match="use edge_features='constant'"):
            estimator(edge_features="difference").fit(X, y)
    dense = np.array([[[[0.0, 1.0]] * 3] * 2] * 2)
    images = estimator(max_iter=3).fit(dense, np.array([[[0, 1, 0]] * 2] * 2))
    assert images.edge_coef_.shape[1] == 3


@pytest.mark.parametrize("seed", range(3))
def test_training_on_social_graphs_converges(seed):
    # Undamped messages oscillate on such dense graphs.
    rng, n = np.random.default_rng(seed), 240
    y = rng.integers(3, size=n)
    likely = np.where(y[:, np.newaxis] == y, 0.09, 0.008)
    edges = np.argwhere(np.triu(rng.random((n, n)) < likely, 1))
    X = Example(np.eye(3)[y] + 1.5 * rng.normal(size=(n, 3)), edges)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = DRFClassifier().fit([X], [y])
    assert field.converged_
    assert field.inference_ == "trw"
    assert field.score([X], [y]) > 0.8
