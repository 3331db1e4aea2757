"""Common wrong inputs and their error messages, in one table to be read as text."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from sklearn_crf import (
    TRWCRF,
    Bilateral,
    DenseCRF,
    DRFClassifier,
    Example,
    Graph,
    LearnedFilters,
    M3NClassifier,
    MultiConditionalMFA,
    MultiLabelField,
    RegressionTreeField,
    marginals,
    refine,
    restore,
    solve,
)
from sklearn_crf.datasets import make_noisy_digits
from sklearn_crf.display import MarginalEntropyDisplay, PairwiseTablesDisplay
from sklearn_crf.inference import AutoMap, resolve_inference
from sklearn_crf.inspection import top_features
from sklearn_crf.learning import MaxMargin
from sklearn_crf.metrics import entity_scores, flatten_nodes, node_accuracy_score
from sklearn_crf.model_selection import coupling_audit
from sklearn_crf.models import PairwiseModel, score
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.potentials import PairwiseTables, Segments
from sklearn_crf.preprocessing import (
    ClassifierScores,
    LocalImageFeatures,
    NodeTransformer,
    PatchAverages,
    PatchShrinkage,
    SequenceVectorizer,
    group_rows,
    ungroup_rows,
)
from sklearn_crf.rtf import JPEG, Blur, FieldSolver, GaussianNoise, MissingPixels, Window

CHAINS = [np.eye(3)[[0, 1, 2]], np.eye(3)[[1, 1]]]
TAGS = [["D", "N", "V"], ["N", "N"]]
IMAGE, MASK = np.zeros((4, 5, 2)), np.tri(4, 5, dtype=int)
ROWS = np.arange(8.0).reshape(4, 2)
GREY = np.arange(42.0).reshape(6, 7)
COLOURS, UNSURE = np.zeros((4, 4, 3)), np.full((4, 4, 2), 0.5)


def fit(X, y, **options):
    return TRWCRF(max_iter=3, **options).fit(X, y)


def fitted():
    return fit(CHAINS, TAGS)


def fit_weighted(weight):
    return TRWCRF(max_iter=3).fit(CHAINS, TAGS, sample_weight=weight)


def pandas():
    return pytest.importorskip("pandas", reason="the mistake is one of data frames")


def frame(columns):
    return pandas().DataFrame(columns)


def networkx():
    return pytest.importorskip("networkx", reason="the mistake is one of its graphs")


# What is done wrong: (call, expected error message).
WRONG = {
    # -- X --------------------------------------------------------------------------------------------------------
    "words instead of features": (
        lambda: fit([["the", "cat"]], [["D", "N"]]),
        "features with SequenceVectorizer",
    ),
    "dicts without a vectorizer": (
        lambda: fit([[{"w": "a"}]], [["D"]]),
        "list of dicts: convert them to features with",
    ),
    "an empty list": (lambda: fit([], []), "X is an empty list"),
    "a generator": (lambda: fit((x for x in CHAINS), TAGS), r"got generator: pass list\(X\)"),
    "a dict of sequences": (lambda: fit(dict(enumerate(CHAINS)), TAGS), "must be an array, .* got dict"),
    "only empty sentences": (
        lambda: fit([np.zeros((0, 3)), np.zeros((0, 3))], [[], []]),
        "all of its examples are empty: pass at least one node",
    ),
    "one Example alone": (lambda: fit(Example(ROWS, []), [0, 1, 0, 1]), r"pass a list of examples, \[X\]"),
    "one image without a leading axis": (
        lambda: fit(IMAGE, MASK, lattice_ndim=2),
        r"one example if lattice_ndim=2: add a leading axis, X\[np.newaxis\]",
    ),
    "one sequence of labels for one image": (lambda: fit(np.zeros((3, 5, 1)), np.zeros(15)), "add a leading axis"),
    "grey images without features": (lambda: fit([np.zeros((4, 5))], [MASK]), r"add it: x\[..., np.newaxis\]"),
    "examples of different widths": (lambda: fit([np.ones((2, 3)), np.ones((2, 4))], TAGS), r"X\[1\] has 4 features"),
    "chains and images mixed": (lambda: fit([np.ones((2, 3)), np.ones((2, 2, 3))], TAGS), "has 3 axes, but X"),
    "arrays and Examples mixed": (
        lambda: fit([CHAINS[0], Example(ROWS, [])], TAGS),
        "must have the same type",
    ),
    "NaN after a fit without": (
        lambda: fit(CHAINS, TAGS).predict([np.full((2, 3), np.nan)]),
        r"X\[0\] contains NaN: fill in missing values",
    ),
    "features without a value": (
        lambda: fit([np.full((2, 3), np.nan)] * 2, TAGS),
        "Feature 0 of X has no known value",
    ),
    "infinity in features": (lambda: fit([CHAINS[0], np.full((2, 3), np.inf)], TAGS), r"X\[1\] contains infinity"),
    "complex features": (lambda: fit([x * 1j for x in CHAINS], TAGS), "Complex data not supported"),
    "strings in an array": (lambda: fit([np.array([["a"], ["b"]])], [["D", "N"]]), "must hold numbers"),
    "ragged rows": (lambda: fit([[1.0, 2], [3]], [0, 1]), "rows with different numbers of features, 1 to 2"),
    "prediction with another width": (lambda: fitted().predict([np.ones((2, 4))]), "is expecting 3 features"),
    "prediction of rows by a field of chains": (lambda: fitted().predict(np.ones((2, 3))), r"add a leading axis"),
    "differences of sparse features": (
        lambda: fit([sp.csr_array(x) for x in CHAINS], TAGS, edge_features="difference"),
        "use edge_features='constant'",
    ),
    "features and edges in a tuple": (
        lambda: fit([(x, [[0, 1]]) for x in CHAINS], TAGS),
        r"X\[0\] is a tuple of features and edges: convert it to an example, Example\(",
    ),
    "one graph as a tuple": (
        lambda: fit((ROWS, np.array([[0, 1]])), [0, 1, 0, 1]),
        r"X is a tuple of features and edges",
    ),
    # -- Edges ----------------------------------------------------------------------------------------------------
    "no edges given": (lambda: Example(ROWS, None), "pass an empty list"),
    "a dense adjacency matrix": (lambda: Example(ROWS, np.ones((4, 4), int)), r"pass scipy.sparse.csr_array\(edges\)"),
    "an adjacency of another size": (lambda: Example(ROWS, sp.eye(3).tocsr()), r"need \(4, 4\)"),
    "an edge beyond the nodes": (lambda: Example(ROWS, [[0, 4]]), r"edges\[0\] is \[0, 4\].*numbered 0 to 3"),
    "edges numbered from one": (lambda: Graph(3, [[1, 2], [2, 3]]), r"edges\[1\] is \[2, 3\].*numbered 0 to 2"),
    "both directions of an edge": (lambda: Example(ROWS, [[0, 1], [1, 0]]), "list each undirected edge once"),
    "both directions in a networkx graph": (
        lambda: Example(ROWS[:2], networkx().DiGraph([(0, 1), (1, 0)])),
        r"joins 0 and 1 more than once: pass networkx.Graph\(graph.to_undirected\(\)\)",
    ),
    "parallel edges in a networkx graph": (
        lambda: Example(ROWS[:2], networkx().MultiGraph([(0, 1), (0, 1)])),
        r"joins 0 and 1 more than once: pass networkx.Graph\(graph\)",
    ),
    "a loop": (lambda: Example(ROWS, [[2, 2]]), "joins node 2 to itself"),
    "edges as floats": (lambda: Example(ROWS, [[0.0, 1.0]]), "edges must be integers"),
    "triples as edges": (lambda: Example(ROWS, np.zeros((5, 3), int)), "networkx graphs are accepted too"),
    "edge features of another length": (lambda: Example(ROWS, [[0, 1]], [[1], [2]]), r"must have shape \(1, n_edge"),
    "a node type for each edge": (lambda: Example(ROWS, [[0, 1]], node_type=[0]), r"node_type must have shape \(4,\)"),
    # -- y --------------------------------------------------------------------------------------------------------
    "no labels": (lambda: fit(CHAINS, None), "requires y to be passed"),
    "labels of too few examples": (lambda: fit(CHAINS, TAGS[:1]), "y has 1 examples, but X has 2"),
    "labels of another length": (
        lambda: fit(CHAINS, [TAGS[0], ["N"]]),
        r"y\[1\] has shape \(1,\), but the lattice",
    ),
    "strings and numbers in one example": (lambda: fit(CHAINS, [["D", 1, "V"], ["N", "N"]]), r"y\[0\] mixes strings"),
    "strings here and numbers there": (lambda: fit(CHAINS, [TAGS[0], [1, 2]]), "y mixes strings with other labels"),
    "mixed labels of rows": (lambda: fit(ROWS, ["a", 1, "b", 2]), "mixes strings with other labels, such as 1"),
    "several labels for each row": (lambda: fit(ROWS, np.eye(4, dtype=int)), "Use MultiLabelField for several"),
    "continuous labels": (lambda: fit(CHAINS, [[0.5, 1, 2], [1, 1]]), "Unknown label type: continuous"),
    "NaN for unlabelled nodes": (
        lambda: fit(CHAINS, [[0, 1, np.nan], [1, 1]]),
        "unlabelled nodes by missing_label",
    ),
    "one class": (lambda: fit(CHAINS, [["N"] * 3, ["N"] * 2]), "Pass all class labels with the classes parameter"),
    "ragged classes": (lambda: fit(CHAINS, TAGS, classes=[["D", "N"], ["V"]]), "classes must be a rectangular array"),
    "ragged costs": (lambda: fit(CHAINS, TAGS, cost=[[0, 1], [1]]), "cost must be a matrix .* different lengths"),
    "ragged missing labels": (
        lambda: fit(CHAINS, TAGS, missing_label=[[0, 1], [1]]),
        "missing_label must be one value",
    ),
    "ragged weights": (
        lambda: TRWCRF().fit(CHAINS, TAGS, sample_weight=[[1, [2]], [1]]),
        "Sample weights must be 1D array or scalar",
    ),
    "no label at all": (lambda: fit(CHAINS, [[None] * 3, [None] * 2]), "every node is marked as missing"),
    "a label that training had not": (
        lambda: fitted().energy(CHAINS, [TAGS[0], ["N", "X"]]),
        "unknown label X.*D, N, V",
    ),
    "-1 in a score": (
        lambda: fit(CHAINS, [[0, 1, 0], [1, 1]]).score(CHAINS, [[0, 1, -1], [1, 1]]),
        "unknown label -1.*pass it as missing_label",
    ),
    "numbers for strings": (
        lambda: fitted().score(CHAINS, [[0, 1, 2], [1, 1]]),
        r"y\[0\] holds numbers, such as 0, but the classes are strings, such as 'D': convert both to the same type",
    ),
    "-1 without missing_label": (
        lambda: fit(CHAINS, [[0, 1, -1], [1, 1]], classes=[0, 1]),
        "unknown label -1.*pass it as missing_label",
    ),
    "-1 in evidence": (
        lambda: fit(CHAINS, [[0, 1, 0], [1, 1]]).predict(CHAINS, evidence=[[0, -1, 0], [1, -1]]),
        "None and NaN mark nodes whose label is not known",
    ),
    "sets of labels for rows": (
        lambda: fit(ROWS, [{"a"}, {"b"}] * 2),
        "y.0. is the set.*use MultiLabelField",
    ),
    "names of labels for rows": (
        lambda: fit(ROWS, [["a"], ["a", "b"]] * 2),
        "is the list",
    ),
    "numbers in evidence, strings in y": (
        lambda: fitted().predict(CHAINS, evidence=[[0, 1, None], [None, None]]),
        r"evidence\[0\] holds numbers, such as 0, but the classes are strings",
    ),
    "no labels to score": (lambda: fitted().score(CHAINS), "requires y to be passed"),
    "no labels of an energy": (lambda: fitted().energy(CHAINS), "requires y to be passed"),
    "no labels of a likelihood": (lambda: fitted().log_likelihood(CHAINS), "requires y to be passed"),
    "no labels of a ratio": (lambda: fitted().log_likelihood_ratio(CHAINS), "requires Y1 to be passed"),
    "one labeling of a ratio": (lambda: fitted().log_likelihood_ratio(CHAINS, TAGS), "requires Y2 to be passed"),
    "an unknown label in a ratio": (
        lambda: fitted().log_likelihood_ratio(CHAINS, TAGS, [TAGS[0], ["N", "X"]]),
        r"Y2\[1\] holds the unknown label X",
    ),
    "no labels for one pass": (lambda: TRWCRF().partial_fit(CHAINS), "TRWCRF requires y to be passed"),
    "no sets of labels": (lambda: MultiLabelField().fit(ROWS), "MultiLabelField requires y to be passed"),
    "no labels of dense fields": (lambda: DenseCRF().fit(ROWS), "DenseCRF requires y to be passed"),
    "no labels for scores": (
        lambda: ClassifierScores(LogisticRegression()).fit(ROWS, None),
        "ClassifierScores requires y to be passed",
    ),
    "one weight of nodes": (
        lambda: M3NClassifier().fit(CHAINS, TAGS, node_weight=2.0),
        "node_weight must be an array, or a list of one array per example, got 2.0",
    ),
    "NA as a weight of nodes": (
        lambda: M3NClassifier().fit(CHAINS, TAGS, node_weight=pandas().NA),
        "node_weight must be an array, or a list of one array per example, got <NA>",
    ),
    "words as weights": (lambda: fit_weighted("heavy"), "sample_weight must hold numbers"),
    # -- Parameters -----------------------------------------------------------------------------------------------
    "an option of a field that is None": (
        lambda: MultiLabelField().set_params(estimator__C=2.0),
        r"estimator__C sets an option of estimator, .*estimator=TRWCRF\(pairwise='ising'\)",
    ),
    "an option of mean field that is None": (
        lambda: DenseCRF().set_params(inference__max_iter=5),
        r"inference__max_iter sets an option of inference, .*inference=DenseMeanField\(\)",
    ),
    "costs as a dict": (
        lambda: DRFClassifier(cost={"D": 2.0}).fit(CHAINS, TAGS),
        r"cost must be a matrix, .*class_weight",
    ),
    "margin costs as a dict": (
        lambda: M3NClassifier(learning=MaxMargin(cost={"D": 2.0})).fit(CHAINS, TAGS),
        "cost must be a matrix",
    ),
    "no thread at all": (lambda: fit(CHAINS, TAGS, n_jobs=0), "n_jobs must be 1 for one thread, .* got 0"),
    "a negative number of samples": (lambda: fitted().sample(CHAINS, n_samples=-1), "n_samples must be between 0 and"),
    "True as a number of labelings": (lambda: fitted().predict_topk(CHAINS, k=True), "k must be an integer, got True"),
    # -- Tables and transformers ----------------------------------------------------------------------------------
    "None as a feature": (lambda: SequenceVectorizer().fit([[{"w": None}]]), r"X\[0\]\[0\].*'w'"),
    "one sentence of tokens": (lambda: SequenceVectorizer().fit({"w": "a"}), "iterable of sequences of tokens"),
    "an unknown group column": (
        lambda: group_rows(ROWS, "sentence"),
        "is no column of the table rows: rows is",
    ),
    "a table with its sentences in a column": (
        lambda: fit(frame({"sentence": list("aabb"), "length": [1.0, 2, 3, 4]}), [0, 1, 0, 1]),
        r"column 'sentence' of X must hold numbers, got strings.*group_rows\(X, 'sentence'\)",
    ),
    "frames with other columns": (
        lambda: fit([frame({"a": [1.0, 2]}), frame({"b": [1.0, 2]})], [[0, 1], [1, 0]]),
        r"X\[1\] must have the columns \['a'\], but it lacks \['a'\]",
    ),
    "words in a column of a chain": (
        lambda: fit([frame({"word": ["old", "boats"]})], [["A", "N"]]),
        "column 'word' of X.* must hold numbers, got strings.*SequenceVectorizer",
    ),
    "predictions of other groups": (lambda: ungroup_rows([[1]], [1, 2]), "groups has entries for 2"),
    "a classifier as a transformer": (
        lambda: NodeTransformer(RandomForestClassifier()).fit(CHAINS, TAGS),
        r"use ClassifierScores\(RandomForestClassifier\(\)\)",
    ),
    "more folds than pixels": (
        lambda: ClassifierScores(RandomForestClassifier(5), cv=50).fit_transform(IMAGE[None], MASK[None]),
        "cv=50 needs at least as many nodes as folds, but X has 20",
    ),
    "no such column of time": (
        lambda: group_rows(ROWS, [0, 0, 1, 1], "when"),
        "time='when' is no column",
    ),
    "numbers of labels": (lambda: MultiLabelField().fit(ROWS, [[1, 2], [0, 1], [2, 0], [1, 1]]), "MultiLabelBinarizer"),
    "names of labels": (lambda: MultiLabelField().fit(ROWS, [["a"], ["a", "b"]] * 2), r"MultiLabelBinarizer\(\).fit"),
    "sets of labels": (
        lambda: MultiLabelField().fit(ROWS, [{"a"}, {"a", "b"}] * 2),
        "y must be zeros and ones",
    ),
    # -- Energies -------------------------------------------------------------------------------------------------
    "scores without states": (lambda: solve(np.zeros(3), 1.0), r"unary must have shape \(\*lattice, n_states\)"),
    "costs of +inf as scores": (lambda: solve([[np.inf, 0], [0, 0]], 1.0), "costs=True reads costs"),
    "a table of another size": (lambda: solve(IMAGE, np.zeros((3, 3))), r"a number, a table \(2, 2\)"),
    "weights of the pixels": (
        lambda: solve(IMAGE, 1.0, edge_weight=np.ones((4, 5))),
        "for each lattice offset",
    ),
    "one weight of all edges": (lambda: solve(IMAGE, 1.0, edge_weight=np.array(2.0)), "multiply the argument"),
    "no thread to solve with": (lambda: solve(IMAGE, 1.0, n_jobs=0), "n_jobs must be 1 for one thread"),
    "marginals of a minimum cut": (
        lambda: marginals(IMAGE, 1.0, inference="graph_cut"),
        r"does not compute marginals, which marginals\(\) needs: use one of 'auto'",
    ),
    "an inference that is none": (
        lambda: resolve_inference("belief_propagation"),
        "inference must be an Inference or one of",
    ),
    # -- Models and metrics ---------------------------------------------------------------------------------------
    "a score of +inf": (lambda: PairwiseModel(Graph(1, []), [[np.inf, 0]], np.zeros((0, 2, 2))), "unary must"),
    "tables of another size": (lambda: PairwiseModel(Graph(1, []), [[0.0, 0]], np.zeros((1, 3, 3))), "tables must"),
    "edges in place of a graph": (
        lambda: PairwiseModel([[0, 1]], np.zeros((2, 2)), np.zeros((1, 2, 2))),
        r"graph must be a Graph, got list: use Graph\(n_nodes, edges\)",
    ),
    "scores in place of a model": (lambda: AutoMap().map(np.zeros((2, 2))), "For arrays of scores, call .*solve"),
    "the name of a photograph": (lambda: restore("photo.png"), "got the string 'photo.png': pass the values"),
    "labels to refine": (
        lambda: refine(MASK, np.zeros((4, 5, 3), np.uint8)),
        "have no axis of classes: pass np.stack",
    ),
    "classes first in refine": (
        lambda: refine(np.full((2, 4, 5), 0.5), np.zeros((4, 5, 3), np.uint8)),
        r"classes first, .* pass np.moveaxis\(probabilities, 0, -1\)",
    ),
    "one sentence of dicts": (
        lambda: SequenceVectorizer().fit([{"word": "a"}, {"word": "b"}]),
        r"X is one sequence, a list of dicts of features: pass a list of sequences, such as \[X\]",
    ),
    "labels in a data frame": (
        lambda: fit(IMAGE, pandas().DataFrame(MASK)),
        r"y is a data frame: pass y.to_numpy\(\)",
    ),
    "metrics of other shapes": (lambda: flatten_nodes([[0, 1]], [[0, 1, 1]]), r"y_pred\[0\] has shape \(3,\)"),
    "entities of flat labels": (lambda: entity_scores(["B-A"], ["B-A"]), "counted in sequences of labels"),
    "an unknown learning rule": (lambda: DRFClassifier(learning="sgd").fit(ROWS, [0, 1, 0, 1]), "learning"),
    # -- Parameters of fields -------------------------------------------------------------------------------------
    "a penalty of zero": (lambda: fit(CHAINS, TAGS, C=0), "'C' parameter of TRWCRF must be .* Got 0"),
    "a penalty in quotes": (lambda: fit(CHAINS, TAGS, C="1"), "'C' parameter of TRWCRF must be .* Got '1'"),
    "half an iteration": (lambda: TRWCRF(max_iter=10.5).fit(CHAINS, TAGS), "'max_iter' .* must be an int"),
    "a misspelt inference": (
        lambda: fit(CHAINS, TAGS, inference="vitterbi"),
        "inference must be .* one of 'map'|'auto'",
    ),
    "an inference to be called": (
        lambda: fit(CHAINS, TAGS, inference=AutoMap),
        r"got the class AutoMap: call it, as in inference=AutoMap\(",
    ),
    "a learning rule to be called": (
        lambda: fit(CHAINS, TAGS, learning=MaxMargin),
        r"got the class MaxMargin: call it, as in learning=MaxMargin\(",
    ),
    "misspelt tables": (lambda: fit(CHAINS, TAGS, pairwise="pots"), "'pairwise' .* among .*'potts'"),
    "misspelt edge features": (lambda: fit(CHAINS, TAGS, edge_features="diff"), "one of 'auto', 'difference'"),
    "edge features without a column": (
        lambda: fit(CHAINS, TAGS, edge_features=lambda tail, head: np.ones(len(tail))),
        r"edge_features must return an array of shape \(n_edges, n_edge_features\)",
    ),
    "four neighbours": (
        lambda: fit([IMAGE], [MASK], connectivity=4),
        r"connectivity must be 1 \(neighbours along the axes\), 2 \(diagonal neighbours too\)",
    ),
    "corners of a plane": (lambda: fit([IMAGE], [MASK], connectivity=3), "connectivity must be 1 .*got 3"),
    "26 neighbours of a voxel": (
        lambda: fit([np.zeros((2, 3, 4, 1))], [np.zeros((2, 3, 4))], classes=[0, 1], connectivity=26),
        r"3 \(corners too\), or an array of offsets, got 26",
    ),
    "a weight of no class": (
        lambda: fit(CHAINS, TAGS, class_weight={"Q": 2.0}),
        "class_weight contains the class 'Q', but the classes are",
    ),
    "misspelt balance": (lambda: fit(CHAINS, TAGS, class_weight="balance"), "'class_weight' .*'balanced'"),
    "costs of two classes for three": (
        lambda: fit(CHAINS, TAGS, cost=np.ones((2, 2))),
        r"cost must have shape \(3, 3\)",
    ),
    "an unknown scheme": (
        lambda: fit(CHAINS, TAGS, pairwise=PairwiseTables(forbidden="BIO")),
        "'forbidden' .*'IOB2'.* Got 'BIO'",
    ),
    "a forbidden pair of no class": (
        lambda: fit(CHAINS, TAGS, pairwise=PairwiseTables(forbidden=[("D", "Q")])),
        "forbidden contains 'Q', which is not among the classes",
    ),
    "a forbidden pair in y": (
        lambda: fit(CHAINS, TAGS, pairwise=PairwiseTables(forbidden=[("D", "N")])),
        "Sequence 0 contains D followed by N, which forbidden rules out",
    ),
    "a weight for each node as weights of examples": (
        lambda: fit_weighted(np.ones(5)),
        r"sample_weight.shape == \(5,\), expected \(2,\)",
    ),
    "a negative weight": (lambda: fit_weighted([1, -1]), r"sample_weight\[1\] is -1.0"),
    "weights of nodes in a likelihood": (
        lambda: TRWCRF().fit(CHAINS, TAGS, node_weight=[np.ones(3), np.ones(2)]),
        "use sample_weight or class_weight, or learning='pl'",
    ),
    "all cores by name": (lambda: fit(CHAINS, TAGS, n_jobs="all"), "'n_jobs' .* must be an instance of 'int'"),
    "a negative tolerance": (lambda: fit(CHAINS, TAGS, tol=-1), "'tol' parameter"),
    "a word for verbose": (lambda: fit(CHAINS, TAGS, verbose="yes"), "'verbose' parameter"),
    "a name of an unknown parameter": (
        lambda: TRWCRF().set_params(lr=1),
        "Invalid parameter 'lr' for estimator TRWCRF.*Valid parameters are: \\['C'",
    ),
    "an option of automatic inference": (
        lambda: TRWCRF().set_params(inference__max_iter=1),
        "inference='auto' is not an object: pass an object first",
    ),
    "several missing labels": (lambda: fit([IMAGE], [MASK], missing_label=[0]), "missing_label must be one value"),
    "no duration": (
        lambda: fit(CHAINS, TAGS, pairwise=PairwiseTables(segments=Segments(0))),
        "'max_duration' parameter of Segments must be an int",
    ),
    "durations in an image": (
        lambda: fit([IMAGE], [MASK], pairwise=PairwiseTables(segments=Segments(3))),
        "segments need sequences, but X holds lattices of 2 axes",
    ),
    "three spacings of two axes": (
        lambda: fit([IMAGE], [MASK], pairwise=PairwiseTables(spacing=(1, 2, 3))),
        "spacing has 3 numbers, but X holds lattices of 2 axes",
    ),
    # -- Shapes ---------------------------------------------------------------------------------------------------
    "one word as X": (lambda: fit("the cat", "DN"), "X must hold numbers, got the string 'the cat'"),
    "one word to label": (lambda: fitted().predict("the cat"), "X must hold numbers, got the string 'the cat'"),
    "nothing to label": (lambda: fitted().predict(None), "X must be an array.* got NoneType"),
    "one chain to label": (lambda: fitted().predict(CHAINS[0]), r"add a leading axis, X\[np.newaxis\]"),
    "one number as y": (lambda: fit(CHAINS, 1), "y must be an array, or a list of one array per example, got 1"),
    "a field that is not fitted": (lambda: TRWCRF().predict(CHAINS), "not fitted yet. Call 'fit'"),
    "labels as one-hot codes": (
        lambda: fit([IMAGE], [np.eye(2)[MASK]]),
        r"Equal shapes of X and y are ambiguous.*with 2 features",
    ),
    "a transposed mask": (
        lambda: fit([IMAGE], [MASK.T]),
        r"y\[0\] has shape \(5, 4\), but the lattice of X\[0\] has shape \(4, 5\)",
    ),
    "channels first": (
        lambda: fit(np.zeros((2, 3, 8, 9)), np.zeros((2, 8, 9), int)),
        r"move them to the last: np.moveaxis\(x, 0, -1\)",
    ),
    "a flat mask of one image": (
        lambda: fit(IMAGE[None], MASK.ravel()),
        r"Pass y of shape \(1, 4, 5\): y.reshape\(\(1, 4, 5\)\)",
    ),
    "probabilities as labels": (lambda: fit([IMAGE], [0.3 * MASK + 0.1]), "Unknown label type: continuous"),
    "a column of labels in a frame": (lambda: fit(CHAINS, frame({"tag": [1, 2]})), r"pass y.to_numpy\(\)"),
    "no labeling asked for": (lambda: fitted().predict_topk(CHAINS, k=0), "k must be between 1 and"),
    "a misspelt inference of predict": (
        lambda: fitted().predict(CHAINS, inference="mapp"),
        "inference must be an Inference or one of",
    ),
    "evidence of another length": (
        lambda: fitted().predict(CHAINS, evidence=[[None] * 2, [None] * 2]),
        r"evidence\[0\] has shape \(2,\), but the lattice",
    ),
    "a number of samples in quotes": (
        lambda: fitted().sample(CHAINS, n_samples="3"),
        "n_samples must be an integer, got '3'",
    ),
    "one feature without an axis": (
        lambda: Example([1, 2, 3], [[0, 1]]),
        r"node_features must have shape \(n_nodes, n_features\)",
    ),
    "words as features of nodes": (lambda: Example([["a"], ["b"]], [[0, 1]]), "categories by OneHotEncoder"),
    "edge features of two widths": (
        lambda: fit([Example(ROWS, [[0, 1]], [[1.0]]), Example(ROWS, [[0, 1]], [[1.0, 2]])], [[0, 1, 0, 1]] * 2),
        r"X\[1\] has 2 edge features, but X\[0\] has 1",
    ),
    # -- Other estimators -----------------------------------------------------------------------------------------
    "one label a row": (
        lambda: MultiLabelField().fit(ROWS, [0, 1, 0, 1]),
        "for one label per row, fit the field itself",
    ),
    "an unknown structure": (lambda: MultiLabelField(structure="tree").fit(ROWS, ROWS > 2), "'structure' .*'chow_liu'"),
    "a pair of no label": (
        lambda: MultiLabelField(structure=[(0, 5)]).fit(ROWS, ROWS > 2),
        r"pairs of the 2 labels: edges\[0\] is \[0, 5\]",
    ),
    "a regression of several labels": (
        lambda: MultiLabelField(LogisticRegression()).fit(ROWS, ROWS > 2),
        "estimator must be a field classifier .*, got LogisticRegression.*MultiOutputClassifier",
    ),
    "rows for a dense field": (lambda: DenseCRF().fit(ROWS, [0, 1, 0, 1]), "its last axis must hold scores, then"),
    "noise by name": (
        lambda: RegressionTreeField(corruption="noise").fit([GREY]),
        "'corruption' .* must be a callable",
    ),
    "negative noise": (
        lambda: RegressionTreeField(corruption=GaussianNoise(-5)).fit([GREY]),
        r"as in GaussianNoise\(25\)",
    ),
    "a quality of 500": (lambda: RegressionTreeField(corruption=JPEG(500)).fit([GREY]), r"as in JPEG\(50\)"),
    "missing pixels in per cent": (
        lambda: RegressionTreeField(corruption=MissingPixels(50)).fit([GREY]),
        r"number from 0 to 1, .* as in MissingPixels\(0.5\)",
    ),
    "one image for learned filters": (
        lambda: LearnedFilters().fit(GREY),
        r"is one image: pass X\[np.newaxis\]",
    ),
    "more factors than features": (
        lambda: MultiConditionalMFA(n_factors=5).fit(ROWS, [0, 1, 0, 1]),
        "n_factors=5 is .* than n_features=2",
    ),
    "missing values of rows": (
        lambda: MultiConditionalMFA().fit(np.full((4, 2), np.nan), [0, 1, 0, 1]),
        "pass allow_nan=True to MultiConditionalMFA",
    ),
    "a regressor as a classifier": (
        lambda: ClassifierScores(Ridge()).fit(CHAINS, TAGS),
        "is not a method of Ridge, .* pass a classifier, such as LogisticRegression",
    ),
    "a scaler of rows before a field": (
        lambda: make_pipeline(StandardScaler(), TRWCRF()).fit(CHAINS, TAGS),
        r"wrap the step, as in NodeTransformer\(StandardScaler\(\)\)",
    ),
    "a scaler of rows before a field, lists of different lengths": (
        lambda: make_pipeline(StandardScaler(), TRWCRF()).fit([np.ones((2, 1)), np.ones((3, 1))], [[0, 1], [0, 1, 1]]),
        r"wrap the step, as in NodeTransformer\(StandardScaler\(\)\)",
    ),
    "X and y swapped": (
        lambda: TRWCRF().fit(np.zeros((2, 3)), np.zeros((2, 3, 4))),
        "y should be a 1d array, .* Are X and y swapped",
    ),
    "an object that holds no numbers": (
        lambda: TRWCRF().fit([object()], [[1]]),
        r"X\[0\] is of type object: examples must be arrays of numbers, or Example",
    ),
    "a classifier to be called": (
        lambda: ClassifierScores(RandomForestClassifier).fit(CHAINS, TAGS),
        r"call it, as in estimator=RandomForestClassifier\(",
    ),
    "words without names": (
        lambda: SequenceVectorizer().fit([["a", "b"]]),
        r"features must be a mapping .* pass \{'word': 'a'\}",
    ),
    "unknown kinds of features": (
        lambda: LocalImageFeatures(("intensities",)).fit([GREY]),
        r"kinds must be a tuple of names from \('intensity'",
    ),
    "groups of other rows": (lambda: group_rows(ROWS, [0, 1]), r"groups must have shape \(4,\)"),
    # -- Pictures -------------------------------------------------------------------------------------------------
    "scores of a network to refine": (
        lambda: refine(GREY[..., None] * [1, -1], GREY),
        "They have negative values: pass logits=True",
    ),
    "probabilities in bytes": (
        lambda: refine(np.full((4, 5, 2), 127, np.uint8), np.zeros((4, 5, 3), np.uint8)),
        "The largest value is 127: convert them to probabilities from 0 to 1",
    ),
    "a grey map beside a grey image": (lambda: refine(0.5 + 0 * GREY, GREY), r"pass np.stack\(\[1 - p, p\], axis=-1\)"),
    "a grey map without an image": (lambda: refine(0.4 + 0 * GREY), r"For a single map p .*np.stack\(\[1 - p, p\]"),
    "a map with one class": (lambda: refine(0.4 + 0 * GREY[..., None]), r"They have one class: pass np.concatenate"),
    "an image of another size to refine": (
        lambda: refine(UNSURE, np.zeros((2, 4, 3), np.uint8)),
        r"image has shape \(2, 4, 3\), but probabilities are for a lattice of shape \(4, 4\)",
    ),
    "bandwidths without kernels": (
        lambda: refine(UNSURE, COLOURS, kernels=(3, 80)),
        r"kernels must be a tuple of kernels such as Spatial\(\)",
    ),
    "an unknown quality": (lambda: restore(GREY, quality="best"), "quality must be 'fast', 'default' or 'high'"),
    "negative noise to remove": (lambda: restore(GREY, noise=-3), "noise must be 'auto', a positive number"),
    "many photographs in one array": (lambda: restore(np.zeros((2, 8, 8, 3))), "pass several images as a list"),
    "a mask of another size": (
        lambda: restore(GREY, mask=np.zeros((4, 4), bool)),
        r"mask of image must be booleans of shape \(6, 7\)",
    ),
    "a row as a kernel": (lambda: restore(GREY, kernel=np.ones(5) / 5), "kernel must be a matrix"),
    "half a zoom": (lambda: restore(GREY, scale=1.5), "scale must be an integer, got 1.5"),
    # -- Functions ------------------------------------------------------------------------------------------------
    "an edge of no node to solve": (lambda: solve(np.zeros((4, 2)), 1.0, edges=[[0, 9]]), "nodes are numbered 0 to 3"),
    "NaN to solve": (lambda: solve(np.full((4, 2), np.nan), 1.0), "that are finite or -inf, found NaN"),
    "a name of tables to solve": (lambda: solve(IMAGE, "potts"), "pairwise must be a finite number or tables"),
    "predictions of more examples": (
        lambda: node_accuracy_score([[0, 1]], [[0, 1], [0]]),
        "y_true has 1 examples, but y_pred has 2",
    ),
    "entities of numbers": (lambda: entity_scores([[0, 1]], [[0, 1]]), "not a label of IOB2"),
    "weights of an unknown label": (lambda: top_features(fitted(), label="Q"), "'Q' is not among the classes"),
    "names of too few features": (lambda: top_features(fitted(), feature_names=["a"]), "the field has 3 features"),
    "one field to audit": (
        lambda: coupling_audit(TRWCRF(), CHAINS, TAGS, inference={"map": "map"}),
        "estimators must be a nonempty dict that maps names to objects",
    ),
    "noise of another name": (lambda: make_noisy_digits(4, noise="gauss"), "noise must be 'flip' or 'gaussian'"),
    "several chains to draw": (
        lambda: MarginalEntropyDisplay.from_estimator(fitted(), CHAINS),
        r"got a list of arrays: pass one, x\[0\]",
    ),
    "tables that are not fitted": (lambda: PairwiseTablesDisplay.from_estimator(TRWCRF()), "not fitted yet"),
    "too few labels of a model": (
        lambda: score(PairwiseModel(Graph(2, [[0, 1]]), np.zeros((2, 2)), np.zeros((1, 2, 2))), [0]),
        r"labels must have shape \(2,\)",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_one_sentence_says_what_to_do(mistake):
    call, answer = WRONG[mistake]
    with pytest.raises((ValueError, TypeError), match=answer) as caught:
        call()
    assert len(str(caught.value)) < 420


def test_there_are_a_hundred_and_fifty():
    assert len(WRONG) >= 150


RAGGED = [[1], [1, 2]]
IMAGES = np.zeros((2, 8, 8))
RAGGED_PARAMETERS = {
    "window": lambda: RegressionTreeField(window=RAGGED).fit(IMAGES[..., np.newaxis], IMAGES),
    "clip": lambda: RegressionTreeField(clip=RAGGED).fit(IMAGES[..., np.newaxis], IMAGES),
    "pairwise_channels": lambda: RegressionTreeField(window=Window(pairwise_channels=RAGGED)).fit(
        IMAGES[..., np.newaxis], IMAGES
    ),
    "eigenvalue_bounds": lambda: RegressionTreeField(solver=FieldSolver(eigenvalue_bounds=RAGGED)).fit(IMAGES),
    "kernel": lambda: RegressionTreeField(degradation=Blur(RAGGED, 1.0)).fit(IMAGES),
    "thresholds": lambda: PatchShrinkage(RAGGED).fit(IMAGES[..., np.newaxis]),
    "bandwidths": lambda: PatchAverages(RAGGED).fit(IMAGES[..., np.newaxis]),
    "forbidden": lambda: TRWCRF(pairwise=PairwiseTables(forbidden=RAGGED)).fit(CHAINS, TAGS),
    "color_range": lambda: refine(UNSURE, COLOURS, color_range=RAGGED),
    "spacing": lambda: refine(UNSURE, COLOURS, spacing=RAGGED),
    r"kernels\[0\].bandwidth": lambda: refine(UNSURE, COLOURS, kernels=[Bilateral(RAGGED)]),
    "mask": lambda: restore(IMAGES[0], mask=RAGGED),
}


@pytest.mark.parametrize("name", RAGGED_PARAMETERS)
def test_ragged_parameters_are_named(name):
    with pytest.raises(ValueError, match=f"^{name}.* must be a rectangular array"):
        RAGGED_PARAMETERS[name]()
