"""ContrastiveCRF: scikit-learn's contract, known special cases, rounds of generation, and bad input."""

import pickle
import sys
import types
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from built_fields import contrastive_crf, drf_classifier
from contrastive_reference import all_labelings
from estimator_contract import missing_checks, passed_checks
from field_data import chains, noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from sklearn_crf import ContrastiveCRF, Example
from sklearn_crf.inference import ICM, AutoMap, TRWMessagePassing
from sklearn_crf.learning import ContrastiveTraining, PseudolikelihoodTraining, _contrastive_training, _growing_sets
from sklearn_crf.objectives import EmpiricalRisk, FastRisk, Generator, fast_paths
from sklearn_crf.objectives.fast_paths import PassOfSets
from sklearn_crf.potentials import PairwiseTables

TIGHT = {"tol": 1e-9, "max_iter": 2000}
WAYS = ["icm", "map", "gibbs", "icm_mv", "map_mv", "gibbs_mv"]


def weights(model):
    return np.concatenate([np.ravel(part) for part in (model.coef_, model.intercept_, model.edge_coef_)])


# scikit-learn's contract -----------------------------------------------------------------------------------------


def test_check_estimator():
    passed = passed_checks(contrastive_crf())
    assert missing_checks(passed) <= {
        "check_estimators_nan_inf",  # the check of estimators that refuse NaN
        "check_class_weight_balanced_linear_classifier",
        "check_class_weight_classifiers",
        "check_sparsify_coefficients",
    }
    assert len(passed) >= 57


@pytest.mark.parametrize("generator", WAYS)
@pytest.mark.parametrize("data", [noisy_blobs, chains])
def test_bit_identical_for_any_n_jobs(generator, data):
    X, y = data(8)
    one, two = (contrastive_crf(generator=generator, max_rounds=3, random_state=0, n_jobs=k).fit(X, y) for k in (1, 2))
    assert_array_equal(weights(one), weights(two))
    assert_array_equal(one.n_generated_, two.n_generated_)
    assert one.n_assignments_ > 0


@pytest.mark.parametrize("options", [{"generator": None}, {"generator": None, "init": "gpl", "blocks": 2}])
def test_weight_two_is_seen_twice(options):
    X, y = chains(4)
    weighted = contrastive_crf(C=0.5, **options, **TIGHT).fit(X, y, sample_weight=[2, 1, 1, 0])
    repeated = contrastive_crf(C=0.5, **options, **TIGHT).fit([X[0], X[0], *X[1:3]], [y[0], y[0], *y[1:3]])
    assert_allclose(weights(weighted), weights(repeated), atol=1e-6)


def test_weight_two_is_seen_twice_where_generation_is_deterministic():
    X, y = chains(5)
    options = {"generator": "map", "generator_inference": "graph_cut", "max_rounds": 4, "C": 0.5}
    y = [np.minimum(part, 1) for part in y]
    weighted = contrastive_crf(**options, **TIGHT).fit(X, y, sample_weight=[2, 1, 1, 1, 0])
    repeated = contrastive_crf(**options, **TIGHT).fit([X[0], X[0], *X[1:4]], [y[0], y[0], *y[1:4]])
    assert weighted.n_assignments_ > 0
    assert_allclose(weights(weighted), weights(repeated), atol=1e-6)


# Known special cases ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 2, 64], ids="{} by differences".format)
@pytest.mark.parametrize("are_drawn", [False, True])
@pytest.mark.parametrize("data", [noisy_blobs, chains])
def test_nodes_in_one_pass_and_sets_are_the_sum_of_batches(data, are_drawn, most, monkeypatch):
    monkeypatch.setattr(fast_paths, "_FEW_ASSIGNMENTS", most)
    X, y = data(8)
    weight = np.linspace(0.0, 2.0, 8)
    seen = []

    def value_grad(self, coef, members=None, plain=FastRisk.value_grad):
        found = plain(self, coef, members)
        if self.path == PassOfSets.name:
            # Each call returns a new gradient, so that the caller may scale it in place.
            kept = found._replace(gradient=found.gradient.copy())
            seen.append((kept, EmpiricalRisk(self.objective, self.potentials, self.batches).value_grad(coef)))
        return found

    monkeypatch.setattr(FastRisk, "value_grad", value_grad)
    sets = ContrastiveTraining(generator="gibbs" if are_drawn else "map", are_drawn=are_drawn, max_rounds=3)
    ContrastiveCRF(learning=sets, random_state=0).fit(X, y, sample_weight=weight)
    assert len(seen) > 10
    for found, expected in seen:
        assert found.value == pytest.approx(expected.value, rel=1e-9)
        assert_allclose(found.gradient, expected.gradient, rtol=1e-7, atol=1e-9)
        assert found.n_errors is expected.n_errors is None


