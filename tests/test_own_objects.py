"""User-written objects that return invalid values: the error names class and method."""

from functools import partial

import numpy as np
import pytest
from small_fits import MAKERS

from sklearn_crf import TRWCRF, DRFClassifier, Graph, M3NClassifier, Shards
from sklearn_crf.dense import LogLoss
from sklearn_crf.distributed import LocalExecutor
from sklearn_crf.inference import (
    ICM,
    ConjugateGradient,
    DenseMeanField,
    Inference,
    JunctionTree,
    Labeling,
)
from sklearn_crf.learning import ContrastiveTraining, Learning, MaximumMarginalTraining, MaxMargin, Relaxation
from sklearn_crf.mfa import ScaledLBFGS
from sklearn_crf.models import FactorGraph, PairwiseModel, Statistics, factor_graph_of
from sklearn_crf.objectives import Generator, Likelihood, Loss, Objective

MODEL = PairwiseModel(Graph(5, [[0, 1], [1, 2], [2, 3], [3, 4]]), np.zeros((5, 2)), np.zeros((1, 2, 2)))
FACTORS = factor_graph_of(MODEL)
MODELS = {"pairwise": MODEL, "factors": FACTORS}


class Own(Inference):
    """Inference that returns a given result, or a changed result of another algorithm."""

    tasks = frozenset({"map", "marginals", "sample"})
    takes = (PairwiseModel, FactorGraph)

    def __init__(self, found=None, change=None):
        self.found = found
        self.change = change

    def _map(self, model, *, init=None, n_threads=1):
        return self.found

    def _marginals(self, model, *, init=None, n_threads=1):
        if self.change is None:
            return self.found
        right = JunctionTree().marginals(model)
        for name, make in self.change.items():
            if name in right._fields:
                right = right._replace(**{name: make(getattr(right, name))})
            else:
                statistics = right.statistics
                right = right._replace(statistics=statistics._replace(**{name: make(getattr(statistics, name))}))
        return right

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        return self.found


def labelings(n):
    huge = np.full(n, 2**31 - 1)
    return {
        "short": np.zeros(n - 2, dtype=np.int32),
        "empty": np.zeros(0, dtype=np.int32),
        "long": np.zeros(n + 1000, dtype=np.int32),
        "huge": huge,
        "beyond": np.full(n, 2),
        "wider": np.full(n, 2**40),
        "negative": np.full(n, -1),
        "real": np.zeros(n),
        "NaN": np.full(n, np.nan),
        "of two axes": np.zeros((n, 1), dtype=int),
        "none": None,
        "text": "labels",
        "objects": np.array(["a"] * n, dtype=object),
    }


@pytest.mark.parametrize("of", MODELS)
@pytest.mark.parametrize("kind", labelings(5))
def test_labels_of_an_own_inference(kind, of):
    with pytest.raises(ValueError, match=r"Own\._map returned an unusable result: labels"):
        Own(Labeling(labelings(5)[kind], 0.0)).map(MODELS[of])


@pytest.mark.parametrize("kind", labelings(5))
def test_samples_of_an_own_inference(kind):
    labels = labelings(5)[kind]
    samples = labels[np.newaxis] if isinstance(labels, np.ndarray) else labels
    with pytest.raises(ValueError, match=r"Own\._sample returned an unusable result: samples"):
        Own(samples).sample(MODEL, 1)


@pytest.mark.parametrize("found", [None, (), [0, 1], "labels", np.zeros(5)])
@pytest.mark.parametrize("method", ["map", "marginals"])
def test_results_of_an_own_inference_are_of_their_type(method, found):
    with pytest.raises(TypeError, match=rf"Own\._{method} returned an unusable result: .* must be of type .*, got"):
        getattr(Own(found), method)(MODEL)


def test_scores_of_an_own_inference_are_numbers():
    for wrong in (np.nan, None, "x", 1j):
        with pytest.raises(ValueError, match=r"Own\._map .* score must be a number"):
            Own(Labeling(np.zeros(5, dtype=int), wrong)).map(MODEL)
        with pytest.raises(ValueError, match=r"Own\._map .* bound must be a number"):
            Own(Labeling(np.zeros(5, dtype=int), 0.0, wrong)).map(MODEL)
    with pytest.raises(ValueError, match=r"Own\._map .* fractional must have shape \(5, 2\)"):
        Own(Labeling(np.zeros(5, dtype=int), 0.0, fractional=np.zeros((4, 2)))).map(MODEL)


