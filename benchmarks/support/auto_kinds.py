"""Kinds of models for ``auto_quality.py``: random models, models of the UAI competition, and of fitted estimators.

A kind has models for comparing labelings and models for comparing marginals. They are the same models, unless their
treewidth is too large for exact elimination. Marginals are then compared on the largest models that allow it.
"""

import csv
import os
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.spatial import Delaunay
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sklearn_crf import TRWCRF, DRFClassifier, Example
from sklearn_crf.datasets import read_evidence, read_uai
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.models import FactorGraph, PairwiseModel, clamped
from sklearn_crf.preprocessing import LocalImageFeatures, NodeTransformer
from support.bundles import load_ocr_letters, load_snakes, load_stanford_superpixels, load_weizmann_horses

SPIN = np.array([[1.0, -1.0], [-1.0, 1.0]])
FIRST_SEED = 50_000
N_RANDOM = 7


class Kind(NamedTuple):
    """Builders of the k-th model of a kind, for labelings and for marginals, and the number of models."""

    labeled: Callable
    summed: Callable
    n_models: int


def spins(graph, rng, coupling, field=0.5):
    unary = field * rng.normal(size=(graph.n_nodes, 2))
    return PairwiseModel(graph, unary, SPIN[None], edge_weight=coupling * rng.normal(size=graph.n_edges))


def tables(graph, rng, n_states, scale=1.0):
    shape = (graph.n_edges, n_states, n_states)
    unary = rng.normal(size=(graph.n_nodes, n_states))
    return PairwiseModel(graph, unary, scale * rng.normal(size=shape), np.arange(graph.n_edges))


def potts(graph, rng, n_states, gain):
    return PairwiseModel(graph, rng.normal(size=(graph.n_nodes, n_states)), gain * np.eye(n_states)[None])


def truncated(graph, rng, n_states):
    states = np.arange(n_states)
    table = -0.3 * np.minimum(np.abs(states[:, None] - states), 3.0)
    return PairwiseModel(graph, rng.normal(size=(graph.n_nodes, n_states)), table[None])


def tree(rng, n_nodes=60):
    return Graph(n_nodes, [[s, int(rng.integers(s))] for s in range(1, n_nodes)])


def clique(n_nodes):
    return Graph(n_nodes, [[s, t] for s in range(n_nodes) for t in range(s)])


def regular(rng, n_nodes=120, degree=4):
    ends = rng.permutation(np.repeat(np.arange(n_nodes), degree)).reshape(-1, 2)
    return Graph(n_nodes, np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0))


def planar(rng, n_nodes=200):
    triangles = Delaunay(rng.random((n_nodes, 2))).simplices
    pairs = np.concatenate((triangles[:, :2], triangles[:, 1:], triangles[:, ::2]))
    return Graph(n_nodes, np.unique(np.sort(pairs, axis=1), axis=0))


def skip_chain(rng, n_nodes=80, n_skips=8):
    skips = np.sort(rng.integers(n_nodes, size=(n_skips, 2)), axis=1)
    skips = skips[skips[:, 1] > skips[:, 0] + 1]
    chain = np.stack((np.arange(n_nodes - 1), np.arange(1, n_nodes)), axis=1)
    return Graph(n_nodes, np.unique(np.concatenate((chain, skips)), axis=0))


def forbidding(rng, side=12, n_states=5):
    model = tables(lattice((side, side)), rng, n_states)
    forbidden = np.where(rng.random(model.tables.shape) < 0.15, -np.inf, model.tables)
    truth = rng.integers(n_states, size=side * side)
    tails, heads = model.graph.edges.T
    forbidden[np.arange(len(tails)), 0, truth[tails], truth[heads]] = 0.0
    return PairwiseModel(model.graph, model.unary, forbidden, model.edge_type)


def triples(rng, n_nodes=60, n_factors=80):
    factors = [((s,), rng.normal(size=3)) for s in range(n_nodes)]
    for _ in range(n_factors):
        factors.append((tuple(map(int, rng.choice(n_nodes, 3, replace=False))), rng.normal(size=(3, 3, 3))))
    return FactorGraph.from_factors([3] * n_nodes, factors)