@pytest.mark.parametrize("data", [noisy_blobs, chains])
def test_without_generation_it_is_pseudolikelihood(data):
    X, y = data(6)
    ours = contrastive_crf(generator=None, **TIGHT).fit(X, y)
    plain = drf_classifier(learning=PseudolikelihoodTraining(edge_scale=1), **TIGHT)
    assert_allclose(weights(ours), weights(plain.fit(X, y)), atol=1e-6)
    assert ours.converged_
    assert ours.n_rounds_ == 0


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_rows_without_generation_are_logistic_regression(form):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = np.argmax(X[:, :3] + rng.normal(size=(80, 3)), axis=1)
    ours = contrastive_crf(generator=None, **TIGHT).fit(form(X), y)
    theirs = LogisticRegression(tol=1e-10, max_iter=1000).fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert_allclose(ours.intercept_ - ours.intercept_.mean(), theirs.intercept_, atol=1e-5)


def test_a_set_of_all_labelings_is_maximum_likelihood():
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.random((12, 5)) < 0.3, axis=1) % 2
    X = y[..., None] + rng.normal(size=(12, 5, 1))
    exact = weights(drf_classifier(learning="likelihood", inference="tree", **TIGHT).fit(X, y))
    as_set = contrastive_crf(init="empty", generator=None, sets=[all_labelings(5, 2)], **TIGHT).fit(X, y)
    as_block = contrastive_crf(init="gpl", generator=None, blocks=[[np.arange(5)]] * 12, **TIGHT).fit(X, y)
    whole = contrastive_crf(init="gpl", generator=None, blocks=5, **TIGHT).fit(X, y)
    for model in (as_set, as_block, whole):
        assert_allclose(weights(model), exact, atol=1e-6)


def test_named_blocks_are_given_blocks():
    X, y = noisy_blobs(3, side=4)
    index = np.arange(16).reshape(4, 4)
    named = {"rows": list(index), "columns": list(index.T)}
    named[2] = [index[i : i + 2, j : j + 2].ravel() for i in range(3) for j in range(3)]
    for blocks, lists in named.items():
        a, b = (contrastive_crf(init="gpl", blocks=k, generator=None, **TIGHT).fit(X, y) for k in (blocks, [lists] * 3))
        assert_allclose(weights(a), weights(b), atol=1e-7)


def test_observed_is_a_set_of_all_labelings_seen():
    X, y = noisy_blobs(6, side=4)
    observed = contrastive_crf(init="observed", generator=None, **TIGHT).fit(X, y)
    given = contrastive_crf(sets=[y], generator=None, **TIGHT).fit(X, y)
    assert observed.n_assignments_ == given.n_assignments_ == 6 * 5
    assert_allclose(weights(observed), weights(given), atol=1e-8)


def test_weights_of_sets():
    X, y = noisy_blobs(6, side=4)
    per_set = contrastive_crf(sets=[y, y[:3]], set_weight=[0.5, 2.0], generator=None, **TIGHT).fit(X, y)
    per_example = contrastive_crf(
        sets=[y, y[:3]], set_weight=np.repeat([[0.5], [2.0]], 6, axis=1), generator=None, **TIGHT
    ).fit(X, y)
    assert_array_equal(weights(per_set), weights(per_example))
    # The second set only applies to the first three examples.
    without = contrastive_crf(sets=[y], set_weight=[0.5], generator=None, **TIGHT).fit(X, y)
    assert per_set.n_assignments_ == without.n_assignments_ + 3 * 2
    assert np.abs(weights(per_set) - weights(without)).max() > 1e-3


def test_sets_are_for_examples_of_their_lattice():
    X, y = chains(8)
    long = next(part for part in y if len(part) > 4)
    model = contrastive_crf(sets=[np.stack((long, (long + 1) % 3))], generator=None).fit(X, y)
    assert model.n_assignments_ == sum(len(part) == len(long) and bool(np.all(part == long)) for part in y)


