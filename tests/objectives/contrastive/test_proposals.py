"""Sets of labelings drawn from a proposal: noise-contrastive estimation, ratio matching and the likelihood."""

from itertools import pairwise

import numpy as np
import pytest
from contrastive_reference import all_labelings, single_node_sets
from field_data import noisy_blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import models, random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logsumexp

from sklearn_crf import ContrastiveCRF
from sklearn_crf.graphs import build_disjoint_union, lattice
from sklearn_crf.inference import BruteForce
from sklearn_crf.learning import ContrastiveTraining
from sklearn_crf.models import PairwiseModel, compute_labeling_statistics, score
from sklearn_crf.objectives import (
    AssignmentSets,
    ContrastiveSets,
    GibbsGenerator,
    Likelihood,
    MostViolated,
    Pseudolikelihood,
)
from sklearn_crf.potentials import PairwiseTables


def loss_of(sets, model):
    return ContrastiveSets(sets).loss_statistics(model, sets.labels)


def value_of(sets, model):
    return loss_of(sets, model).terms.sum()


def draws(model, n_draws, seed):
    """Return the truth, draws with repeated labelings, and the log-probabilities of a proposal."""
    rng = np.random.default_rng(seed)
    truth = BruteForce().sample(model, 1, random_state=seed)[0]
    drawn = BruteForce().sample(model, n_draws, random_state=seed + 1)
    rows = np.concatenate(([truth], drawn, drawn[:1])).astype(np.int32)
    different, row = np.unique(rows, axis=0, return_inverse=True)
    return truth, rows, rng.normal(scale=2, size=len(different))[row.reshape(-1)]


