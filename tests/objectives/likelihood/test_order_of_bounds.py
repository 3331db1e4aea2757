"""Losses from upper bounds on the log-partition: their proven order, and their derivatives."""

from dataclasses import replace

import numpy as np
import pytest
from finite_differences import five_point
from model_strategies import random_model
from numpy.testing import assert_allclose
from relaxed_problems import fitted, graphs
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import TRWCRF
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import (
    CountingNumbers,
    EdgeEntropyBP,
    JunctionTree,
    NormProductBP,
    TRWMessagePassing,
    edge_shared_bound,
    nodes_of_edge_shares,
    optimise_edge_shares,
)
from sklearn_crf.learning import JointRelaxation, Relaxation, SharedPiecesTraining
from sklearn_crf.models import PairwiseModel, score
from sklearn_crf.objectives import Likelihood, Piecewise, RelaxedLikelihood, SharedPieces

TIGHT = {"tol": 1e-10, "max_iter": 5000}


def loss(objective, model, labels=None):
    labels = np.zeros(model.graph.n_nodes, dtype=np.int32) if labels is None else labels
    return objective.loss_statistics(model, labels).terms.sum()


def relaxed(inference):
    return RelaxedLikelihood(inference)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", ["cycle", "grid", "disconnected"])
@pytest.mark.parametrize("kind", ["typed", "weighted"])
def test_bounds_are_in_their_proven_order(shape, kind, seed):
    model = random_model(shape, 3, kind, seed=seed)
    exact = loss(Likelihood(JunctionTree()), model)
    reweighted = loss(relaxed(TRWMessagePassing("covering", **TIGHT)), model)
    trivial = loss(relaxed(EdgeEntropyBP(**TIGHT)), model)
    factors = loss(relaxed(EdgeEntropyBP(entropy="factors", **TIGHT)), model)
    shared, pieces = loss(SharedPieces(), model), loss(Piecewise(), model)
    assert exact <= reweighted + 1e-7
    assert reweighted <= trivial + 1e-7
    assert trivial <= factors + 1e-7
    assert factors <= pieces + 1e-7
    assert trivial <= shared + 1e-7
    assert shared <= pieces + 1e-7


def test_shared_pieces_are_the_bound_at_even_shares():
    model = random_model("grid", 3, "typed", seed=1)
    labels = np.random.default_rng(0).integers(3, size=model.graph.n_nodes).astype(np.int32)
    bound = edge_shared_bound(model, np.zeros(len(nodes_of_edge_shares(model)))).marginals.log_z
    assert_allclose(loss(SharedPieces(), model, labels), bound - score(model, labels))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shared_pieces_of_models_without_edges_are_exact(dtype):
    unary = np.array([[0.0, 1.0, -np.inf], [0.5, 0.2, 0.1]], dtype=dtype)
    unary.flags.writeable = False
    model = PairwiseModel(Graph(2, np.zeros((0, 2), dtype=np.int32)), unary, np.zeros((1, 3, 3), dtype=dtype))
    assert_allclose(loss(SharedPieces(), model), loss(Likelihood(JunctionTree()), model), rtol=1e-6)


@pytest.mark.parametrize("objective", [SharedPieces(), RelaxedLikelihood(EdgeEntropyBP(entropy="factors", **TIGHT))])
def test_derivatives(objective):
    model = random_model("cycle", 3, "weighted", seed=2)
    labels = np.random.default_rng(0).integers(3, size=model.graph.n_nodes).astype(np.int32)
    found = objective.loss_statistics(model, labels)
    for field, statistics in (("unary", found.statistics.unary), ("tables", found.statistics.tables)):
        values = getattr(model, field)

        def value(x, field=field, values=values):
            return loss(objective, replace(model, **{field: x.reshape(values.shape)}), labels)

        assert_allclose(statistics, five_point(value, values.ravel()).reshape(values.shape), atol=1e-6)