def test_labels_of_other_integers_are_taken():
    for dtype in (bool, np.int8, np.uint64, int):
        found = Own(Labeling(np.array([0, 1, 1, 0, 1], dtype=dtype), 0.0)).map(MODEL)
        assert found.labels.dtype == np.int32
        assert found.labels.tolist() == [0, 1, 1, 0, 1]
    assert Own(Labeling([0, 1, 1, 0, 1], 0.0)).map(MODEL).labels.tolist() == [0, 1, 1, 0, 1]


ARRAYS = {
    "short": lambda values: values[:-1],
    "empty": lambda values: values[:0],
    "NaN": lambda values: np.where(np.arange(values.size).reshape(values.shape) == 0, np.nan, values),
    "infinite": lambda values: np.full(values.shape, np.inf),
    "complex": lambda values: values.astype(complex),
    "text": lambda values: np.full(values.shape, "x"),
    "none": lambda values: None,
}
FIELDS = {"pairwise": ("unary", "tables", "log_z_terms"), "factors": ("unary", "log_table", "log_z_terms")}


@pytest.mark.parametrize(("of", "field"), [(of, field) for of in MODELS for field in FIELDS[of]])
@pytest.mark.parametrize("kind", ARRAYS)
def test_marginals_of_an_own_inference(kind, of, field):
    if (kind, field) == ("none", "log_z_terms"):
        pytest.skip("an inference may have none")
    with pytest.raises(ValueError, match=r"Own\._marginals returned an unusable result"):
        Own(change={field: ARRAYS[kind]}).marginals(MODELS[of])


def test_marginals_are_probabilities():
    for change in (lambda unary: 2 * unary, lambda unary: unary - [1, -1]):
        with pytest.raises(ValueError, match="must not be negative and must sum to one"):
            Own(change={"unary": change}).marginals(MODEL)
        with pytest.raises(ValueError, match=r"Own\._marginals"):
            Own(change={"unary": change}).node_marginals(MODEL)
    for wrong in (np.nan, np.inf, "x"):
        with pytest.raises(ValueError, match="log_z must be a finite number"):
            Own(change={"log_z": lambda _, wrong=wrong: wrong}).marginals(MODEL)
    with pytest.raises(ValueError, match="bound must be 'exact', 'upper', 'lower' or None"):
        Own(change={"bound": lambda _: "sure"}).marginals(MODEL)


def test_marginals_come_in_the_precision_of_the_model():
    narrow = PairwiseModel(MODEL.graph, MODEL.unary.astype(np.float32), MODEL.tables.astype(np.float32))
    found = Own(change={"unary": lambda unary: unary.astype(np.float64)}).marginals(narrow)
    assert found.unary.dtype == np.float32
    assert Likelihood(Own(change={})).loss_statistics(narrow, np.zeros(5, dtype=int)).terms.shape == (5,)


class OwnPublic(ICM):
    """A class that overrides the methods that users call."""

    tasks = frozenset({"map", "marginals"})

    def map(self, model, *, init=None, n_threads=1):
        return Labeling(np.zeros(3, dtype=np.int32), 0.0)

    def marginals(self, model, *, init=None, n_threads=1):
        return super().map(model)

    def node_marginals(self, model, *, n_threads=1):
        return np.zeros((5, 3))


def test_public_methods_that_were_written_over():
    with pytest.raises(ValueError, match=r"OwnPublic\.map returned .* labels must have shape \(5,\), got \(3,\)"):
        OwnPublic().map(MODEL)
    with pytest.raises(TypeError, match=r"OwnPublic\.marginals returned"):
        OwnPublic().marginals(MODEL)
    with pytest.raises(ValueError, match=r"OwnPublic\.node_marginals returned"):
        OwnPublic().node_marginals(MODEL)


class Mixed:
    def _map(self, model, *, init=None, n_threads=1):
        return Labeling(np.zeros(3, dtype=np.int32), 0.0)


class OwnMixed(Mixed, Inference):
    tasks = frozenset({"map"})


class OwnLater(OwnMixed):
    pass


@pytest.mark.parametrize("cls", [OwnMixed, OwnLater])
def test_methods_of_a_mixin_are_checked(cls):
    with pytest.raises(ValueError, match=rf"{cls.__name__}\._map returned"):
        cls().map(MODEL)


def images(n=3, side=4):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(n, side, side))
    return y[..., np.newaxis] + rng.normal(size=(n, side, side, 1)), y


