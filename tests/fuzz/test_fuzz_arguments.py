"""Public functions and classes with one or two of their arguments replaced by malformed values."""

import inspect
import io

import numpy as np
import pytest
from fuzzing import CLEAR, call, malformed, seeds

import sklearn_crf.inference
from sklearn_crf import Example, Graph, datasets, graphs, marginals, metrics, models, refine, solve
from sklearn_crf.encoding import encode_X, encode_y
from sklearn_crf.inference import Inference
from sklearn_crf.preprocessing import group_rows

GRAPH = Graph(3, [[0, 1], [1, 2]])
CYCLE = Graph(3, [[0, 1], [1, 2], [2, 0]])
MODEL = models.PairwiseModel(GRAPH, np.zeros((3, 2)), np.zeros((1, 2, 2)))
FACTORS = models.factor_graph_of(MODEL)
LABELS = np.array([0, 1, 1])
ROWS = np.zeros((3, 2))

# Valid arguments, by name, of every function and class that takes arrays or numbers.
CALLS = {
    Graph: {"n_nodes": 3, "edges": [[0, 1], [1, 2]], "shape": (3,)},
    graphs.SpanningTrees: {"graph": CYCLE, "trees": np.array([[True, True, False]]), "weights": [1.0]},
    graphs.SpanningTrees.from_edge_lists: {"graph": CYCLE, "edge_lists": [[0, 1], [1, 2]], "weights": [0.5, 0.5]},
    graphs.check_edge_probabilities: {"graph": GRAPH, "edge_probabilities": [1.0, 1.0]},
    graphs.covering_trees: {"graph": CYCLE, "rule": "covering", "random_state": 0},
    graphs.from_adjacency: {"adjacency": np.eye(3)},
    graphs.lattice: {"shape": (2, 3), "connectivity": 1},
    graphs.lattice_offsets: {"ndim": 2, "connectivity": 2},
    graphs.minimum_spanning_tree: {"graph": CYCLE, "cost": [1.0, 2.0, 3.0]},
    models.PairwiseModel: {
        "graph": GRAPH,
        "unary": np.zeros((3, 2)),
        "tables": np.zeros((1, 2, 2)),
        "edge_type": [0, 0],
        "edge_weight": [1.0, 2.0],
        "n_states": [2, 2, 1],
    },
    models.FactorGraph: {
        "n_states": [2, 2],
        "scope": [0, 1],
        "scope_ptr": [0, 2],
        "table_id": [0],
        "log_table": np.zeros(4),
        "table_ptr": [0, 4],
        "table_kind": [0],
        "table_default": [-np.inf],
        "table_state": [1],
    },
    models.FactorGraph.from_factors: {"n_states": [2, 2], "factors": [((0, 1), np.zeros((2, 2)))]},
    models.GaussianModel: {
        "graph": GRAPH,
        "h": np.zeros((3, 1)),
        "diagonal": np.ones((3, 1, 1)),
        "blocks": np.zeros((1, 1, 1)),
    },
    models.score: {"model": MODEL, "labels": LABELS},
    models.compute_score_terms: {"model": FACTORS, "labels": LABELS},
    models.compute_labeling_statistics: {"model": MODEL, "labels": LABELS},
    models.clamped: {"model": MODEL, "labels": [-1, 0, 1]},
    models.check_labels: {"model": FACTORS, "labels": LABELS},
    models.count_pair_states: {"model": MODEL, "labels": LABELS, "edge_group": [0, 1], "n_groups": 2},
    Example: {
        "node_features": ROWS,
        "edges": [[0, 1]],
        "edge_features": np.ones((1, 1)),
        "node_type": [0, 0, 1],
        "edge_type": [0],
        "n_states": [2, 2, 1],
        "factors": {"all": [[0, 1, 2]]},
        "fixed_factors": [((0, 1), np.zeros((2, 2)))],
    },
    encode_X: {"X": np.zeros((2, 3, 2)), "lattice_ndim": 1, "connectivity": 1, "edge_features": "constant"},
    encode_y: {"y": np.array([[0, 1, 1], [1, 0, 0]]), "encoded": encode_X(np.zeros((2, 3, 2))), "classes": [0, 1]},
    datasets.write_evidence: {"path": io.StringIO, "labels": LABELS},
    datasets.write_labeling: {"path": io.StringIO, "labels": LABELS},
    datasets.write_marginals: {"path": io.StringIO, "unary": np.full((3, 2), 0.5), "n_states": [2, 2, 2]},
    datasets.make_noisy_shapes: {"noise": "gaussian", "n_per_shape": 1, "random_state": 0},
    metrics.node_accuracy_score: {"y_true": LABELS, "y_pred": LABELS},
    metrics.entities: {"labels": ["B-A", "I-A", "O"], "scheme": "IOB2", "mode": "strict"},
    solve: {"unary": ROWS, "pairwise": 1.0, "edges": GRAPH, "edge_weight": [1.0, 2.0], "n_jobs": 1},
    marginals: {"unary": np.zeros((3, 4, 2)), "pairwise": 1.0, "edge_weight": np.ones(17), "connectivity": 1},
    refine: {
        "probabilities": np.full((3, 4, 2), 0.5),
        "image": np.arange(12.0).reshape(3, 4),
        "color_range": (0.0, 255.0),
        "lattice_ndim": 2,
    },
    group_rows: {"rows": ROWS, "groups": ["a", "a", "b"]},
}
for cls in (getattr(sklearn_crf.inference, name) for name in sklearn_crf.inference.__all__):
    if isinstance(cls, type) and issubclass(cls, Inference) and models.PairwiseModel in cls.takes and cls.tasks:
        CALLS[cls] = cls().get_params(deep=False)

# Numbers of sweeps, samples and the like: a value of a billion would run forever.
MANY = 10**5

# Objects of the package are identified by their attributes; an error that names the missing attribute is clear enough.
DUCKS = (Graph, models.PairwiseModel, models.FactorGraph, type(encode_X(ROWS)))


def run(function, arguments, folder):
    """Call the function; if it is an algorithm, run it on a small model with these options."""
    if not (isinstance(function, type) and issubclass(function, Inference)):
        arguments = {key: folder / "file" if value is io.StringIO else value for key, value in arguments.items()}
        # Functions that dispatch on their first argument need it without a name.
        first = next(iter(arguments))
        return function(arguments.pop(first), **arguments)
    return getattr(function(**arguments), min(function.tasks))(MODEL)


def named(function):
    return getattr(function, "__qualname__", repr(function))


@pytest.mark.parametrize("function", CALLS, ids=named)
def test_valid_arguments_are_taken(function, tmp_path):
    run(function, CALLS[function], tmp_path)
    unknown = set(CALLS[function]) - set(inspect.signature(function).parameters)
    assert not unknown


@pytest.mark.parametrize("function", CALLS, ids=named)
def test_malformed_arguments(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = list(CALLS[function])
    for seed in seeds("arguments"):
        rng = np.random.default_rng(seed)
        arguments, clear = dict(CALLS[function]), CLEAR
        for name in rng.permutation(names)[: rng.integers(1, 3)]:
            if isinstance(arguments[name], DUCKS):
                clear = (*CLEAR, AttributeError)
            values = malformed()
            if isinstance(function, type) and issubclass(function, Inference):
                values = [
                    value
                    for value in values
                    if not (isinstance(value, int | float | np.number) and float(np.real(value)) > MANY)
                ]
            arguments[name] = values[rng.integers(len(values))]
        call(run, function, arguments, tmp_path, clear=clear)
