"""Several labels for each row: the structure among labels, the field that is fitted, scikit-learn's conventions."""

import pickle
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.fixes import parse_version

from sklearn_crf import TRWCRF, DRFClassifier, M3NClassifier, MultiLabelField, multilabel
from sklearn_crf.encoding import RowFields
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import BruteForce
from sklearn_crf.learning import Exact
from sklearn_crf.models import score
from sklearn_crf.multilabel import chow_liu_edges
from sklearn_crf.potentials import PairwiseTables

X, Y = make_multilabel_classification(n_samples=80, n_features=5, n_classes=4, random_state=0)
X = X / X.std(axis=0)


# These checks use one label for each row, or expect an additional column of probabilities, of not having the label.
OF_ONE_LABEL = dict.fromkeys(
    [
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
        "check_classifiers_one_label",
        "check_classifiers_one_label_sample_weights",
        "check_classifiers_classes",
        "check_classifiers_train",
        "check_classifiers_regression_target",
        "check_classifier_not_supporting_multiclass",
    ],
    "y must be a table of labels",
)
if parse_version(sklearn.__version__) < parse_version("1.7"):
    reason = "weighted and repeated rows differ by more than 1e-7 in this version's check; the cause is not known yet"
    OF_ONE_LABEL["check_sample_weight_equivalence_on_dense_data"] = reason
    OF_ONE_LABEL["check_sample_weight_equivalence_on_sparse_data"] = reason


def test_passes_the_checks_of_scikit_learn():
    field = MultiLabelField(TRWCRF(max_iter=20))
    results = check_estimator(field, expected_failed_checks=OF_ONE_LABEL, on_fail=None, on_skip=None)
    done = [r for r in results if r["status"] not in ("skipped", "xfail")]
    assert not [r["check_name"] + ": " + str(r["exception"]) for r in done if r["status"] != "passed"]
    assert len(done) > 40


def mutual_information(a, b):
    n = len(a)
    total = 0.0
    for u, v in product((0, 1), repeat=2):
        joint = (np.sum((a == u) & (b == v)) + 1) / (n + 4)
        p, q = ((np.sum(labels == value) + 2) / (n + 4) for labels, value in ((a, u), (b, v)))
        total += joint * np.log(joint / (p * q))
    return total


def spanning_trees(n_nodes):
    pairs = [(a, b) for a in range(n_nodes) for b in range(a + 1, n_nodes)]
    for chosen in product((0, 1), repeat=len(pairs)):
        edges = [pair for pair, use in zip(pairs, chosen, strict=True) if use]
        if len(edges) == n_nodes - 1:
            graph = sp.coo_array((np.ones(len(edges)), np.transpose(edges)), shape=(n_nodes, n_nodes))
            if sp.csgraph.connected_components(graph, directed=False)[0] == 1:
                yield edges


@pytest.mark.parametrize("seed", range(3))
def test_chow_liu_is_the_best_of_all_trees(seed):
    rng = np.random.default_rng(seed)
    labels = (rng.normal(size=(50, 4)) + rng.normal(size=(50, 1)) * rng.random(4) * 2 > 0).astype(int)

    def value(edges):
        return sum(mutual_information(labels[:, a], labels[:, b]) for a, b in edges)

    assert value(chow_liu_edges(labels)) == pytest.approx(max(map(value, spanning_trees(4))))


def test_the_tree_counts_a_row_of_weight_k_as_k_rows():
    rng = np.random.default_rng(0)
    rows, labels, times = rng.normal(size=(60, 3)), rng.integers(2, size=(60, 5)), rng.integers(4, size=60)
    copies = np.repeat(np.arange(60), times)
    weighted = MultiLabelField(structure="chow_liu").fit(rows, labels, sample_weight=times)
    repeated = MultiLabelField(structure="chow_liu").fit(rows[copies], labels[copies])
    assert_array_equal(weighted.edges_, repeated.edges_)
    assert_allclose(weighted.predict_proba(rows), repeated.predict_proba(rows), atol=1e-6)
    assert not np.array_equal(weighted.edges_, MultiLabelField(structure="chow_liu").fit(rows, labels).edges_)


def test_all_of_few_labels_are_joined_and_decoded_together():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(50, 3)), rng.integers(2, size=(50, 16))
    field = MultiLabelField().fit(rows, labels[:, :4])
    states = np.array(list(product([0, 1], repeat=4)))
    best = [states[np.argmax([score(model, state) for state in states])] for model in field.models(rows)]
    assert_array_equal(field.predict(rows), best)
    assert len(field.edges_) == 6
    assert len(MultiLabelField().fit(rows, labels).edges_) == 15


