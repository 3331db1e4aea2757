"""Small objects of every class that users pickle: graphs, models and examples."""

import numpy as np
import scipy.sparse as sp

from sklearn_crf import Example, Graph
from sklearn_crf.graphs import build_disjoint_union, covering_trees, lattice
from sklearn_crf.models import (
    DenseModel,
    FactorGraph,
    GaussianModel,
    PairwiseModel,
    PermutohedralFilter,
    SparseTable,
    exactly_one,
    factor_graph_of,
)

RNG = np.random.default_rng(0)
TRIANGLE = Graph(4, [[0, 1], [1, 2], [2, 0]])
GRID = lattice((2, 3), connectivity=2)
PAIRWISE = PairwiseModel(
    GRID,
    RNG.normal(size=(6, 3)),
    RNG.normal(size=(4, 2, 3, 3)),
    GRID.lattice_edge_type,
    np.ones((11, 2)),
    [3, 2, 3] * 2,
)
FACTORS = FactorGraph.from_factors(
    [2, 2, 3],
    [((0,), [0.0, 1.0]), ((0, 1, 2), exactly_one()), ((0, 2), SparseTable([[0, 1], [1, 2]], [1.0, 2.0], 0.0))],
)
OBJECTS = {
    "graph": TRIANGLE,
    "lattice": GRID,
    "node": lattice(()),
    "union": build_disjoint_union([TRIANGLE, lattice((3,))]),
    "trees": covering_trees(TRIANGLE),
    "pairwise": PAIRWISE,
    "float32": PairwiseModel(TRIANGLE, np.zeros((4, 2), np.float32), np.zeros((1, 2, 2))),
    "factors": FACTORS,
    "converted": factor_graph_of(PAIRWISE),
    "Gaussian": GaussianModel(GRID, RNG.normal(size=6), np.full(6, 9.0), RNG.normal(size=4), GRID.lattice_edge_type),
    "dense": DenseModel(RNG.normal(size=(5, 2)), [PermutohedralFilter(RNG.normal(size=(5, 2)))], [1.0]),
    "filter": PermutohedralFilter(RNG.normal(size=(7, 3)), normalization=None, blur="symmetric"),
    "example": Example(
        RNG.normal(size=(4, 2)),
        TRIANGLE,
        np.ones((3, 1)),
        [0, 0, 1, 1],
        [0, 1, 1],
        [2, 2, 1, 2],
        {"triple": [[0, 1, 2]]},
        [((0, 3), exactly_one())],
    ),
    "sparse": Example(sp.csr_array(np.eye(3)), [[0, 1]]),
}
