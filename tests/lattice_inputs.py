"""Input of every kind that the lattice rule knows, for the tests."""

import numpy as np
import scipy.sparse as sp

from sklearn_crf import Example

RNG = np.random.default_rng(0)


def objects(parts):
    array = np.empty(len(parts), dtype=object)
    array[:] = parts
    return array


def chains(lengths=(4, 1, 6), n_features=3):
    return [RNG.normal(size=(length, n_features)) for length in lengths]


def images(shapes=((3, 4), (2, 2), (1, 5)), n_features=2):
    return [RNG.normal(size=(*shape, n_features)) for shape in shapes]


def triangle_and_more(n_features=2):
    return [
        Example(RNG.normal(size=(3, n_features)), [[0, 1], [1, 2], [2, 0]]),
        Example(RNG.normal(size=(4, n_features)), [[0, 1], [1, 2]]),
        Example(RNG.normal(size=(2, n_features)), []),
        Example(RNG.normal(size=(2, n_features)), [[1, 0]]),
    ]


ROWS_OF_THE_TABLE = {
    "rows": (RNG.normal(size=(9, 3)), "nodes", 0, 9),
    "sparse rows": (sp.random(9, 3, 0.5, format="coo", random_state=0), "nodes", 0, 9),
    "nested lists": ([[1, 2], [3, 4]], "nodes", 0, 2),
    "chains": (RNG.normal(size=(2, 5, 3)), "array", 1, 10),
    "nested chains": ([[[1.0], [2]], [[3], [4]]], "array", 1, 4),
    "images": (RNG.normal(size=(2, 3, 4, 3)), "array", 2, 24),
    "volumes": (RNG.normal(size=(2, 2, 3, 2, 1)), "array", 3, 24),
    "list of chains": (chains(), "list", 1, 11),
    "tuple of chains": (tuple(chains()), "list", 1, 11),
    "object array of chains": (objects(chains()), "list", 1, 11),
    "equal chains in a list": (chains((3, 3)), "list", 1, 6),
    "sparse chains": ([sp.csr_matrix(x) for x in chains()], "list", 1, 11),
    "ragged nested chains": ([[[1.0], [2]], [[3]]], "list", 1, 3),
    "list of images": (images(), "list", 2, 21),
    "list of volumes": ([np.zeros((2, 2, 2, 1)), np.zeros((1, 2, 3, 1))], "list", 3, 14),
    "examples": (triangle_and_more(), "list", None, 11),
    "object array of examples": (objects(triangle_and_more()), "list", None, 11),
}


def as_dense(x):
    return x.toarray() if sp.issparse(x) else np.asarray(x)