def test_without_edges_it_is_one_logistic_regression_for_each_label():
    field = MultiLabelField(TRWCRF(C=1.0, tol=1e-8, max_iter=2000), structure=[]).fit(X, Y)
    for label in range(Y.shape[1]):
        alone = LogisticRegression(C=1.0, tol=1e-10, max_iter=2000).fit(X, Y[:, label])
        assert field.predict_proba(X)[:, label] == pytest.approx(alone.predict_proba(X)[:, 1], abs=2e-3)


def test_labels_that_copy_another_are_learned_through_the_edge():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 2))
    hidden = rng.integers(2, size=200)  # no feature contains this information
    first = (rows[:, 0] > 0).astype(int)
    labels = np.stack([first, hidden, 1 - hidden], axis=1)
    joint = MultiLabelField().fit(rows, labels)
    found = joint.predict(rows)
    assert np.mean(found[:, 1] != found[:, 2]) > 0.95  # independent predictions of both labels would often agree
    assert [1, 2] in joint.edges_.tolist()


@pytest.mark.parametrize("estimator", [TRWCRF(), DRFClassifier(learning="pl"), M3NClassifier(max_iter=20)])
@pytest.mark.parametrize("structure", ["chow_liu", "full", [[0, 1], [2, 3]]])
def test_every_field_and_structure(estimator, structure):
    field = MultiLabelField(clone(estimator), structure).fit(X, Y)
    found = field.predict(X)
    assert found.shape == Y.shape
    assert set(np.unique(found)) <= {0, 1}
    assert np.mean(found == Y) > 0.6
    assert hasattr(field, "predict_proba") == hasattr(estimator, "predict_proba")


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("solver", ["one_slack", "frank_wolfe", "bmrm"])
def test_margins_keep_to_pairs_of_labels_that_are_not_forbidden(solver, form):
    """Training labels contain no forbidden pair, and the loss is a maximum over labelings without forbidden pairs."""
    nested, structure = np.minimum.accumulate(Y[:40], axis=1), [[0, 1], [1, 2], [2, 3]]
    options = {"pairwise": PairwiseTables(forbidden=[[0, 1]]), "C": 0.1, "tol": 0.01, "random_state": 0}

    def fitted(**more):
        return MultiLabelField(M3NClassifier(**options, **more), structure).fit(form(X[:40]), nested)

    field, reference = fitted(solver=solver), fitted(solver="bmrm", inference=BruteForce())
    in_threads = fitted(solver=solver, n_jobs=2)
    assert_allclose(field.estimator_.loss_curve_[-1], reference.estimator_.loss_curve_[-1], rtol=0.02)
    assert_array_equal(field.estimator_.coef_, in_threads.estimator_.coef_)
    assert np.all(np.diff(field.predict(form(X)), axis=1) <= 0)


def test_forms_of_rows_and_labels_agree():
    expected = MultiLabelField().fit(X, Y).predict_proba(X)
    sparse = MultiLabelField().fit(sp.csr_array(X), sp.csr_array(Y))
    assert sparse.predict_proba(sp.csr_array(X)) == pytest.approx(expected, abs=5e-3)
    assert MultiLabelField().fit(X.tolist(), Y.astype(bool)).predict_proba(X) == pytest.approx(expected)
    single = MultiLabelField().fit(X.astype(np.float32), Y).predict_proba(X.astype(np.float32))
    assert single == pytest.approx(expected, abs=1e-2)


def test_missing_values_of_sparse_labels():
    hidden = Y.astype(float)
    hidden[::3, 0] = np.nan
    expected = MultiLabelField().fit(X, hidden).predict_proba(X)
    assert MultiLabelField().fit(X, sp.csr_array(hidden)).predict_proba(X) == pytest.approx(expected)