@pytest.mark.parametrize("kind", labelings(16))
@pytest.mark.parametrize("make", [partial(DRFClassifier, learning="spa"), M3NClassifier], ids=["spa", "m3n"])
def test_fits_with_an_own_inference(make, kind):
    model = make(inference=Own(Labeling(labelings(16)[kind], 0.0)))
    with pytest.raises(ValueError, match=r"Own\._map returned an unusable result"):
        model.fit(*images())
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("learning", ["pma", "mma"])
def test_marginals_that_are_no_numbers_are_not_learned_from(learning):
    own = Own(change={"unary": lambda unary: np.full(unary.shape, np.nan)})
    with pytest.raises(ValueError, match=r"Own\._marginals returned .* finite"):
        DRFClassifier(learning=learning, inference=own).fit(*images())


class OwnObjective(Objective):
    """A modified pseudolikelihood without edges."""

    def __init__(self, change=None):
        self.change = change

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        slope = np.full(model.unary.shape, 0.5)
        slope[np.arange(len(slope)), labels] -= 1
        right = Loss(Statistics(slope, np.zeros(model.tables.shape)), np.zeros(len(slope)))
        return self.change(right) if self.change is not None else right


LOSSES = {
    "no loss": lambda loss: None,
    "no statistics": lambda loss: loss._replace(statistics=None),
    "short unary": lambda loss: loss._replace(statistics=loss.statistics._replace(unary=np.zeros((1, 2)))),
    "NaN": lambda loss: loss._replace(statistics=loss.statistics._replace(unary=loss.statistics.unary * np.nan)),
    "no tables": lambda loss: loss._replace(statistics=loss.statistics._replace(tables=np.zeros((0, 1, 2, 2)))),
    "infinite tables": lambda loss: loss._replace(
        statistics=loss.statistics._replace(tables=np.full(loss.statistics.tables.shape, np.inf))
    ),
    "short terms": lambda loss: loss._replace(terms=np.zeros(1)),
    "NaN terms": lambda loss: loss._replace(terms=np.full(len(loss.terms), np.nan)),
    "short predicted": lambda loss: loss._replace(predicted=np.zeros(2, dtype=np.int32)),
    "huge predicted": lambda loss: loss._replace(predicted=np.full(len(loss.terms), 10**9)),
    "NaN gap": lambda loss: loss._replace(gap=np.nan),
}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("estimator", [DRFClassifier, TRWCRF])
def test_losses_of_an_own_objective(estimator, kind):
    name = {DRFClassifier: "learning", TRWCRF: "learning"}[estimator]
    field = estimator(**{name: OwnObjective(LOSSES[kind])})
    with pytest.raises((ValueError, TypeError), match=r"OwnObjective\.loss_statistics returned an unusable result"):
        field.fit(*images())


class OwnGenerator(Generator):
    def __init__(self, kind):
        self.kind = kind

    def __call__(self, model, labels, rng, *, node_weight=None, n_threads=1):
        return labelings(len(labels))[self.kind]


class OwnLearning(Learning):
    def objective(self, plan, data):
        return None


class OwnMMA(MaximumMarginalTraining):
    def solver(self, solver, plan, encoded, potentials=None):
        return "sgd"


class OwnRelaxation(Relaxation):
    def likelihood(self, plan):
        return Own()


class OwnMargin(MaxMargin):
    def hinge(self, inference, cost, facts, single_nodes):
        return cost


class OwnMeanField(DenseMeanField):
    def node_marginals(self, model, *, init=None, n_threads=1):
        return super().node_marginals(model, init=init, n_threads=n_threads)[:-1]


class OwnGradient(ConjugateGradient):
    def solve(self, model, right_hand_side, *, init=None, n_threads=1):
        found = super().solve(model, right_hand_side, init=init, n_threads=n_threads)
        return found._replace(x=found.x[..., :-1, :])


class OwnSlope(LogLoss):
    def gradient(self, totals, q, labels, weight):
        return super().gradient(totals, q, labels, weight)[:-1]


class OwnTotals(LogLoss):
    def totals(self, q, labels, weight):
        return super().totals(q, labels, weight) * np.nan


class OwnValue(LogLoss):
    def value(self, totals):
        return np.nan


class OwnSolver(ScaledLBFGS):
    def minimize(self, objective, start, **options):
        found = super().minimize(objective, start, **options)
        return found._replace(params=type(start)(**{**vars(start), "means": start.means[:-1]}))


def short_slope(prediction, target):
    return 0.0, np.zeros(3)


def no_slope(prediction, target):
    return 0.0


def nan_slope(prediction, target):
    return 0.0, np.full(prediction.shape, np.nan)


def short_features(x_tail, x_head):
    return np.ones((1, 1))


def nan_features(x_tail, x_head):
    return np.full((len(x_tail), 1), np.nan)


def text_features(x_tail, x_head):
    return np.full((len(x_tail), 1), "x")