def test_weight_of_what_is_generated():
    X, y = chains(8)
    y = [np.minimum(labels, 1) for labels in y]
    n_nodes = [len(labels) for labels in y]
    options = {"generator": "map", "generator_inference": "graph_cut", "init": "empty", "max_rounds": 3}
    # Without another term, a weight of the sets equals a weight of their examples.
    of_sets = contrastive_crf(generated_weight="n_nodes", **options, **TIGHT).fit(X, y)
    of_examples = contrastive_crf(**options, **TIGHT).fit(X, y, sample_weight=n_nodes)
    assert of_sets.n_assignments_ == of_examples.n_assignments_ > 0
    assert_allclose(weights(of_sets), weights(of_examples), atol=1e-6)
    same = contrastive_crf(generated_weight=3.0, **options, **TIGHT).fit(X, y)
    assert_allclose(weights(same), weights(contrastive_crf(3.0, **options, **TIGHT).fit(X, y)), atol=1e-6)
    # Together with the pseudolikelihood, the objective changes.
    light, heavy = (
        contrastive_crf(generated_weight=weight, **{**options, "init": "pl"}, **TIGHT).fit(X, y) for weight in (1, 9.0)
    )
    assert np.abs(weights(light) - weights(heavy)).max() > 1e-3


# Rounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["pl", "empty"])
@pytest.mark.parametrize("generator", ["map", "map_mv", ["icm", "gibbs_mv"]])
def test_no_round_raises_the_objective_on_its_sets(generator, init):
    X, y = noisy_blobs(8, n_classes=3)
    model = contrastive_crf(generator=generator, init=init, max_rounds=6, random_state=0).fit(X, y)
    bounds = [*model.round_starts_, len(model.loss_curve_)]
    assert len(model.round_starts_) == model.n_rounds_ + (not model.converged_)
    for start, stop in pairwise(bounds):
        assert np.all(np.diff(model.loss_curve_[start:stop]) <= 1e-9 * abs(model.loss_curve_[start]))
    # Growing sets can only increase the objective.
    for stop in bounds[1:-1]:
        assert model.loss_curve_[stop] >= model.loss_curve_[stop - 1]


def test_rounds_before_the_last_are_short():
    X, y = noisy_blobs(8, n_classes=3)
    options = {"generator": "map_mv", "max_rounds": 4, "random_state": 0, "pairwise": PairwiseTables(C=1.0), **TIGHT}
    short = contrastive_crf(max_round_iter=2, **options).fit(X, y)
    # The start of a round is also an entry.
    lengths = np.diff([*short.round_starts_, len(short.loss_curve_)])
    assert not short.converged_
    assert np.all(lengths[:-1] == 3)
    assert lengths[-1] > 3
    assert short.gradient_norm_curve_[-1] < 1e-7
    long = contrastive_crf(max_round_iter=None, **options).fit(X, y)
    assert np.diff(long.round_starts_).min() > 3


def test_a_short_round_that_finds_nothing_new_is_not_the_last():
    X, y = chains(8)
    y = [np.minimum(labels, 1) for labels in y]
    options = {"generator": "map_mv", "generator_inference": "graph_cut", "max_rounds": 50, **TIGHT}
    # Cuts are exact for these tables.
    options |= {"pairwise": "ising", "edge_features": "difference"}
    model = contrastive_crf(max_round_iter=1, **options).fit(X, y)
    assert model.converged_
    assert model.n_generated_[-1] == 0
    assert model.gradient_norm_curve_[-1] < 1e-7
    # The sets hold all labelings that complete rounds would find.
    assert_allclose(weights(model), weights(contrastive_crf(max_round_iter=None, **options).fit(X, y)), atol=0.1)


def test_rounds_end_where_nothing_is_new():
    rng = np.random.default_rng(0)
    y = (rng.random((10, 3)) < 0.5).astype(int)
    X = y[..., None] + rng.normal(size=(10, 3, 1))
    for generator in ("icm", "map", "icm_mv"):
        model = contrastive_crf(generator=generator, max_rounds=100, random_state=0).fit(X, y)
        assert model.converged_
        assert model.n_rounds_ < 100
        assert model.n_generated_[-1] == 0
        assert np.all(model.n_generated_[:-1] > 0)
        assert model.n_assignments_ == model.n_generated_.sum() <= 10 * 7


def test_several_generators_and_repetitions():
    X, y = noisy_blobs(5)
    options = {"max_rounds": 1, "random_state": 0}
    one = contrastive_crf(generator="gibbs", **options).fit(X, y)
    many = contrastive_crf(generator=["gibbs", "icm"], n_new=3, **options).fit(X, y)
    assert one.n_assignments_ == 5
    assert 5 * 3 < many.n_assignments_ <= 5 * 6