def test_metrics_and_searches_of_scikit_learn():
    field = MultiLabelField(TRWCRF(max_iter=30))
    assert roc_auc_score(Y, field.fit(X, Y).predict_proba(X), average="micro") > 0.7
    assert cross_val_score(field, X, Y, cv=3, scoring="f1_micro").min() > 0.4
    search = GridSearchCV(field, {"estimator__C": [0.1, 1.0], "structure": ["chow_liu", "full"]}, cv=2).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_label_that_no_row_has():
    labels = Y.copy()
    labels[:, 2] = 0
    assert MultiLabelField().fit(X, labels).predict_proba(X)[:, 2].max() < 0.5


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (Y[:, 0], {}, r"y must have shape \(n_samples, n_labels\) of zeros and ones"),
        (np.tile([0, 1, 2, 1], (80, 1)), {}, "got 3 classes: use MultiLabelBinarizer to convert"),
        (Y, {"structure": "tree"}, "'structure' parameter of MultiLabelField must be a str among"),
        (Y, {"structure": [[0, 4]]}, r"pairs of the 4 labels: edges\[0\]"),
    ],
)
def test_bad_arguments(y, options, message):
    with pytest.raises(ValueError, match=message):
        MultiLabelField(**options).fit(X, y)


@pytest.mark.parametrize("values", [(0, 1), (-1, 1)], ids=str)
def test_evidence_clamps_labels(values):
    table = np.where(Y > 0, values[1], values[0])
    field = MultiLabelField().fit(X, table)
    evidence = np.full(Y.shape, np.nan)
    evidence[:, 0] = values[1]
    assert np.all(field.predict(X, evidence)[:, 0] == values[1])
    proba = field.predict_proba(X, evidence)
    np.testing.assert_allclose(proba[:, 0], 1)
    assert np.abs(proba - field.predict_proba(X))[:, 1:].max() > 1e-3
    # Compare with the marginals of the other labels given the first label, by enumeration.
    for row, model in zip(proba[:3], field.models(X[:3], evidence[:3]), strict=True):
        np.testing.assert_allclose(BruteForce().marginals(model).unary[:, 1], row, atol=1e-9)


def test_another_inference_predicts():
    field = MultiLabelField().fit(X, Y)
    np.testing.assert_allclose(field.predict_proba(X, inference="brute_force"), field.predict_proba(X), atol=1e-9)
    best = np.stack([BruteForce().map(model).labels for model in field.models(X)])
    np.testing.assert_array_equal(field.predict(X, inference=BruteForce()).shape, best.shape)
    np.testing.assert_array_equal(field.predict(X, inference="map"), best)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [(np.zeros((2, 4)), "evidence must have shape"), (np.full(Y.shape, 2.0), "evidence holds 2, but the values of y")],
)
def test_wrong_evidence_is_an_error(evidence, message):
    with pytest.raises(ValueError, match=message):
        MultiLabelField().fit(X, Y).predict(X, evidence)


