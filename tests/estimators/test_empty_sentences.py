"""Empty sentences: their predictions are empty, and other predictions and fitted weights do not change."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DRFClassifier,
    Example,
    M3NClassifier,
    RegressionTreeFieldClassifier,
    Shards,
)
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.learning import MaximumLikelihood, MaxMargin
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.potentials import PairwiseTables, Segments
from sklearn_crf.preprocessing import ClassifierScores, NodeTransformer, SequenceVectorizer

FIELDS = [TRWCRF, DRFClassifier, M3NClassifier, ContrastiveCRF]
FILLED = (1, 3, 5)  # places of the sentences that are not empty


def data(seed=0):
    rng = np.random.default_rng(seed)
    y = [rng.integers(3, size=n) for n in (4, 6, 3, 5, 2, 7)]
    return [np.eye(3)[labels] + rng.normal(size=(len(labels), 3)) for labels in y], y


def with_empty(parts, *empty):
    """Return three of the parts, each between empty parts of several forms."""
    forms = [empty[i % len(empty)] for i in range(4)]
    return [forms[0], parts[0], forms[1], parts[1], forms[2], parts[2], forms[3]]


@pytest.fixture(scope="module")
def fitted():
    X, y = data()
    return {cls: cls(max_iter=20, tol=1e-2).fit(X, y) for cls in FIELDS}


NOTHING = {
    "predict": (0,),
    "predict_proba": (0, 3),
    "predict_log_proba": (0, 3),
    "decision_function": (0, 3),
    "predict_edge_proba": (0, 3, 3),
}


@pytest.mark.parametrize("cls", FIELDS)
@pytest.mark.parametrize("method", NOTHING)
def test_predictions(fitted, cls, method):
    field, (X, _) = fitted[cls], data()
    if not hasattr(field, method):
        pytest.skip("the field has no such method")
    ask = getattr(field, method)
    expected, found = ask(X[:3]), ask(with_empty(X, [], np.zeros((0, 3))))
    assert len(found) == 7
    for i, part in enumerate(found):
        if i in FILLED:
            np.testing.assert_array_equal(part, expected[FILLED.index(i)])
        else:
            assert part.shape == NOTHING[method]
            assert part.dtype == expected[0].dtype
    for empty in ([[]], [[], []], [np.zeros((0, 3))]):
        assert [part.shape for part in ask(empty)] == [NOTHING[method]] * len(empty)


@pytest.mark.parametrize("cls", FIELDS)
def test_no_sentences_have_no_predictions(fitted, cls):
    for method in NOTHING:
        if hasattr(fitted[cls], method):
            assert getattr(fitted[cls], method)([]).shape == (0,)
    with pytest.raises(ValueError, match="no labelled node"):
        fitted[cls].score([], [])


@pytest.mark.parametrize("cls", FIELDS)
def test_scores_and_labelings(fitted, cls):
    field, (X, y) = fitted[cls], data()
    sentences, labels = with_empty(X, [], np.zeros((0, 3))), with_empty(y, [], np.zeros(0))
    filled = list(FILLED)
    assert field.score(sentences, labels) == field.score(X[:3], y[:3])
    assert field.score(sentences, labels, sample_weight=np.arange(7.0)) == field.score(X[:3], y[:3], [1.0, 3.0, 5.0])
    with pytest.raises(ValueError, match="there is nothing to score"):
        field.score([[]], [[]])
    energies = np.zeros(7)
    energies[filled] = field.energy(X[:3], y[:3])
    np.testing.assert_array_equal(field.energy(sentences, labels), energies)
    evidence = with_empty([[0, None, None, 1], [None] * 6, [2, 2, 2]], [])
    expected = field.predict(X[:3], evidence=[evidence[i] for i in filled])
    for i, part in zip(filled, expected, strict=True):
        np.testing.assert_array_equal(field.predict(sentences, evidence=evidence)[i], part)
    labelings, scores = field.predict_topk(sentences, k=2)
    assert labelings[0].shape == (1, 0)
    assert scores[0].tolist() == [0.0]
    for i, part in zip(filled, field.predict_topk(X[:3], k=2)[0], strict=True):
        np.testing.assert_array_equal(labelings[i], part)
    assert [len(model.unary) for model in field.models(sentences)] == [0, 4, 0, 6, 0, 3, 0]
    certified, alone = field.certify(sentences), field.certify(X[:3])
    np.testing.assert_array_equal(certified.bounds[filled], alone.bounds)
    assert certified.optimal[[0, 2, 4, 6]].all()
    assert field.certify([[]]).gaps.tolist() == [0.0]


def test_samples_likelihoods_and_temperatures(fitted):
    field, (X, y) = fitted[TRWCRF], data()
    sentences, labels = with_empty(X, [], np.zeros((0, 3))), with_empty(y, [])
    assert [part.shape for part in field.sample(sentences, 5, random_state=0)] == [
        (5, n) for n in (0, 4, 0, 6, 0, 3, 0)
    ]
    found = field.log_likelihood(sentences, labels)
    np.testing.assert_array_equal(found.values[list(FILLED)], field.log_likelihood(X[:3], y[:3]).values)
    assert found.values[0] == 0.0
    scaled = TemperatureScaling(TRWCRF(max_iter=20, tol=1e-2), cv=3).fit(X, y)
    assert [part.shape for part in scaled.predict_proba(sentences)] == [(n, 3) for n in (0, 4, 0, 6, 0, 3, 0)]


@pytest.mark.parametrize("edge_features", [None, lambda token, following: ["bias"]])
def test_tagger(edge_features):
    X, y = [[{"w": "a"}, {"w": "b"}], [{"w": "b"}]], [["A", "B"], ["B"]]
    tagger = make_pipeline(SequenceVectorizer(edge_features=edge_features), TRWCRF()).fit(X, y)
    assert [part.tolist() for part in tagger.predict([X[0], [], X[1]])] == [["A", "B"], [], ["B"]]
    assert [part.tolist() for part in tagger.predict([[]])] == [[]]
    assert tagger.predict_proba([[], []])[1].shape == (0, 2)
    assert tagger.score([[], *X], [[], *y]) == 1.0
    again = make_pipeline(SequenceVectorizer(edge_features=edge_features), TRWCRF()).fit([[], *X], [[], *y])
    np.testing.assert_array_equal(again[-1].coef_, tagger[-1].coef_)


@pytest.mark.parametrize("cls", FIELDS)
def test_tagger_of_nothing_else(cls):
    X, y = [[{"w": "a"}, {"w": "b"}], [{"w": "b"}]], [["A", "B"], ["B"]]
    tagger = make_pipeline(SequenceVectorizer(), cls()).fit(X, y)
    assert [part.tolist() for part in tagger.predict([[], []])] == [[], []]


def test_graphs_images_and_sparse_chains():
    X, y = data()
    graphs = [Example(x, [[i, i + 1] for i in range(len(x) - 1)]) for x in X]
    nothing = Example(np.zeros((0, 3)), [])
    field = TRWCRF(max_iter=20, tol=1e-2).fit(graphs, y)
    found = field.predict([nothing, graphs[0], nothing, graphs[1]])
    assert [len(part) for part in found] == [0, 4, 0, 6]
    np.testing.assert_array_equal(found[1], field.predict(graphs[:1])[0])
    assert [part.tolist() for part in field.predict([nothing])] == [[]]

    sparse = [sp.csr_matrix(x) for x in X]
    field = TRWCRF(max_iter=20, tol=1e-2).fit(sparse, y)
    found = field.predict([sp.csr_matrix((0, 3)), sparse[0], sp.csr_matrix((0, 3))])
    assert [len(part) for part in found] == [0, 4, 0]

    images = [np.random.default_rng(i).normal(size=(3, 4, 2)) for i in range(4)]
    field = DRFClassifier(learning="pl", inference="icm").fit(
        images, [(image[..., 0] > 0).astype(int) for image in images]
    )
    assert [part.shape for part in field.predict([images[0], np.zeros((0, 4, 2)), []])] == [(3, 4), (0, 4), (0, 0)]


def fitted_weights(field):
    return np.concatenate([np.ravel(getattr(field, name)) for name in ("coef_", "intercept_", "edge_coef_")])


DURATIONS = PairwiseTables("full", segments=Segments(3, features=["mean"]))
FITS = {
    "likelihood": TRWCRF(),
    "automatic": DRFClassifier(),
    "margin": M3NClassifier(),
    "contrastive": ContrastiveCRF(),
    "pseudolikelihood": DRFClassifier(learning="pl"),
    "truncated": TRWCRF(learning="truncated"),
    "perceptron": DRFClassifier(learning="spa"),
    "sgd": TRWCRF(solver="sgd", random_state=0),
    "frank_wolfe": M3NClassifier(solver="frank_wolfe", random_state=0),
    "cutting_plane": M3NClassifier(solver="cutting_plane", random_state=0),
    "one_slack": M3NClassifier(solver="one_slack"),
    "balanced": TRWCRF(class_weight="balanced"),
    "boundaries": TRWCRF(pairwise=PairwiseTables("full", boundary_weights=True)),
    "durations": TRWCRF(pairwise=DURATIONS),
    "durations_margin": M3NClassifier(pairwise=DURATIONS),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits(name, precision):
    X, y = data()
    X, weight = [x.astype(precision) for x in X], [1.0, 2.0, 3.0]
    for x in X:
        x.flags.writeable = False
    field = clone(FITS[name]).set_params(max_iter=10, tol=1e-2)
    expected = fitted_weights(clone(field).fit(X[:3], y[:3], sample_weight=weight))
    for empty in (np.zeros((0, 3), precision), []):
        sentences, labels = with_empty(X, empty), with_empty(y, [], np.zeros(0, int))
        field.fit(sentences, labels, sample_weight=with_empty(weight, 5.0))
        np.testing.assert_array_equal(fitted_weights(field), expected)
        assert len(field.predict(sentences)[0]) == 0


def test_slack_rescaling_of_single_nodes_and_empty_examples():
    X, y = data()
    rescaled = M3NClassifier(learning=MaxMargin(rescaling="slack"), max_iter=20, tol=1e-2)
    pairs = [x[:2] for x in X[:4]], [labels[:2] for labels in y[:4]]
    expected = fitted_weights(clone(rescaled).fit(*pairs))
    # One node for each example on average does not mean that every example is a single node.
    found = rescaled.fit([*pairs[0], *[np.zeros((0, 3))] * 4], [*pairs[1], *[[]] * 4])
    np.testing.assert_array_equal(fitted_weights(found), expected)


def test_early_stopping_does_not_hold_out_empty_sentences():
    X, y = data()
    field = TRWCRF(
        learning=MaximumLikelihood(early_stopping=True, validation_fraction=0.2), random_state=0, max_iter=20
    )
    for seed in range(5):
        field.set_params(random_state=seed).fit(with_empty(X, []), with_empty(y, []))
        assert len(field.validation_scores_) > 0
    with pytest.raises(ValueError, match="apart from copies and examples without nodes"):
        field.fit([X[0], [], np.zeros((0, 3))], [y[0], [], []])


@pytest.mark.parametrize("cls", FIELDS)
def test_partial_fits_and_shards(cls):
    X, y = data()
    nothing = np.zeros((0, 3))
    whole = with_empty(X, nothing), with_empty(y, [])
    online, expected = (cls(random_state=0, classes=[0, 1, 2]) for _ in range(2))
    for _ in range(2):
        expected.partial_fit(X[:3], y[:3])
        online.partial_fit(*whole).partial_fit([nothing], [[]])
        np.testing.assert_array_equal(fitted_weights(online), fitted_weights(expected))
    field = cls(max_iter=10, tol=1e-2, random_state=0)
    if cls is M3NClassifier:
        field.set_params(solver="bmrm")
    parts = [(whole[0][:3], whole[1][:3]), (whole[0][3:], whole[1][3:])]
    filled = [(X[:1], y[:1]), (X[1:3], y[1:3])]
    found, expected = (clone(field).fit(Shards.from_arrays(given)) for given in (parts, filled))
    np.testing.assert_array_equal(fitted_weights(found), fitted_weights(expected))
    assert [len(own) for own in found.predict(Shards.from_arrays(parts))[0]] == [0, 4, 0]
    found = clone(field).fit(Shards.from_arrays([([nothing], [[]]), *parts]))
    np.testing.assert_array_equal(fitted_weights(found), fitted_weights(expected))


@pytest.mark.parametrize("empty", [[], np.zeros((0, 3))], ids=["list", "array"])
@pytest.mark.parametrize("cls", FIELDS)
def test_fits_of_nothing_else(cls, empty):
    with pytest.raises(ValueError, match="X has no nodes, because all of its examples are empty"):
        cls(lattice_ndim=1, classes=[0, 1]).fit([empty, empty], [[], []])


def test_errors_name_the_place_among_all_sentences():
    X, y = data()
    X[1][0, 0] = np.inf
    with pytest.raises(ValueError, match=r"X\[3\] contains infinity"):
        TRWCRF().fit(with_empty(X, []), with_empty(y, []))
    X, y = [np.eye(2)[[0, 1, 0]]] * 3, [["O", "I-P", "O"], ["O", "O", "O"], ["O", "O", "I-P"]]
    with pytest.raises(ValueError, match=r"Sequence 3 "):
        TRWCRF(pairwise=PairwiseTables("full", forbidden="IOB2")).fit([X[0][:0], X[1], [], X[0]], [[], y[1], [], y[0]])


def test_graphs_images_and_tree_fields():
    X, y = data()
    graphs = [Example(x, [[i, i + 1] for i in range(len(x) - 1)]) for x in X]
    nothing, field = Example(np.zeros((0, 3)), []), TRWCRF(max_iter=20, tol=1e-2)
    expected = fitted_weights(clone(field).fit(graphs[:3], y[:3]))
    np.testing.assert_array_equal(fitted_weights(field.fit(with_empty(graphs, nothing), with_empty(y, []))), expected)
    sparse = [sp.csr_matrix(x) for x in X]
    expected = fitted_weights(clone(field).fit(sparse[:3], y[:3]))
    found = field.fit(with_empty(sparse, sp.csr_matrix((0, 3))), with_empty(y, []))
    np.testing.assert_array_equal(fitted_weights(found), expected)
    images = [np.random.default_rng(i).normal(size=(3, 4, 2)) for i in range(3)]
    labels, field = [(image[..., 0] > 0).astype(int) for image in images], DRFClassifier(learning="pl")
    expected = fitted_weights(clone(field).fit(images, labels))
    found = field.fit(with_empty(images, np.zeros((0, 4, 2)), []), with_empty(labels, np.zeros((0, 4)), []))
    np.testing.assert_array_equal(fitted_weights(found), expected)
    trees = RegressionTreeFieldClassifier(random_state=0)
    weight = with_empty([1.0, 2.0, 3.0], 9.0)
    found = clone(trees).fit(with_empty(X, [], np.zeros((0, 3))), with_empty(y, []), sample_weight=weight)
    expected = trees.fit(X[:3], y[:3], sample_weight=[1.0, 2.0, 3.0])
    for method in ("predict", "predict_log_proba"):
        results = getattr(found, method)(with_empty(X, []))
        assert [len(own) for own in results] == [0, 4, 0, 6, 0, 3, 0]
        for i, own in zip(FILLED, getattr(expected, method)(X[:3]), strict=True):
            np.testing.assert_array_equal(results[i], own)
    assert [own.shape for own in found.predict_topk(with_empty(X, []), k=1)[0][:2]] == [(1, 0), (1, 4)]


@pytest.mark.parametrize("cls", FIELDS)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_arrays_of_empty_examples_have_the_results_of_lists(cls, precision):
    X, y = (np.array([part[:2] for part in parts]) for parts in data())
    images = cls(max_iter=20, tol=1e-2).fit(X[:, :, np.newaxis], y[:, :, np.newaxis])
    for shape in ((3, 0, 4), (3, 2, 0), (1, 0, 0)):
        assert images.predict(np.zeros((*shape, 3), precision)).shape == shape
    field, nothing = cls(max_iter=20, tol=1e-2).fit(X, y), np.zeros((2, 0, 3), precision)
    assert field.predict(nothing).dtype == y.dtype
    for method, inner in NOTHING.items():
        if hasattr(field, method):
            assert np.array(list(getattr(field, method)(nothing))).shape == (2, *inner)
    assert [model.unary.shape for model in field.models(nothing)] == [(0, 3)] * 2
    assert field.certify(nothing).optimal.tolist() == [True, True]
    assert [labelings.shape for labelings in field.predict_topk(nothing, k=2)[0]] == [(1, 0)] * 2
    with pytest.raises(ValueError, match="there is nothing to score"):
        field.score(nothing, np.zeros((2, 0)))
    assert field.predict(np.zeros((0, 2, 3))).shape == (0, 2)
    with pytest.raises(ValueError, match="no axis of X may be of length 0"):
        field.predict(np.zeros((2, 2, 0)))
    tables = PairwiseTables("full", boundary_weights=True)
    assert cls(max_iter=20, tol=1e-2, pairwise=tables).fit(X, y).predict(nothing).shape == (2, 0)
    with pytest.raises(ValueError, match="no axis of X may be of length 0"):
        cls().fit(nothing, np.zeros((2, 0)))


@pytest.mark.parametrize(
    "steps",
    [
        [NodeTransformer(StandardScaler(with_mean=False))],
        [ClassifierScores(LogisticRegression())],
        [ClassifierScores(RidgeClassifier(), method="decision_function", passthrough=True)],
        [NodeTransformer(MaxAbsScaler()), ClassifierScores(LogisticRegression())],
    ],
)
def test_pipelines(steps):
    X, y = data()
    tagger, nothing = make_pipeline(*steps, TRWCRF(max_iter=20, tol=1e-2)).fit(X, y), np.zeros((0, 3))
    for form in (np.asarray, sp.csr_matrix):
        found = tagger.predict([form(nothing), form(X[0]), form(nothing)])
        assert [len(part) for part in found] == [0, 4, 0]
        np.testing.assert_array_equal(found[1], tagger.predict(X[:1])[0])
        assert [part.shape for part in tagger.predict([form(nothing)] * 2)] == [(0,), (0,)]
        assert [part.shape for part in tagger.predict_proba([form(nothing)])] == [(0, 3)]
    X, y = (np.array([part[:2] for part in parts]) for parts in (X, y))
    assert tagger.fit(X, y).predict(np.zeros((2, 0, 3))).shape == (2, 0)
    graphs = [Example(x, [[0, 1]]) for x in X]
    assert [len(part) for part in tagger.fit(graphs, list(y)).predict([Example(nothing, []), graphs[0]])] == [0, 2]
