"""Arguments of public functions and methods with wrong lengths, types and values, and own objects that return them."""

import inspect
import pickle
import pkgutil
from importlib import import_module

import numpy as np
import pytest
from fuzzing import CLEAR, seeds, time_limit
from labelled_calls import CALLS as LABELLED
from labelled_calls import MODEL, RIGHT
from public_calls import CALLS, ELSEWHERE, X, Y
from saved_objects import OBJECTS as SAVED
from small_fits import MAKERS
from test_fuzz_arguments import CALLS as ARGUMENTS

import sklearn_crf
from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DRFClassifier,
    Example,
    Graph,
    M3NClassifier,
    RegressionTreeField,
    Shards,
    models,
)
from sklearn_crf.distributed import LocalExecutor
from sklearn_crf.inference import (
    AutoMap,
    ConjugateGradient,
    DenseMeanField,
    Inference,
    JunctionTree,
    Labeling,
    Marginals,
)
from sklearn_crf.learning import ContrastiveTraining
from sklearn_crf.objectives import Generator, Loss, MapGenerator, Objective


def public_functions():
    """Return the names of the functions that some ``__all__`` lists."""
    found = set()
    for module in pkgutil.walk_packages(sklearn_crf.__path__, "sklearn_crf."):
        if "._" not in module.name and ".kernels" not in module.name:
            members = import_module(module.name)
            found |= {name for name in getattr(members, "__all__", []) if inspect.isfunction(getattr(members, name))}
    return found


def test_every_public_function_is_called():
    called = {name.split(",")[0].split(" ")[0] for name in [*CALLS, *LABELLED]}
    called |= {getattr(function, "__name__", "") for function in ARGUMENTS}
    called |= {getattr(function, "__name__", "") for function, _ in CALLS.values()}
    assert public_functions() - called - ELSEWHERE.keys() == set()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_right_arguments_are_taken(name):
    function, arguments = CALLS[name]
    function(**arguments)