def test_most_violated_labelings_follow_the_cost():
    X, y = noisy_blobs(5, side=6)
    plain = contrastive_crf(generator="icm_mv", max_rounds=2, random_state=0).fit(X, y)
    options = {"generator": "icm_mv", "generator_inference": ICM(), "max_rounds": 2, "random_state": 0}
    costly = contrastive_crf(cost=np.array([[0.0, 5.0], [0.0, 0.0]]), **options).fit(X, y)
    heavy = contrastive_crf(**options).fit(X, y, node_weight=np.full((5, 6, 6), 3.0))
    for other in (costly, heavy):
        assert np.abs(weights(plain) - weights(other)).max() > 1e-6
    uniform = contrastive_crf(**options).fit(X, y, node_weight=np.ones((5, 6, 6)))
    assert_array_equal(weights(plain), weights(uniform))


def test_stochastic_gradient_descent_comes_near():
    X, y = noisy_blobs(16, side=4)
    batch = contrastive_crf(generator=None).fit(X, y)
    options = {"solver": "sgd", "step_size": 1.0, "step_schedule": "constant", "batch_size": 4, "random_state": 0}
    plain = contrastive_crf(generator=None, max_iter=150, **options).fit(X, y)
    assert plain.loss_curve_[-1] < 1.01 * batch.loss_curve_[-1]
    grown = contrastive_crf(generator="icm", max_rounds=5, max_iter=20, **options).fit(X, y)
    assert grown.n_rounds_ == 5
    assert grown.n_assignments_ == grown.n_generated_.sum() > 16
    again = contrastive_crf(generator="icm", max_rounds=5, max_iter=20, n_jobs=2, **options).fit(X, y)
    assert_array_equal(weights(grown), weights(again))


def test_examples_of_weight_zero_generate_nothing():
    X, y = noisy_blobs(6)
    model = contrastive_crf(generator="gibbs", max_rounds=2, random_state=0).fit(X, y, sample_weight=[1, 1, 0, 0, 0, 0])
    assert_array_equal(model.n_generated_, [2, 2])


def test_progress_counts_rounds(capsys, monkeypatch):
    # No progress bar, as if tqdm were not installed.
    monkeypatch.setitem(sys.modules, "tqdm", None)
    X, y = noisy_blobs(4)
    contrastive_crf(generator="gibbs", max_rounds=2, random_state=0, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["contrastive 1/3", "contrastive 2/3", "contrastive 3/3"]
    assert "4 new" in lines[2]


class Bar:
    """Methods of a tqdm bar that the estimator calls."""

    def __init__(self, total, desc):
        self.total, self.desc, self.shown, self.n = total, desc, [], 0

    def __enter__(self):
        bars.append(self)
        return self

    def __exit__(self, *error):
        self.is_closed = True

    def set_postfix_str(self, text, refresh):
        self.shown.append(text)

    def update(self):
        self.n += 1


bars: list[Bar] = []


def test_a_bar_counts_rounds_where_tqdm_is_installed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar))
    bars.clear()
    X, y = noisy_blobs(4)
    contrastive_crf(generator="gibbs", max_rounds=2, random_state=0, verbose=1).fit(X, y)
    assert [(bar.desc, bar.total, bar.n, bar.is_closed) for bar in bars] == [("contrastive", 3, 3, True)]
    assert bars[0].shown[2].endswith("4 new")
    assert not capsys.readouterr().out


# Prediction ------------------------------------------------------------------------------------------------------


def test_log_likelihood_ratio_is_a_difference_of_scores():
    X, y = chains(30)
    model = contrastive_crf(max_rounds=2, random_state=0).fit(X, y)
    other = [(part + 1) % 3 for part in y]
    ratio = model.log_likelihood_ratio(X, y, other)
    assert_allclose(ratio, -model.log_likelihood_ratio(X, other, y))
    single = [part for part in range(30) if len(y[part]) == 1]
    probability = model.predict_proba(X)
    for i in single:
        assert_allclose(ratio[i], np.log(probability[i][0, y[i][0]] / probability[i][0, other[i][0]]), rtol=1e-6)
    assert single


def test_graphs_and_edge_features():
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(6):
        labels = rng.integers(3, size=7)
        edges = np.stack((np.arange(6), np.arange(1, 7)), axis=1)
        X.append(Example(np.eye(3)[labels] + rng.normal(size=(7, 3)), [*edges, (0, 6)], rng.uniform(size=(7, 2))))
        y.append(labels)
    model = contrastive_crf(generator=["icm", "map_mv"], max_rounds=3, inference="icm", random_state=0).fit(X, y)
    assert model.edge_coef_.shape == (1, 2, 1)
    assert model.score(X, y) > 0.5
    assert model.predict(X).shape == (6,)