@given(model=models(max_states=3), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_value_and_statistics_are_those_of_plain_numpy(model, seed):
    truth, rows, log_proposal = draws(model, 6, seed)
    sets = AssignmentSets(model, truth)
    assert sets.add_set(model, rows, weight=0.7, log_proposal=log_proposal)
    loss = loss_of(sets, model)
    scores = np.array([score(model, row) for row in rows]) - log_proposal
    is_true = (rows == truth).all(axis=1)
    assert_allclose(loss.terms.sum(), 0.7 * (logsumexp(scores) - logsumexp(scores[is_true])), atol=1e-10)
    share = 0.7 * np.exp(scores - logsumexp(scores))
    of_truth, parts = (
        compute_labeling_statistics(model, truth),
        [compute_labeling_statistics(model, row) for row in rows],
    )
    for name in ("unary", "tables"):
        expected = sum(
            s * (getattr(part, name) - getattr(of_truth, name)) for s, part in zip(share, parts, strict=True)
        )
        assert_allclose(getattr(loss.statistics, name), expected, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_proposal_changes_nothing(dtype):
    model = random_model(lattice((2, 3)), 3, seed=2)
    model = PairwiseModel(model.graph, model.unary.astype(dtype), model.tables.astype(dtype))
    truth, rows, _ = draws(model, 8, 0)
    rows, constant = np.unique(rows, axis=0), np.full(len(np.unique(rows, axis=0)), -3.5)
    for array in (rows, constant):
        array.flags.writeable = False
    plain, weighed = AssignmentSets(model, truth), AssignmentSets(model, truth)
    plain.add_set(model, rows)
    weighed.add_set(model, rows, log_proposal=constant)
    # An additional set has no proposal.
    for sets in (plain, weighed):
        sets.add_set(model, np.stack((truth, (truth + 1) % 3)))
        sets.extend(model, (truth + 2) % 3)
    assert value_of(plain, model) == value_of(weighed, model)
    assert_array_equal(loss_of(plain, model).statistics.tables, loss_of(weighed, model).statistics.tables)


def test_sets_of_a_batch_keep_their_proposals():
    model = random_model(build_disjoint_union([lattice((3,)), lattice((2,))]), 2, seed=5)
    labels, node_ptr = np.array([0, 1, 1, 1, 0], dtype=np.int32), np.array([0, 3, 5])
    rows = [np.array([[0, 1, 1], [1, 1, 0]]), np.array([[1, 0], [0, 0], [1, 1]])]
    log_proposal, sets = [np.array([0.3, -1.0]), np.array([0.1, 2.0, -0.7])], AssignmentSets(model, labels, node_ptr)
    sets.extend(model, 1 - labels)
    for member, (part, drawn) in enumerate(zip(rows, log_proposal, strict=True)):
        sets.add_set(model, part, member=member, log_proposal=drawn)
    sets.extend(model, np.zeros(5, dtype=int), are_drawn=True)
    terms = loss_of(sets, model).terms
    for member, (start, stop) in enumerate(pairwise(node_ptr)):
        whole = np.tile(labels, (len(rows[member]), 1))
        whole[:, start:stop] = rows[member]
        scores = np.array([score(model, row) for row in whole]) - log_proposal[member]
        flipped, zero = labels.copy(), labels.copy()
        flipped[start:stop], zero[start:stop] = 1 - labels[start:stop], 0
        # Under the model that drew a labeling, its score and its proposal probability cancel.
        others = [0.0, score(model, flipped) - score(model, labels), 0.0]
        assert_allclose(terms[start:stop].sum(), logsumexp(scores) - scores[0] + logsumexp(others), atol=1e-10)


# Special cases ---------------------------------------------------------------------------------------------------


def test_one_set_of_the_truth_and_draws_is_the_ranking_loss():
    """Ma and Collins 2018, equation 3: the negative logarithm of the softmax of s - log q at the truth."""
    model, proposal = (random_model(lattice((2, 2)), 3, seed=seed) for seed in (0, 1))
    noise = BruteForce().sample(proposal, 5, random_state=3)
    truth = next(row for row in all_labelings(4, 3) if not (noise == row).all(axis=1).any())
    rows = np.concatenate(([truth], noise)).astype(np.int32)
    log_q = np.array([score(proposal, row) for row in rows])
    sets = AssignmentSets(model, truth)
    sets.add_set(model, rows, log_proposal=log_q)
    odds = np.array([score(model, row) for row in rows]) - log_q
    assert_allclose(value_of(sets, model), -np.log(np.exp(odds[0]) / np.exp(odds).sum()), rtol=1e-12)


def test_pairs_are_conditional_noise_contrastive_estimation():
    """Ceylan and Gutmann 2018, equation 10: log(1 + exp(-G)), G the log-ratio of p(y) q(y' | y) to p(y') q(y | y')."""
    model = random_model(lattice((2, 2)), 2, seed=4)
    truth, rng = np.array([0, 1, 1, 0], dtype=np.int32), np.random.default_rng(0)
    # Noise that turns a 0 into a 1 with probability 0.3, a 1 into a 0 with 0.6.
    turned = np.array([[0.7, 0.3], [0.6, 0.4]])
    sets, expected = AssignmentSets(model, truth), 0.0
    for _ in range(6):
        noise = np.array([rng.choice(2, p=turned[state]) for state in truth], dtype=np.int32)
        if (noise == truth).all():
            continue
        to_noise, to_truth = np.log(turned[truth, noise]).sum(), np.log(turned[noise, truth]).sum()
        sets.add_set(model, np.stack((truth, noise)), log_proposal=[to_truth, to_noise])
        ratio = score(model, truth) + to_noise - score(model, noise) - to_truth
        expected += np.log1p(np.exp(-ratio))
    assert len(sets.set_weight) >= 4
    assert_allclose(value_of(sets, model), expected, rtol=1e-12)


@pytest.mark.parametrize("topology", ["chain", "cycle", "grid"])
@pytest.mark.parametrize("seed", range(4))
def test_weighed_pairs_have_the_gradient_of_ratio_matching(topology, seed):
    """Hyvarinen 2007: the sum over nodes of the squared probability of the other state given all neighbours."""
    model = random_model(topology, 2, seed=seed)
    truth = BruteForce().sample(model, 1, random_state=seed)[0].astype(np.int32)
    pairs = [np.unique(rows, axis=0) for rows in single_node_sets(truth, 2)]

    def wrong(model):
        flipped = [rows[(rows != truth).any(axis=1)][0] for rows in pairs]
        return expit([score(model, row) - score(model, truth) for row in flipped])

    p, sets = wrong(model), AssignmentSets(model, truth)
    for rows, of_node in zip(pairs, p, strict=True):
        sets.add_set(model, rows, weight=2 * of_node * (1 - of_node))
    statistics = loss_of(sets, model).statistics
    rng, step = np.random.default_rng(seed), 1e-5
    direction = rng.normal(size=model.unary.shape), rng.normal(size=model.tables.shape)

    def matched(size):
        unary, tables = model.unary + size * direction[0], model.tables + size * direction[1]
        return np.square(wrong(PairwiseModel(model.graph, unary, tables, model.edge_type, model.edge_weight))).sum()

    slope = (matched(step) - matched(-step)) / (2 * step)
    found = (statistics.unary * direction[0]).sum() + (statistics.tables * direction[1]).sum()
    assert_allclose(found, slope, atol=1e-7)


def test_uniform_single_node_proposals_are_the_pseudolikelihood():
    model = random_model(lattice((2, 3)), 3, seed=7)
    truth, sets = np.array([0, 2, 1, 1, 0, 2], dtype=np.int32), None
    sets = AssignmentSets(model, truth)
    for rows in single_node_sets(truth, 3):
        sets.add_set(model, rows, log_proposal=np.full(3, -np.log(3)))
    expected = Pseudolikelihood().loss_statistics(model, truth).terms.sum()
    assert_allclose(value_of(sets, model), expected, rtol=1e-10)


def test_many_draws_have_the_gradient_of_the_likelihood():
    """Gradients agree near the weights of the proposal, up to the effect of the additional true labeling in a set."""
    model = random_model(lattice((2, 3)), 2, seed=1)
    truth = BruteForce().sample(model, 1, random_state=0)[0].astype(np.int32)
    drawn = BruteForce().sample(model, 40_000, random_state=1)
    rows = np.concatenate(([truth], drawn)).astype(np.int32)
    sets = AssignmentSets(model, truth)
    sets.add_set(model, rows, log_proposal=[score(model, row) for row in rows])
    near = PairwiseModel(model.graph, model.unary + 0.1, 1.2 * model.tables)
    for then in (model, near):
        exact = Likelihood(BruteForce()).loss_statistics(then, truth).statistics
        statistics = loss_of(sets, then).statistics
        assert_allclose(statistics.unary, exact.unary, atol=0.02)
        assert_allclose(statistics.tables, exact.tables, atol=0.05)


# Persistent chains -----------------------------------------------------------------------------------------------


def test_chains_that_go_on_leave_the_truth():
    model = PairwiseModel(lattice((10,)), np.zeros((10, 2)), 2.0 * np.eye(2)[None])
    truth, rng = np.zeros(10, dtype=np.int32), np.random.RandomState(0)
    persistent, start, means = GibbsGenerator(2, persistent=True), None, []
    for _ in range(400):
        start = persistent(model, truth, rng, start=start)
        means.append(start.mean())
    assert abs(np.mean(means) - 0.5) < 0.1
    again = [GibbsGenerator(2)(model, truth, rng).mean() for _ in range(400)]
    assert np.mean(again) < 0.3


def test_a_fit_keeps_one_chain_for_each_example():
    seen = []

    class Recorded(GibbsGenerator):
        def __call__(self, model, labels, rng, *, start=None, node_weight=None, n_threads=1):
            found = super().__call__(model, labels, rng, start=start, n_threads=n_threads)
            seen.append((labels, start, found))
            return found

    X, y = noisy_blobs(3)
    sets = ContrastiveTraining(generator=Recorded(1, persistent=True), max_rounds=3, n_new=2)
    options = {"learning": sets, "pairwise": PairwiseTables(C=1.0), "max_iter": 100, "n_jobs": 1}
    ContrastiveCRF(**options).fit(X, y)
    starts = [start for _, start, _ in seen]
    assert sum(start is None for start in starts) == 2 * len({labels.tobytes() for labels, _, _ in seen})
    for _, start, _ in seen:
        assert start is None or any(np.array_equal(start, found) for _, _, found in seen)


@pytest.mark.parametrize("generator", [GibbsGenerator(2, True), MostViolated(GibbsGenerator(2, True), "hamming")])
def test_drawn_sets_are_bit_identical_for_any_n_jobs(generator):
    X, y = noisy_blobs(6)
    sets = ContrastiveTraining(generator=generator, max_rounds=3, are_drawn=True)
    one, two = (ContrastiveCRF(learning=sets, max_iter=10, random_state=0, n_jobs=k).fit(X, y) for k in (1, 2))
    assert_array_equal(one.coef_, two.coef_)
    assert_array_equal(one.edge_coef_, two.edge_coef_)
    assert one.n_assignments_ > 0


def test_given_sets_have_their_proposals():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(30, 3))
    X = y[..., None] + rng.normal(size=(30, 3, 1))
    labelings = all_labelings(3, 2)
    log_q = np.log(np.linspace(1, 2, 8))
    options = {"max_iter": 500, "tol": 1e-8}

    def fitted(**sets):
        sets = ContrastiveTraining(init="empty", generator=None, given=[labelings], **sets)
        return ContrastiveCRF(learning=sets, **options).fit(X, y)

    constant, plain = fitted(given_log_proposal=[np.zeros(8)]), fitted()
    assert_allclose(constant.coef_, plain.coef_, atol=1e-6)
    # If each labeling is drawn exactly as often as q predicts, the objective is the likelihood again.
    counts = 8 * np.arange(8, 16)
    drawn = np.repeat(labelings, counts, axis=0)
    many = ContrastiveCRF(
        learning=ContrastiveTraining(
            init="empty", generator=None, given=[drawn], given_log_proposal=[np.log(np.repeat(counts, counts))]
        ),
        **options,
    )
    assert_allclose(many.fit(X, y).coef_, plain.coef_, atol=1e-6)
    assert abs(fitted(given_log_proposal=[log_q]).edge_coef_ - plain.edge_coef_).max() > 1e-3


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (ContrastiveTraining(given_log_proposal=[[0.0]]), "one array for each of the 0 sets in given, got 1 arrays"),
        (
            ContrastiveTraining(given=[[[0, 1, 0]]], given_log_proposal=[]),
            "one array for each of the 1 sets in given, got 0 arrays",
        ),
        (
            ContrastiveTraining(given=[[[0, 1, 0]]], given_log_proposal=[[0.0, 1.0]]),
            r"shape \(1,\), one number per labeling",
        ),
        (ContrastiveTraining(given=[[[0, 1, 0]]], given_log_proposal=[[-np.inf]]), "log_proposal must be finite"),
    ],
)
def test_bad_proposals_are_named(sets, message):
    y = np.array([[0, 1, 0], [1, 1, 0]])
    with pytest.raises(ValueError, match=message):
        ContrastiveCRF(learning=sets).fit(y[..., None] * 1.0, y)