def random_kind(labeled, summed=None):
    def numbered(make, number):
        return make(np.random.default_rng(FIRST_SEED + number))

    return Kind(partial(numbered, labeled), partial(numbered, summed or labeled), N_RANDOM)


def data_folder(name):
    return Path(os.environ["SKLEARN_CRF_DATA"]) / name


@lru_cache
def competition(part):
    """Return functions that read the models of a part of the competition, with their evidence."""
    folder = data_folder("uai2014")
    with open(folder / "solutions.tsv") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["folder"] == part]

    def read(row):
        path = folder / part / f"{row['model']}.uai.gz"
        model = read_uai(path)
        if not int(row["n_evidence"]):
            return model
        return clamped(model, read_evidence(path.with_suffix(".evid"), model.n_nodes))

    return [partial(read, row) for row in rows]


def competition_model(part, number):
    return competition(part)[number]()


@lru_cache
def letters():
    """Return models of words, by a chain fitted to 200 other words."""
    data = load_ocr_letters(data_folder("ocr_letters"))
    X, y = ([values[i] for i in data.train[:200]] for values in (data.data, data.target))
    field = TRWCRF(C=0.1, max_iter=60, tol=1e-2, classes=list("abcdefghijklmnopqrstuvwxyz")).fit(X, y)
    models = field.models([data.data[i] for i in data.test[: 10 * 500 : 500]])
    return models, models


def contrast(x_tail, x_head):
    difference = np.abs(x_tail[:, 0] - x_head[:, 0])
    return np.stack([np.ones_like(difference), np.exp(-difference), np.exp(-5 * difference)], axis=1)


@lru_cache
def horses():
    """Return models of small horse images, by a field fitted to ten other images, and models of strips of images."""
    data = load_weizmann_horses(data_folder("weizmann_horses"))
    chosen = np.concatenate((data.train[::20], data.test[::13]))
    X = [data.data[i][::4, ::4] / np.float32(255) for i in chosen]
    y = [data.target[i][::4, ::4] for i in chosen]
    X = make_pipeline(
        LocalImageFeatures(("intensity", "mean", "deviation", "position"), scales=(1.0,)),
        NodeTransformer(make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), StandardScaler())),
    ).fit_transform([x[..., 0] for x in X])
    field = DRFClassifier(edge_features=contrast, random_state=0).fit(X[:10], y[:10])
    return field.models(X[10:]), field.models([x[20:34] for x in X[10:]])


def colours_around(image):
    """Return indicators of the colours of each cell and of its four neighbours."""
    code = (image > 0) @ np.array([1, 2, 4])
    padded = np.pad(code, 1)
    height, width = code.shape
    places = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    around = np.stack([padded[i : i + height, j : j + width] for i, j in places], axis=-1)
    return np.eye(8, dtype=np.float32)[around].reshape(height, width, -1)


@lru_cache
def snakes():
    """Return models of snakes with eleven states, by a field with a table for each direction fitted to 40 others."""
    data = [load_snakes(data_folder("snakes"), subset=part) for part in ("train", "test")]
    X, X_test = ([colours_around(image) for image in part.data] for part in data)
    field = DRFClassifier(pairwise="full", edge_features="constant", random_state=0).fit(X[:40], data[0].target[:40])
    models = field.models(X_test[:10])
    return models, models


@lru_cache
def scenes():
    """Return models of superpixels of scenes, by a field fitted to ten other scenes, and of upper parts of scenes."""
    data = load_stanford_superpixels(data_folder("stanford_superpixels"))

    def with_colours(x):
        tails, heads = x.edges.T
        distance = np.abs(x.node_features[tails, 400:403] - x.node_features[heads, 400:403]).mean(axis=1) / 64
        return Example(x.node_features, x.graph, np.stack((np.ones_like(distance), distance), axis=1))

    reduced = NodeTransformer(make_pipeline(StandardScaler(), PCA(20, whiten=True, random_state=0)))
    X = list(reduced.fit_transform([with_colours(x) for x in data.data[:20]]))
    field = DRFClassifier(missing_label=-1, random_state=0).fit(X[:10], list(data.target[:10]))
    return field.models(X[10:]), field.models([upper_part(x) for x in X[10:]])