def altered(value, rng):
    """Return a value like the given one, but of a wrong length, type or range."""
    if isinstance(value, tuple) and hasattr(value, "_replace") and value:
        field = value._fields[rng.integers(len(value))]
        return value._replace(**{field: altered(getattr(value, field), rng)})
    if isinstance(value, list) and value and rng.random() < 0.7:
        changed = list(value)
        k = rng.integers(len(value))
        changed[k] = altered(value[k], rng)
        return [changed, changed[:k], changed * 3][rng.integers(3)]
    if not isinstance(value, np.ndarray):
        others = [
            None,
            -1,
            0,
            10**6,
            2.5,
            np.nan,
            np.zeros(0),
            np.zeros(3, dtype=int),
            [],
            "x",
            RIGHT,
            np.zeros((9, 9)),
        ]
        return others[rng.integers(len(others))]
    changes = [
        lambda: value[:0],
        lambda: value[: len(value) // 2] if value.ndim else value[np.newaxis],
        lambda: np.concatenate([value] * 3) if value.ndim else value,
        lambda: np.resize(value, (len(value) + 1, *value.shape[1:])) if value.size and value.ndim else value,
        lambda: np.resize(value, 2_000) if value.size else value,
        lambda: value[..., np.newaxis],
        lambda: value.ravel(),
        lambda: value[..., :0],
        lambda: value.astype(np.float64) + 0.5 if value.dtype.kind in "iuf" else value,
        lambda: np.full(value.shape, np.nan),
        lambda: np.full(value.shape, np.inf),
        lambda: np.full(value.shape, -1),
        lambda: np.full(value.shape, 2**31 - 1),
        lambda: np.full(value.shape, 2**40),
        lambda: np.full(value.shape, -(2**31)),
        lambda: np.full(value.shape, 2**64 - 1, dtype=np.uint64),
        lambda: value.astype(np.int8) if value.dtype.kind in "iuf" else value,
        lambda: value.astype(np.float32) if value.dtype.kind in "iuf" else value,
        lambda: value.astype(complex) if value.dtype.kind in "iuf" else value,
        lambda: value.astype(str),
        lambda: value.astype(object),
        lambda: np.asfortranarray(value)[::-1],
        lambda: value.tolist(),
        lambda: None,
        lambda: 0,
    ]
    with np.errstate(all="ignore"):
        return changes[rng.integers(len(changes))]()


def survived(function, **arguments):
    """Return the result of a call, or None if it raises an error; a crash or a call that hangs fails."""
    try:
        with time_limit():
            return function(**arguments)
    except (*CLEAR, AttributeError, LookupError, ArithmeticError, AssertionError, MemoryError):
        return None


@pytest.mark.filterwarnings("ignore")
def test_wrong_lengths():
    names = sorted(CALLS)
    for seed in seeds("lengths"):
        rng = np.random.default_rng(seed)
        # Cases alternate, so a run with as many seeds calls all of them.
        function, arguments = CALLS[names[seed % len(names)]]
        changed = dict(arguments)
        for key in rng.permutation(sorted(arguments))[: rng.integers(1, 3)]:
            changed[key] = altered(arguments[key], rng)
        survived(function, **changed)


class Garbage(Inference):
    """Inference that alters the results of an algorithm at random."""

    tasks = frozenset({"map", "marginals", "sample"})

    def __init__(self, seed=0):
        self.seed = seed

    def _map(self, model, *, init=None, n_threads=1):
        n_nodes = len(model.unary)
        return altered(Labeling(np.zeros(n_nodes, dtype=np.int32), 0.0), np.random.default_rng(self.seed))

    def _marginals(self, model, *, init=None, n_threads=1):
        even = np.full(model.unary.shape, 1 / model.n_columns)
        right = Marginals(even, np.zeros(model.tables.shape), 0.0, np.zeros(len(even)), "exact")
        return altered(right, np.random.default_rng(self.seed))

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        return altered(np.zeros((n_samples, len(model.unary)), dtype=np.int32), np.random.default_rng(self.seed))


class GarbageObjective(Objective):
    def __init__(self, seed=0):
        self.seed = seed

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        statistics = models.compute_labeling_statistics(model, labels)
        rng = np.random.default_rng(self.seed)
        if rng.random() < 0.5:
            return Loss(altered(statistics, rng), np.zeros(len(labels)), labels)
        return altered(Loss(statistics, np.zeros(len(labels)), labels), rng)


class GarbageGenerator(Generator):
    def __init__(self, seed=0):
        self.seed = seed

    def __call__(self, model, labels, rng, *, node_weight=None, n_threads=1):
        return altered(labels, np.random.default_rng(self.seed))


class GarbageFeatures:
    def __init__(self, seed):
        self.seed = seed

    def __call__(self, x_tail, x_head):
        return altered(np.abs(x_tail - x_head), np.random.default_rng(self.seed))


class GarbageLoss:
    def __init__(self, seed):
        self.seed = seed

    def __call__(self, prediction, target):
        rng = np.random.default_rng(self.seed)
        return altered(0.0, rng) if rng.random() < 0.2 else 0.0, altered(prediction - target, rng)


OWN = [
    lambda seed: DRFClassifier(learning="spa", inference=Garbage(seed), max_iter=2),
    lambda seed: DRFClassifier(learning="pma", inference=Garbage(seed), max_iter=2),
    lambda seed: DRFClassifier(learning="mma", inference=Garbage(seed), max_iter=2),
    lambda seed: M3NClassifier(inference=Garbage(seed), max_iter=2),
    lambda seed: DRFClassifier(learning=GarbageObjective(seed), max_iter=2),
    lambda seed: TRWCRF(learning=GarbageObjective(seed), max_iter=2),
    lambda seed: DRFClassifier(learning="pl", edge_features=GarbageFeatures(seed), max_iter=2),
    lambda seed: ContrastiveCRF(learning=ContrastiveTraining(generator=GarbageGenerator(seed), max_rounds=2)),
    lambda seed: ContrastiveCRF(learning=ContrastiveTraining(generator=MapGenerator(Garbage(seed)), max_rounds=2)),
    lambda seed: RegressionTreeField(GarbageLoss(seed), max_depth=0, max_iter=2, filter_bank=None),
]


@pytest.mark.filterwarnings("ignore")
def test_own_objects_that_return_garbage():
    for seed in seeds("own objects"):
        make = OWN[seed % len(OWN)]
        labels = Y.astype(float) if seed % len(OWN) == len(OWN) - 1 else Y
        found = survived(make(seed).fit, X=X, y=labels)
        if found is not None:
            survived(found.predict, X=X)
        for task, options in (("map", {}), ("marginals", {}), ("node_marginals", {}), ("sample", {"n_samples": 2})):
            survived(getattr(Garbage(seed), task), model=MODEL, **options)


def arrays_of(value, place=()):
    """Yield the places of the arrays in nested lists, dicts and objects."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield place
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in items:
            yield from arrays_of(part, (*place, key))
    elif type(value).__module__.startswith("sklearn_crf.") and hasattr(value, "__dict__"):
        yield from arrays_of(vars(value), place)


def altered_at(value, place, rng):
    """Alter one array in place."""
    for key in place[:-1]:
        value = vars(value) if not isinstance(value, dict | list) else value
        value = value[key]
    value = vars(value) if not isinstance(value, dict | list) else value
    value[place[-1]] = altered(value[place[-1]], rng)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MAKERS)
def test_damaged_states(name):
    make, data = MAKERS[name]
    X, y = data()
    saved = pickle.dumps(make().fit(X, y))
    for seed in seeds(f"damaged: {name}"):
        rng = np.random.default_rng(seed)
        damaged = pickle.loads(saved)
        places = [place for place in arrays_of(vars(damaged)) if place[0].endswith("_")]
        altered_at(damaged, places[rng.integers(len(places))], rng)
        loaded = survived(lambda damaged=damaged: pickle.loads(pickle.dumps(damaged)))
        if loaded is not None:
            survived(loaded.predict, X=X)


def predictions_of(model):
    """Return functions that predict or compute with an object, and so use its fields."""
    if isinstance(model, Graph):
        return [lambda: (model.incidence, model.component, model.colouring, model.is_forest)]
    if isinstance(model, models.GaussianModel):
        return [lambda: ConjugateGradient().solve(model, model.h), lambda: model.precision_matrix()]
    if isinstance(model, models.DenseModel):
        return [lambda: DenseMeanField(2).marginals(model)]
    if isinstance(model, Example):
        return [lambda: TRWCRF(max_iter=1, edge_features="constant").fit([model], [[0, 1, 0, 1]])]
    return [lambda: AutoMap().map(model), lambda: JunctionTree().marginals(model)]


@pytest.mark.filterwarnings("ignore")
def test_damaged_objects():
    names = sorted(SAVED)
    for seed in seeds("damaged objects"):
        rng = np.random.default_rng(seed)
        damaged = pickle.loads(pickle.dumps(SAVED[names[seed % len(names)]]))
        if isinstance(damaged, Graph):
            damaged.edges  # noqa: B018
        fields = sorted(damaged.__getstate__())
        name = fields[rng.integers(len(fields))]
        vars(damaged)[name] = altered(vars(damaged)[name], rng)
        loaded = survived(lambda damaged=damaged: pickle.loads(pickle.dumps(damaged)))
        for call in [] if loaded is None else predictions_of(loaded):
            survived(call)


class GarbageExecutor(LocalExecutor):
    """Executor that alters the results of calls at random, beginning with a given call."""

    def __init__(self, shards, seed):
        super().__init__(shards)
        self.rng = np.random.default_rng(seed)
        self.n_right = self.rng.integers(5)

    def of(self, found):
        self.n_right -= 1
        return found if self.n_right >= 0 else altered(found, self.rng)

    def map(self, function, broadcast):
        return self.of(super().map(function, broadcast))

    def sum(self, function, broadcast):
        return self.of(super().sum(function, broadcast))


@pytest.mark.filterwarnings("ignore")
def test_own_loaders_and_executors_that_return_garbage():
    names = sorted(set(MAKERS) - {"MultiLabelField", "DenseCRF", "LearnedFilters"})
    for seed in seeds("own loaders and executors"):
        rng = np.random.default_rng(seed)
        make, data = MAKERS[names[seed % len(names)]]
        X, y = map(np.asarray, data())
        parts = [(X, y, np.ones(len(y))), (X[1:], y[1:])]
        n_right = rng.integers(4)

        def load(k, parts=parts, times=[0], n_right=n_right, rng=rng):  # noqa: B006
            times[0] += 1
            part = parts[k]
            if times[0] <= n_right:
                return part
            if rng.random() < 0.1:
                return altered(list(part), rng)
            changed = list(part)
            place = rng.integers(len(part))
            changed[place] = altered(part[place], rng)
            return tuple(changed)

        for shards in (
            Shards([0, 1], load),
            Shards.from_arrays(parts, lambda own, seed=seed: GarbageExecutor(own, seed)),
        ):
            found = survived(make().fit, X=shards)
            if found is not None:
                survived(found.predict, X=shards)