OWN = {
    **{
        f"generator of {kind} labels": (
            "ContrastiveCRF",
            {"learning": ContrastiveTraining(generator=OwnGenerator(kind))},
            "OwnG",
        )
        for kind in labelings(5)
    },
    "own learning": ("DRFClassifier", {"learning": OwnLearning()}, r"OwnLearning\.objective"),
    "solver of a learning": ("DRFClassifier", {"learning": OwnMMA()}, r"OwnMMA\.solver"),
    "relaxation": ("TRWCRF", {"learning": OwnRelaxation()}, r"OwnRelaxation\.likelihood"),
    "margin": ("M3NClassifier", {"learning": OwnMargin()}, r"OwnMargin\.hinge"),
    "mean field": ("DenseCRF", {"inference": OwnMeanField(3)}, r"OwnMeanField\.node_marginals"),
    "gradient": ("DenseCRF", {"learning": OwnSlope()}, r"OwnSlope\.gradient"),
    "totals": ("DenseCRF", {"learning": OwnTotals()}, r"OwnTotals\.totals"),
    "value": ("DenseCRF", {"learning": OwnValue()}, r"OwnValue\.value"),
    "solver": ("MultiConditionalMFA", {"solver": OwnSolver()}, r"OwnSolver\.minimize"),
    "solve": ("RegressionTreeField", {"loss": "mae", "inference": OwnGradient()}, r"OwnGradient\.solve"),
    "short slope": ("RegressionTreeField", {"loss": short_slope}, "short_slope"),
    "no slope": ("RegressionTreeField", {"loss": no_slope}, "no_slope"),
    "NaN slope": ("RegressionTreeField", {"loss": nan_slope}, "nan_slope"),
    "short features": ("TRWCRF", {"edge_features": short_features}, "edge_features"),
    "NaN features": ("TRWCRF", {"edge_features": nan_features}, "edge_features"),
    "text features": ("TRWCRF", {"edge_features": text_features}, "edge_features"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OWN)
def test_own_objects_in_fits(name):
    estimator, options, named = OWN[name]
    make, data = MAKERS[estimator]
    X, y = data()
    with pytest.raises((ValueError, TypeError), match=f"{named}.* return|{named}.*needs"):
        make(**options).fit(X, y).predict(X)


def shards_of(name, load, client=None):
    _, data = MAKERS[name]
    X, y = map(np.asarray, data())
    half = len(y) // 2
    parts = [(X[:half], y[:half]), load(X[half:], y[half:])]
    return Shards([0, 1], parts.__getitem__, client)


TRAINED_ON_SHARDS = [name for name in MAKERS if name not in ("MultiLabelField", "DenseCRF", "LearnedFilters")]
LOADED = {
    "none": lambda X, y: None,
    "list": lambda X, y: [X, y],
    "one": lambda X, y: (X,),
    "four": lambda X, y: (X, y, None, None),
    "no labels": lambda X, y: (X, None),
    "no features": lambda X, y: (None, y),
    "fewer labels": lambda X, y: (X, y[:-1]),
    "fewer examples": lambda X, y: (X[:-1], y),
    "more features": lambda X, y: (np.concatenate([X, X], axis=-1), y),
    "without features": lambda X, y: (X[..., :0], y),
    "without axis": lambda X, y: (X[..., 0], y),
    "another axis": lambda X, y: (X[np.newaxis], y[np.newaxis]),
    "infinite": lambda X, y: (np.full(X.shape, np.inf), y),
    "text": lambda X, y: (np.full(X.shape, "x"), y),
    "labels of text": lambda X, y: (X, np.full(y.shape, "zz")),
    "objects": lambda X, y: (np.full(X.shape, object()), y),
    "numbers": lambda X, y: (3, 4),
    "names": lambda X, y: ("X", "y"),
    "dicts": lambda X, y: ({"X": X}, {"y": y}),
    "fewer weights": lambda X, y: (X, y, np.ones(len(y) - 1)),
    "negative weights": lambda X, y: (X, y, np.full(len(y), -1.0)),
    "NaN weights": lambda X, y: (X, y, np.full(len(y), np.nan)),
    "weights of text": lambda X, y: (X, y, ["a"] * len(y)),
}

# By predict, which only reads X.
READ_WITHOUT_ERROR = ("no labels", "fewer labels", "labels of text", "fewer examples")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", LOADED)
@pytest.mark.parametrize("name", TRAINED_ON_SHARDS)
def test_what_own_loaders_return(name, kind):
    model = MAKERS[name][0]()
    with pytest.raises((ValueError, TypeError), match=r"shard|y mixes strings"):
        model.fit(shards_of(name, LOADED[kind]))
    assert not [field for field in vars(model) if field.endswith("_") and not field.startswith("_")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [kind for kind in LOADED if kind not in READ_WITHOUT_ERROR and "weights" not in kind])
def test_what_own_loaders_return_to_fitted_estimators(kind):
    field = TRWCRF(max_iter=3).fit(*images())
    with pytest.raises((ValueError, TypeError), match="shard"):
        field.predict(Shards([0], lambda _: LOADED[kind](*images())))


def test_loaders_give_the_same_data_each_time():
    X, y = images(8)
    times = []

    def load(path):
        times.append(path)
        return X[: 4 + len(times)], y[: 4 + len(times)]

    with pytest.raises(ValueError, match="load returned data for shard a whose shapes differ from an earlier call"):
        TRWCRF().fit(Shards(["a"], load))


class OwnExecutor(LocalExecutor):
    """An executor that changes the results of one of its methods."""

    def __init__(self, shards, method, change):
        super().__init__(shards)
        self.method, self.change = method, change

    def map(self, function, broadcast):
        found = super().map(function, broadcast)
        return self.change(found) if self.method == "map" else found

    def sum(self, function, broadcast):
        found = super().sum(function, broadcast)
        return self.change(found) if self.method == "sum" else found

    def iterate(self, function, broadcast):
        found = list(super().iterate(function, broadcast))
        return self.change(found) if self.method == "iterate" else iter(found)


RESULTS = {
    "none": lambda found: None,
    "text": lambda found: "x",
    "fewer": lambda found: found[:-1],
    "in another order": lambda found: found[::-1],
    "twice the first": lambda found: [found[0]] * len(found),
    "numbers": lambda found: [0.0] * len(found),
    "arrays": lambda found: np.zeros((2, 2)),
    "results alone": lambda found: [each.result for each in found],
}


@pytest.mark.parametrize("kind", RESULTS)
def test_results_of_an_own_executor(kind):
    shards = shards_of("TRWCRF", lambda X, y: (X, y), lambda own: OwnExecutor(own, "map", RESULTS[kind]))
    model = TRWCRF(max_iter=3)
    with pytest.raises(ValueError, match=r"OwnExecutor\.map returned an unusable result: .* 2 shards"):
        model.fit(shards)
    assert not hasattr(model, "coef_")
    fitted = TRWCRF(tol=0.1).fit(*images())
    with pytest.raises(ValueError, match=r"OwnExecutor\.map returned"):
        fitted.predict(shards)


@pytest.mark.parametrize("kind", [name for name in RESULTS if name not in ("none", "text", "arrays")])
def test_results_one_by_one_of_an_own_executor(kind):
    shards = shards_of("TRWCRF", lambda X, y: (X, y), lambda own: OwnExecutor(own, "iterate", RESULTS[kind]))
    with pytest.raises(ValueError, match=r"OwnExecutor\.iterate returned an unusable result"):
        list(shards.apply_lazily(TRWCRF(tol=0.1).fit(*images())))


SUMS = {
    "none": lambda found: None,
    "number": lambda found: 0.0,
    "fewer": lambda found: found._replace(number=1),
    "more": lambda found: found._replace(number=3),
    "result alone": lambda found: found.result,
}


@pytest.mark.parametrize("kind", SUMS)
def test_sums_of_an_own_executor(kind):
    shards = shards_of("TRWCRF", lambda X, y: (X, y), lambda own: OwnExecutor(own, "sum", SUMS[kind]))
    model = TRWCRF(max_iter=3)
    with pytest.raises(ValueError, match=r"OwnExecutor\.sum returned an unusable result: the sum over 2 shards"):
        model.fit(shards)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("made", [None, 3, [], "executor"])
def test_clients_make_executors(made):
    with pytest.raises(TypeError, match="client must make an Executor, got an object of type"):
        TRWCRF().fit(shards_of("TRWCRF", lambda X, y: (X, y), lambda own: made))


@pytest.mark.parametrize("named", ["map", ("map",), ["map"], {"map"}, frozenset({"map"})])
def test_tasks_are_listed_in_any_form(named):
    class Listed(Own):
        tasks = named

    assert Listed.tasks == {"map"}
    field = DRFClassifier(learning="spa", inference=Listed(Labeling(labelings(16)["short"], 0.0)))
    with pytest.raises(ValueError, match=r"Listed\._map returned an unusable result"):
        field.fit(*images())


def test_unknown_tasks_are_named():
    for named in ("MAP", ("map", "argmax"), [0]):
        with pytest.raises(TypeError, match=r"Wrong\.tasks must be a subset of 'map', 'marginals' and 'sample', got"):
            type("Wrong", (Own,), {"tasks": named})