def upper_part(x, n_nodes=100):
    """Return the example of the first superpixels of a scene, which are its upper part."""
    kept = (x.edges < n_nodes).all(axis=1)
    return Example(x.node_features[:n_nodes], x.edges[kept], x.edge_features[kept])


def fitted_kind(make_models):
    return Kind(lambda number: make_models()[0][number], lambda number: make_models()[1][number], 10)


def grid(*sides):
    return lattice(sides)


RANDOM = {
    "chain": random_kind(lambda rng: tables(grid(200), rng, 8)),
    "tree": random_kind(lambda rng: tables(tree(rng), rng, 5)),
    "ladder": random_kind(lambda rng: tables(grid(2, 60), rng, 6)),
    "clique of 14": random_kind(lambda rng: tables(clique(14), rng, 2)),
    "skip chain": random_kind(lambda rng: tables(skip_chain(rng), rng, 4)),
    "3 x 100": random_kind(lambda rng: tables(grid(3, 100), rng, 3)),
    "spins 9 x 9": random_kind(lambda rng: spins(grid(9, 9), rng, 2.0)),
    "spins 15 x 15": random_kind(lambda rng: spins(grid(15, 15), rng, 1.0), lambda rng: spins(grid(16, 16), rng, 1.0)),
    "spins 40 x 40": random_kind(lambda rng: spins(grid(40, 40), rng, 1.0), lambda rng: spins(grid(17, 17), rng, 2.0)),
    "submodular": random_kind(
        lambda rng: potts(grid(40, 40), rng, 2, 0.6), lambda rng: potts(grid(17, 17), rng, 2, 0.6)
    ),
    "weak attraction": random_kind(
        lambda rng: potts(grid(14, 14), rng, 3, 0.4), lambda rng: potts(grid(11, 11), rng, 3, 0.4)
    ),
    "Potts": random_kind(lambda rng: potts(grid(30, 30), rng, 4, 0.6), lambda rng: potts(grid(9, 9), rng, 4, 0.6)),
    "truncated linear": random_kind(
        lambda rng: truncated(grid(20, 20), rng, 8), lambda rng: truncated(grid(6, 6), rng, 8)
    ),
    "repelling": random_kind(
        lambda rng: potts(grid(20, 20), rng, 3, -1.0), lambda rng: potts(grid(11, 11), rng, 3, -1.0)
    ),
    "any tables": random_kind(lambda rng: tables(grid(8, 8), rng, 5)),
    "64 states": random_kind(lambda rng: tables(grid(5, 5), rng, 64), lambda rng: tables(grid(3, 4), rng, 64)),
    "volume": random_kind(lambda rng: tables(grid(6, 6, 6), rng, 3), lambda rng: tables(grid(3, 3, 6), rng, 4)),
    "random regular": random_kind(
        lambda rng: tables(regular(rng), rng, 3), lambda rng: tables(regular(rng, 44), rng, 3)
    ),
    "planar": random_kind(
        lambda rng: tables(planar(rng), rng, 4, 0.7), lambda rng: tables(planar(rng, 70), rng, 4, 0.7)
    ),
    "forbidden pairs": random_kind(forbidding, lambda rng: forbidding(rng, 8)),
    "triples": random_kind(triples, lambda rng: triples(rng, 50, 50)),
}

FROM_FILES = {
    "UAI, sums": Kind(*2 * (partial(competition_model, "pr_mar"),), 18),
    "UAI, labelings": Kind(*2 * (partial(competition_model, "map"),), 10),
    "letters": fitted_kind(letters),
    "horses": fitted_kind(horses),
    "snakes": fitted_kind(snakes),
    "superpixels": fitted_kind(scenes),
}


def all_kinds():
    """Return all kinds by name, or only random kinds without the data folder."""
    return RANDOM | (FROM_FILES if "SKLEARN_CRF_DATA" in os.environ else {})