def test_counting_numbers_of_all_nodes_and_factors():
    model = random_model("grid", 2, "typed", seed=3)
    by_name = NormProductBP("factors", **TIGHT).marginals(model)
    by_numbers = NormProductBP(CountingNumbers(1.0, 1.0), **TIGHT).marginals(model)
    assert by_numbers.bound == by_name.bound == "upper"
    assert_allclose(by_numbers.log_z, by_name.log_z, rtol=1e-9)
    with pytest.raises(ValueError, match=r"counting_numbers\.node must be 9 finite numbers"):
        NormProductBP(CountingNumbers(np.nan, 1.0)).marginals(model)


def test_objectives_of_training_are_in_the_order_of_their_bounds():
    X, y = graphs(n=3)
    options = {"C": 0.3, "tol": 1e-5, "pairwise": "potts"}
    numbers = CountingNumbers(1.0, 1.0)

    def least(learning):
        return TRWCRF(learning=learning, **options).fit(X, y).loss_curve_[-1]

    exact, shared, pieces = (least(name) for name in ("exact", "shared_pieces", "piecewise"))
    reweighted, trivial, factors, own = (
        least(Relaxation(entropy=entropy, tol=1e-8)) for entropy in ("trw", "trivial", "factors", numbers)
    )
    assert exact < reweighted < trivial < factors < pieces
    assert trivial < shared < pieces
    assert_allclose(own, factors, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["typed", "weighted", "forbidden"])
def test_best_shares_give_the_least_bound(kind, dtype):
    model = random_model("grid", 3, "typed" if kind == "forbidden" else kind, seed=4)
    unary = model.unary.astype(dtype)
    if kind == "forbidden":
        unary[1, 2] = -np.inf
    unary.flags.writeable = False
    model = replace(model, unary=unary, tables=model.tables.astype(dtype))
    bound = edge_shared_bound(model, optimise_edge_shares(model, max_iter=5000, tol=1e-10)).marginals.log_z
    assert_allclose(bound, EdgeEntropyBP(**TIGHT).marginals(model).log_z, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"cost": "hamming"}, {"temperature": 0.5}, {"n_jobs": 2}])
def test_shares_optimized_once_lie_between_even_ones_and_the_relaxation(options):
    X, y = graphs(n=4)
    of_estimator = {"C": 0.3, "tol": 1e-6, "pairwise": "potts", "n_jobs": options.pop("n_jobs", None)}

    def fit(learning):
        return TRWCRF(learning=learning, **of_estimator).fit(X, y)

    even, once = (fit(SharedPiecesTraining(shares=shares, **options)) for shares in ("even", "optimized"))
    trivial = fit(Relaxation(entropy="trivial", tol=1e-8, **options))
    assert trivial.loss_curve_[-1] < once.loss_curve_[-1] < even.loss_curve_[-1]
    assert_allclose(once.loss_curve_[: even.n_iter_], even.loss_curve_)
    # The risk at the optimised shares is the final training objective, as a function of the weights alone.
    assert once.converged_
    assert once.gradient_norm_curve_[-1] < 1e-4


def test_shares_are_not_optimized_without_iterations_left():
    X, y = graphs(n=3)
    with pytest.warns(ConvergenceWarning, match="max_iter reached"):
        crf = TRWCRF(learning=SharedPiecesTraining(shares="optimized"), max_iter=4).fit(X, y)
    assert not crf.converged_
    assert crf.n_iter_ == 5


def test_entropies_that_a_learning_does_not_take():
    X, y = graphs(n=2)
    with pytest.raises(ValueError, match="learning='joint_relaxation' needs entropy='trw', 'trivial' or 'f"):
        TRWCRF(learning=JointRelaxation(entropy=CountingNumbers(0.5, 1.0))).fit(X, y)
    many = Relaxation(entropy=CountingNumbers(np.ones(4), np.ones(4)))
    with pytest.raises(ValueError, match="must have one number for all nodes and one for all factors"):
        TRWCRF(learning=many).fit(X, y)


def test_clones_and_predictions_keep_the_entropy():
    X, y = graphs(n=3)
    model = clone(fitted(X, y, learning="relaxation", entropy=CountingNumbers(0.5, 1.0)))
    model.fit(X, y)
    assert model.learning.entropy == CountingNumbers(0.5, 1.0)
    assert_allclose(model.predict_proba(X)[0].sum(axis=1), 1.0)