@pytest.mark.parametrize("structure", ["chow_liu", "full"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_rows_predicted_together_are_as_alone(structure, form, monkeypatch):
    monkeypatch.setattr(multilabel, "_NODES_TOGETHER", 24)
    rows = form(X)
    field = MultiLabelField(TRWCRF(max_iter=30), structure=structure).fit(rows, Y)
    labels, probabilities = field.predict(rows), field.predict_proba(rows)
    assert labels.shape == probabilities.shape == Y.shape
    for i in range(0, len(Y), 7):
        assert np.array_equal(field.predict(rows[i : i + 1])[0], labels[i])
        np.testing.assert_allclose(field.predict_proba(rows[i : i + 1])[0], probabilities[i], atol=1e-12)
    unknown = np.full(Y.shape, np.nan)
    assert np.array_equal(field.predict(rows, unknown), labels)


def test_the_score_takes_any_two_values_and_counts_others_as_errors():
    X = np.random.default_rng(0).normal(size=(40, 3))
    Y = (X > 0).astype(int)
    names = np.where(Y, "yes", "no")
    field, named = MultiLabelField().fit(X, Y), MultiLabelField().fit(X, names)
    right = (field.predict(X) == Y).all(axis=1)
    assert field.score(X, Y) == named.score(X, names) == field.score(X, sp.csr_matrix(Y)) == right.mean()
    weight = np.arange(40.0)
    assert field.score(X, Y, sample_weight=weight) == pytest.approx(np.average(right, weights=weight))
    other = Y.copy()
    first = np.argmax(right)
    other[first, 0] = 7
    assert field.score(X, other) == pytest.approx(right.mean() - 1 / 40)
    with pytest.raises(ValueError, match=r"y holds numbers, such as .*, but the values of fit are strings"):
        named.score(X, Y)
    with pytest.raises(
        ValueError, match=r"y must have shape \(40, 3\), for the rows of X and the labels of fit, got \(40, 2\)"
    ):
        field.score(X, Y[:, :2])


def partly_known(seed=0, share=0.3):
    """Return Y as floats with a share of NaN, where row 3 has no known label."""
    table = np.where(np.random.default_rng(seed).random(Y.shape) < share, np.nan, Y)
    table[3] = np.nan
    return table


PARTLY = partly_known()
WEIGHT = np.random.default_rng(1).random(len(Y)) + 0.5


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("structure", ["chow_liu", "full", [[0, 1], [2, 3]], []], ids=str)
@pytest.mark.parametrize(
    "estimator",
    [
        TRWCRF(pairwise="ising", tol=1e-8),
        DRFClassifier(tol=1e-8),
        M3NClassifier(C=0.1, max_iter=20),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_unknown_labels_are_missing_labels_of_the_field(estimator, structure, dtype):
    rows, table, weight = X[:40].astype(dtype), PARTLY[:40], WEIGHT[:40]
    field = MultiLabelField(estimator, structure).fit(rows, table, sample_weight=weight)
    labels = np.where(np.isnan(table), -1, table).astype(int)
    some = np.flatnonzero((labels >= 0).any(axis=1))
    examples = RowFields(rows[some], Graph(4, field.edges_))
    # Latent margins have many local optima, so rounding, which depends on the form of X, can change the result.
    if not isinstance(estimator, M3NClassifier):
        examples = list(examples)
    direct = clone(estimator).set_params(classes=[0, 1], missing_label=-1)
    direct.fit(examples, labels[some] if isinstance(examples, RowFields) else list(labels[some]), weight[some])
    loss = field.estimator_.loss_curve_[-1], direct.loss_curve_[-1]
    assert_allclose(*loss, rtol=1e-6 if dtype == np.float64 else 1e-4)
    for name in ("coef_", "intercept_", "edge_coef_"):
        found, expected = getattr(field.estimator_, name), getattr(direct, name)
        # The rounding of single precision depends on the processor, and grows with the weights.
        assert_allclose(found, expected, atol=1e-6 if dtype == np.float64 else 1e-3 * max(np.abs(expected).max(), 2))


@pytest.mark.parametrize("structure", ["chow_liu", "full"])
def test_unknown_labels_are_summed_out(structure):
    field = MultiLabelField(TRWCRF(pairwise="ising", C=0.5), structure).fit(X, PARTLY, sample_weight=WEIGHT)
    inner = field.estimator_

    def log_sums(evidence):
        return np.array([BruteForce().marginals(model).log_z for model in field.models(X, evidence)])

    loss = WEIGHT.dot(log_sums(None) - log_sums(PARTLY))
    penalty = np.sum(inner.coef_**2) + np.sum(inner.edge_coef_**2)
    assert inner.loss_curve_[-1] == pytest.approx(0.5 * loss + penalty / 2, rel=1e-6)


@pytest.mark.parametrize("estimator", [TRWCRF(pairwise="ising"), DRFClassifier(), M3NClassifier(C=0.1, max_iter=20)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_complete_labels_do_not_need_a_missing_label(estimator):
    field = MultiLabelField(estimator, "full").fit(X, Y)
    direct = clone(estimator).set_params(classes=[0, 1]).fit(RowFields(X, Graph(4, field.edges_)), Y)
    for name in ("coef_", "intercept_", "edge_coef_"):
        assert_array_equal(getattr(field.estimator_, name), getattr(direct, name))


@pytest.mark.parametrize("seed", range(3))
def test_chow_liu_counts_the_rows_in_which_both_labels_are_known(seed):
    rng = np.random.default_rng(seed)
    labels = (rng.normal(size=(60, 4)) + rng.normal(size=(60, 1)) * rng.random(4) * 2 > 0).astype(float)
    labels[rng.random(labels.shape) < 0.3] = np.nan
    labels[7] = np.nan

    def value(edges):
        both = [labels[~np.isnan(labels[:, [a, b]]).any(axis=1)][:, [a, b]].T for a, b in edges]
        return sum(mutual_information(*pair) for pair in both)

    edges = chow_liu_edges(labels)
    assert value(edges) == pytest.approx(max(map(value, spanning_trees(4))))
    assert_array_equal(chow_liu_edges(np.where(np.isnan(labels), -1, labels)), edges)
    times = rng.integers(4, size=60)
    assert_array_equal(chow_liu_edges(labels, times), chow_liu_edges(np.repeat(labels, times, axis=0)))


def test_chow_liu_tree_of_any_container():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    labels, mask = rng.integers(2, size=(50, 4)), rng.random((50, 4)) < 0.4
    under_mask = np.where(mask, labels[:, :1], labels)
    expected = chow_liu_edges(np.where(mask, np.nan, labels))
    assert not np.array_equal(chow_liu_edges(under_mask), expected)
    frame = pd.DataFrame(labels).astype("Int64").mask(mask)
    for given in (np.ma.masked_array(under_mask, mask=mask), frame, np.where(mask, None, labels)):
        assert_array_equal(chow_liu_edges(given), expected)
    assert_array_equal(chow_liu_edges(sp.csr_array(labels)), chow_liu_edges(labels.astype(bool)))
    weight = np.ma.masked_array(np.ones(50), mask=np.arange(50) == 3)
    with pytest.raises(ValueError, match=r"sample_weight .*NaN"):
        chow_liu_edges(labels, weight)
    with pytest.raises(ValueError, match="Y must hold zeros and ones"):
        chow_liu_edges(labels + 1)


def test_marks_of_unknown_labels_agree():
    pd = pytest.importorskip("pandas")

    def fit(labels):
        return MultiLabelField(TRWCRF(pairwise="ising", tol=1e-2), "chow_liu").fit(X, labels)

    expected = fit(PARTLY)
    probabilities, unknown = expected.predict_proba(X), np.isnan(PARTLY)
    words = np.where(unknown, None, np.where(Y > 0, "yes", "no"))
    forms = {
        "-1": np.where(unknown, -1, Y),
        "list": np.where(unknown, None, Y).tolist(),
        "mask": np.ma.masked_array(Y, mask=unknown),
        "frame": pd.DataFrame(PARTLY),
        "nullable": pd.DataFrame(PARTLY).astype("Int64"),
        "words": words,
        "signs": np.where(unknown, np.nan, 2 * Y - 1),  # here, -1 is a label that a row does not have
        "both": np.where(np.arange(4) % 2, PARTLY, np.where(unknown, -1, Y)),
    }
    for name, form in forms.items():
        field = fit(form)
        assert_array_equal(field.predict_proba(X), probabilities, name)
        assert field.score(X, form) == expected.score(X, PARTLY), name
    assert set(fit(words).predict(X).ravel()) == {"yes", "no"}
    assert_array_equal(pickle.loads(pickle.dumps(expected)).predict_proba(X), probabilities)


def test_rows_without_a_known_label_have_no_effect():
    field = MultiLabelField(TRWCRF(pairwise="ising", tol=1e-2), "chow_liu")
    some = ~np.isnan(PARTLY).all(axis=1)
    for options, known in (({}, {}), ({"sample_weight": WEIGHT}, {"sample_weight": WEIGHT[some]})):
        for form in (np.asarray, sp.csr_array):
            found = clone(field).fit(form(X), PARTLY, **options)
            expected = clone(field).fit(form(X[some]), PARTLY[some], **known)
            assert_array_equal(found.edges_, expected.edges_)
            assert_array_equal(found.estimator_.coef_, expected.estimator_.coef_)
            score = expected.score(X[some], PARTLY[some], **known)
            assert found.score(X, PARTLY, **options) == pytest.approx(score, rel=1e-12)


def test_the_score_compares_the_known_labels_of_each_row():
    field = MultiLabelField(TRWCRF(tol=1e-2)).fit(X, PARTLY)
    found, right, weights = field.predict(X), [], []
    for truth, labels, weight in zip(PARTLY, found, WEIGHT, strict=True):
        known = ~np.isnan(truth)
        if known.any():
            right.append(np.array_equal(labels[known], truth[known]))
            weights.append(weight)
    assert field.score(X, PARTLY) == np.mean(right)
    assert field.score(X, PARTLY, sample_weight=WEIGHT) == pytest.approx(np.average(right, weights=weights))
    with pytest.raises(ValueError, match="y holds no known label"):
        field.score(X, np.full(Y.shape, np.nan))


def test_searches_with_unknown_labels():
    field = MultiLabelField(TRWCRF(pairwise="ising", tol=1e-2))
    search = GridSearchCV(field, {"structure": ["chow_liu", "full"]}, cv=KFold(2)).fit(X, PARTLY)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    # A number of folds makes scikit-learn check y itself, and refuse NaN.
    numbers = clone(search).set_params(cv=2).fit(X, np.where(np.isnan(PARTLY), -1, PARTLY).astype(int))
    assert_array_equal(numbers.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"])


def test_incomplete_rows_help():
    """Rows with unknown labels improve the fit: with 30 % of the cells unknown, few rows are complete."""
    gain = {"chow_liu": [], "full": []}
    for seed in range(2):
        rng = np.random.default_rng(seed)
        rows, noise = rng.normal(size=(1100, 4)), rng.normal(size=(1100, 6))
        labels = (rows @ rng.normal(size=(4, 5)) + 1.5 * noise[:, 5:] + 0.5 * noise[:, :5] > 0).astype(float)
        table = np.where(rng.random((100, 5)) < 0.3, np.nan, labels[:100])
        complete = ~np.isnan(table).any(axis=1)
        for structure, own in gain.items():
            field = MultiLabelField(TRWCRF(pairwise="ising", inference="map", tol=1e-2), structure)
            score = field.fit(rows[:100], table).score(rows[100:], labels[100:])
            field.fit(rows[:100][complete], table[complete])
            own.append(score - field.score(rows[100:], labels[100:]))
    assert all(np.mean(own) > 0.02 for own in gain.values()), gain


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.where(np.arange(4) == 2, np.nan, Y), r"y\[:, 2\] holds no known label"),
        (np.where(np.arange(4) == 1, -1, Y), r"y\[:, 1\] holds no known label"),
        (np.full(Y.shape, np.nan), r"y\[:, 0\] holds no known label"),
        (np.where(np.isnan(PARTLY), np.nan, 1), "got 1 class: use"),
        (np.where(np.isnan(PARTLY), -2, Y), "got 3 classes: use"),
        (np.where(np.isnan(PARTLY), np.nan, Y + 0.5), "Unknown label type"),
        (np.where(np.isnan(PARTLY), np.inf, Y), "infinity"),
        (sp.csr_array(np.where(np.isnan(PARTLY), -1, Y)), "got 3 classes: use"),
    ],
)
def test_errors_for_unknown_labels(y, message):
    with pytest.raises(ValueError, match=message):
        MultiLabelField(TRWCRF(max_iter=2)).fit(X, y)


@pytest.mark.parametrize(
    ("treatment", "structure", "dtype"),
    [
        ("mark", "chow_liu", np.float64),
        ("mark", "chow_liu", np.float32),
        ("mean", "chow_liu", np.float64),
        ("mean", "chow_liu", np.float32),
        ("mark", "full", np.float64),
    ],
)
def test_gaps_in_features_become_means_of_the_rows(treatment, structure, dtype):
    rows = X.astype(dtype)
    rows[np.random.default_rng(0).random(rows.shape) < [0.3, 0.3, 0, 0, 0]] = np.nan
    used = WEIGHT * (~np.isnan(PARTLY)).any(axis=1)  # rows without a known label are left out
    means = used.dot(np.nan_to_num(rows)) / used.dot(~np.isnan(rows))
    filled = np.where(np.isnan(rows), means, rows)
    filled = filled.astype(dtype)
    by_hand = np.hstack((filled, np.isnan(rows[:, :2]).astype(dtype))) if treatment == "mark" else filled
    field = MultiLabelField(TRWCRF(pairwise="ising", learning=Exact(missing_features=treatment)), structure)
    expected = clone(field).fit(by_hand, PARTLY, sample_weight=WEIGHT)
    field.fit(rows, PARTLY, sample_weight=WEIGHT)
    assert field.n_features_in_ == 5
    tol = 1e-9 if dtype == np.float64 else 1e-4
    assert_allclose(field.predict_proba(rows), expected.predict_proba(by_hand), atol=tol)
    for given in (rows, sp.csr_matrix(rows)):
        assert_array_equal(pickle.loads(pickle.dumps(field)).predict(given, PARTLY), field.predict(rows, PARTLY))
    sparse = clone(field).fit(sp.csr_matrix(rows), PARTLY, sample_weight=WEIGHT)
    assert_allclose(sparse.estimator_.fill_values_, field.estimator_.fill_values_, rtol=1e-6)
    assert_allclose(sparse.predict_proba(rows), field.predict_proba(rows), atol=1e-2)


def test_gaps_that_training_did_not_have_are_an_error():
    field = MultiLabelField().fit(X, Y)
    gap = np.where(np.arange(5) == 1, np.nan, X)
    with pytest.raises(ValueError, match="X contains NaN"):
        field.predict(gap)
    with pytest.raises(ValueError, match="X contains NaN"):
        MultiLabelField(TRWCRF(learning=Exact(missing_features="error"))).fit(np.where(Y[:, :1], X, gap), Y)