# Interruptions, warm starts, errors ------------------------------------------------------------------------------


def test_warm_start_begins_at_the_last_weights():
    X, y = noisy_blobs(5)
    model = contrastive_crf(generator=None, warm_start=True, **TIGHT).fit(X, y)
    first = model.loss_curve_[-1]
    model.fit(X, y)
    assert_allclose(model.loss_curve_[0], first)
    assert model.n_iter_ <= 2


def interrupt_at(monkeypatch, call):
    calls = []

    def interrupted(self, *args, **options):
        calls.append(self)
        if len(calls) == call:
            raise KeyboardInterrupt
        return ICM_MAP(self, *args, **options)

    monkeypatch.setattr(ICM, "_map", interrupted)


ICM_MAP = ICM._map


def test_interrupted_fit_keeps_its_weights_with_warm_start(monkeypatch):
    X, y = noisy_blobs(4)
    interrupt_at(monkeypatch, 10)
    model = contrastive_crf(generator="icm", random_state=0, warm_start=True, max_rounds=5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.n_rounds_ == 2
    assert model.score(X, y) > 0.5


def test_interrupted_epochs_are_counted_as_far_as_they_went(monkeypatch):
    X, y = noisy_blobs(4)
    interrupt_at(monkeypatch, 10)
    model = contrastive_crf(generator="icm", solver="sgd", random_state=0, warm_start=True)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.n_iter_ == 2
    assert_array_equal(model.round_starts_, [0, 1, 2])
    assert len(model.n_generated_) == model.n_rounds_ == 3
    assert not model.converged_


def test_interrupted_fit_without_warm_start_changes_nothing(monkeypatch):
    X, y = noisy_blobs(4)
    model = contrastive_crf(generator="icm", random_state=0, max_rounds=5).fit(X, y)
    before = pickle.dumps(model)
    interrupt_at(monkeypatch, 10)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert pickle.dumps(model) == before


def test_unconverged_optimisation_warns():
    X, y = noisy_blobs(4)
    with pytest.warns(ConvergenceWarning, match="increase max_iter"):
        contrastive_crf(generator=None, max_iter=2, tol=1e-9).fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generator": ["icm", "swap"]}, "generator must be one of icm, map"),
        ({"generator": "map", "generator_inference": "gibbs"}, "does not compute best labelings"),
        ({"sets": [np.array([[7] * 10] * 10)[None]]}, "contains the label 7, which is not one of the classes"),
        ({"sets": [np.array(3)]}, r"given\[0\] must be an array of labelings"),
        ({"sets": [np.zeros((2, 10, 10), dtype=int)], "set_weight": [1.0, 2.0]}, "given_weight must have shape"),
        ({"sets": [np.zeros((2, 10, 10), dtype=int)], "set_weight": [-1.0]}, "given_weight must be finite"),
        ({"set_weight": [1.0]}, "given_weight needs the parameter 'given': without it there are no sets"),
        ({"init": "gpl", "blocks": [[[0]]]}, "blocks holds lists for 1 examples, but X has 3"),
        ({"init": "gpl", "blocks": [[[100]], [], []]}, r"blocks\[0\]\[0\] must hold nodes from 0 to 99"),
    ],
)
def test_bad_parameters_are_named(options, message):
    X, y = noisy_blobs(3)
    with pytest.raises(ValueError, match=message):
        contrastive_crf(**options).fit(X, y)


def test_what_needs_one_lattice_says_so():
    X, y = chains(5)
    with pytest.raises(ValueError, match="init='observed' needs examples with one lattice"):
        contrastive_crf(init="observed").fit(X, y)
    with pytest.raises(ValueError, match=r"blocks='rows' needs lattices of two axes or more, but X\[0\]"):
        contrastive_crf(init="gpl", blocks="rows").fit(X, y)


def test_a_generator_must_be_written():
    with pytest.raises(NotImplementedError, match="Generator"):
        Generator()(None, None, None)


def drowned_squares():
    y = np.zeros((10, 12, 12), dtype=int)
    y[:, 3:9, 3:9] = 1
    return y[..., np.newaxis] + np.random.default_rng(0).normal(scale=0.7, size=(10, 12, 12, 1)), y


