"""Labels of wrong lengths, types and values, in every function and method with labels as an argument."""

import numpy as np
import pytest
from labelled_calls import CALLS, COST, FACTORS, MARGINALS, MAY_MISS, MODEL, NEGATIVE, RIGHT, WRONG
from numpy.testing import assert_array_equal

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import JunctionTree, TRWMessagePassing
from sklearn_crf.models import PairwiseModel, check_labels, compute_label_excess, factor_graph_of
from sklearn_crf.objectives import Likelihood, Pseudolikelihood, RelaxedLikelihood, loss_and_gradient, loss_augmented


@pytest.mark.parametrize("name", CALLS)
def test_right_labels_are_taken(name):
    CALLS[name](RIGHT)
    CALLS[name](RIGHT.tolist())


@pytest.mark.parametrize("name", CALLS)
def test_wrong_labels_are_named(name):
    for labels in (WRONG | ({} if name in MAY_MISS else NEGATIVE)).values():
        with pytest.raises(ValueError, match="init" if name.endswith("init") else "label"):
            CALLS[name](labels)


@pytest.mark.parametrize("name", sorted(MAY_MISS))
def test_negative_labels_may_be_missing(name):
    for labels in NEGATIVE.values():
        CALLS[name](labels)


@pytest.mark.parametrize("model", [MODEL, FACTORS], ids=["pairwise", "factors"])
def test_all_negative_labels_have_the_same_costs(model):
    right, *others = (
        loss_augmented(model, labels, COST)
        for labels in ([0, -1, 1, -1], [0, -2, 1, -3], np.array([0, -(2**31), 1, -(2**31)], np.int32))
    )
    for other in others:
        if model is MODEL:
            assert_array_equal(other.unary, right.unary)
        assert_array_equal(*(JunctionTree().marginals(augmented).unary for augmented in (other, right)))


@pytest.mark.parametrize("model", [MODEL, FACTORS], ids=["pairwise", "factors"])
def test_missing_labels_are_negative(model):
    assert check_labels(model, [-1, 0, 1, -2], may_miss=True).tolist() == [-1, 0, 1, -1]
    with pytest.raises(ValueError, match=r"labels"):
        check_labels(model, [-1, 0, 1, -2])
    with pytest.raises(ValueError, match=r"labels must be between 0 and 1, or negative|node 1 has 2 states"):
        check_labels(model, [-1, 2, 1, 0], may_miss=True)


def test_an_empty_labeling_is_no_labeling_of_a_relaxation():
    with pytest.raises(ValueError, match=r"labels must have shape \(4,\), got \(0,\)"):
        RelaxedLikelihood(TRWMessagePassing()).loss_statistics(MODEL, [])


def test_excess_over_labels_checks_shapes():
    statistics, terms = MARGINALS.statistics, MARGINALS.log_z_terms
    for wrong in (
        (statistics._replace(unary=statistics.unary[:2]), terms),
        (statistics._replace(unary=statistics.unary[:, :1]), terms),
        (statistics._replace(tables=statistics.tables[..., :1]), terms),
        (statistics, terms[:-1]),
        (statistics, np.zeros(5000)),
    ):
        with pytest.raises(ValueError, match="statistics and log_z_terms must have shapes"):
            compute_label_excess(MODEL, RIGHT, *wrong)
    narrow = statistics._replace(unary=statistics.unary.astype(np.float32))
    assert compute_label_excess(MODEL, RIGHT, narrow, terms)[1].unary.dtype == np.float64


def test_costs_fit_the_model():
    for cost in (np.zeros((3, 3)), np.zeros((1, 1)), np.zeros(2), np.zeros((2, 3))):
        with pytest.raises(ValueError, match=r"cost must have shape \(2, 2\)"):
            loss_augmented(MODEL, RIGHT, cost)
    for cost in (np.full((2, 2), np.nan), np.full((2, 2), np.inf)):
        with pytest.raises(ValueError, match="cost must be finite"):
            loss_augmented(MODEL, RIGHT, cost)
    for weight in (np.ones(3), np.ones((4, 1)), np.full(4, np.nan), 2.0):
        with pytest.raises(ValueError, match=r"node_weight must be finite, of shape \(4,\)"):
            loss_augmented(MODEL, RIGHT, COST, weight)


@pytest.mark.parametrize("label", [2, 3])
@pytest.mark.parametrize("kind", ["pairwise", "factors"])
@pytest.mark.parametrize("objective", [None, Pseudolikelihood(), Likelihood(JunctionTree())], ids=repr)
def test_labels_that_are_no_states_of_their_node_are_named(label, kind, objective):
    model = PairwiseModel(lattice((3,)), np.zeros((3, 4)), [np.eye(4)], n_states=[3, 2, 4])
    model = model if kind == "pairwise" else factor_graph_of(model)
    with pytest.raises(ValueError, match=rf"labels\[1\] is {label}, but node 1 has 2 states"):
        loss_and_gradient(model, [0, label, 2], objective=objective)
    for labels in ([2, 1, 3], [2, -1, 3]):
        assert np.isfinite(loss_and_gradient(model, labels, objective=objective)[0])