def test_edges_are_penalised_by_the_labels_of_training():
    X, y = drowned_squares()
    chosen = contrastive_crf(random_state=0).fit(X, y)
    plain = contrastive_crf(pairwise=PairwiseTables(C=1.0), max_rounds=1, random_state=0).fit(X, y)
    assert chosen.score(X, y) > max(plain.score(X, y), 0.9)
    # Chains are not changed.
    X, y = chains(8)
    own, explicit = (contrastive_crf(pairwise=tables, random_state=0) for tables in ("auto", PairwiseTables(C=1.0)))
    assert_array_equal(weights(own.fit(X, y)), weights(explicit.fit(X, y)))


def test_the_best_round_is_kept():
    X, y = drowned_squares()
    options = {"pairwise": PairwiseTables(C=1.0), "random_state": 0}
    scores = [contrastive_crf(max_rounds=k, **options).fit(X, y).score(X, y) for k in (1, 2, 3, 4)]
    model = contrastive_crf(max_rounds=4, **options).fit(X, y)
    assert not model.converged_
    stops = [*model.round_starts_[1:] - 1, model.n_iter_ - 1]
    assert model.best_iter_ in stops
    assert model.inference_ == "trw"
    assert scores[3] >= np.mean(y == 0)


def test_small_data_are_trained_without_the_penalty_too():
    X, y = noisy_blobs(8, n_classes=3)
    chosen = contrastive_crf(random_state=0).fit(X, y)
    plain = contrastive_crf(pairwise=PairwiseTables(C=1.0), random_state=0).fit(X, y)
    assert chosen.score(X, y) >= plain.score(X, y)


@pytest.mark.parametrize("noise", [0.5, 0.7, 1.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_large_data_are_labelled_by_what_is_right_more_often(monkeypatch, noise, n_classes):
    rights, own = {}, _contrastive_training._score_of_training

    def recorded(risk, labeler):
        score = own(risk, labeler)

        def noted(coef):
            rights.setdefault(labeler.decoding.rule, []).append(score(coef))
            return rights[labeler.decoding.rule][-1]

        return noted

    monkeypatch.setattr(_contrastive_training, "_score_of_training", recorded)
    monkeypatch.setattr(_contrastive_training, "_NODES_TO_TRAIN_TWICE", 0)
    y = drowned_squares()[1]
    y[:, 4:8, 4:8] = n_classes - 1
    X = y[..., np.newaxis] + np.random.default_rng(1).normal(scale=noise, size=(*y.shape, 1))
    model = contrastive_crf(random_state=0, max_rounds=2).fit(X, y)
    # Marginals for four penalties; then best labelings for the best weights.
    assert model.inference_ == ("map" if rights["map"][0] > max(rights["mpm"][:4]) else "trw")
    # Probabilities come from marginals whatever the labels, also in a copy.
    trees = TRWMessagePassing("chains", max_iter=500, tol=1e-2)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X, inference=trees))
    best = AutoMap(bounded=True) if model.inference_ == "map" else trees
    assert_array_equal(model.predict(X), model.predict(X, inference=best))
    # An explicit inference is used as given.
    assert contrastive_crf(random_state=0, max_rounds=2, inference="trw").fit(X, y).inference_ == "trw"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_defaults_give_the_same_result_twice_where_labelings_are_drawn():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4, 6, 6, 3)), rng.integers(0, 3, size=(4, 6, 6))
    assert_array_equal(weights(ContrastiveCRF().fit(X, y)), weights(ContrastiveCRF().fit(X, y)))
    learning = ContrastiveTraining(generator="gibbs")
    own, again, other = (ContrastiveCRF(learning=learning, random_state=seed).fit(X, y) for seed in (None, None, 2))
    assert_array_equal(weights(own), weights(again))
    assert np.any(weights(own) != weights(other))


def test_collinear_features_need_few_iterations(monkeypatch):
    # A single round, because the number of rounds depends on the last digits of the weights.
    rng = np.random.default_rng(1)
    y = (gaussian_filter(rng.normal(size=(6, 40, 40)), (0, 4, 4)) > 0).astype(int)
    x = y + rng.normal(size=y.shape)
    X = np.stack([x] + [gaussian_filter(x, (0, scale, scale)) for scale in (1, 1.5, 2, 3)], axis=-1)
    field = ContrastiveCRF(learning=ContrastiveTraining(max_rounds=1))
    n_scaled = field.fit(X, y).n_iter_
    assert field.score(X, y) > 0.94
    monkeypatch.setattr(_growing_sets, "_choose_scaling", lambda problem, coef: None)
    assert 2 * n_scaled < field.fit(X, y).n_iter_
