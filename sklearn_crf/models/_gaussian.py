"""Gaussian fields, whose score is quadratic, with a matrix block for each type of edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from sklearn_crf._numbers import as_reals, as_scores
from sklearn_crf._own_methods import ChecksPickles
from sklearn_crf._threads import cached_property
from sklearn_crf.graphs import Graph, check_graph
from sklearn_crf.kernels.gaussian.gaussian import graph_product, stencil_product
from sklearn_crf.models._pairwise import check_edge_type, compute_score_terms

# Tolerance for asymmetry, relative to the largest entry.
_SYMMETRY = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-10}


@dataclass(frozen=True, eq=False)
class GaussianModel(ChecksPickles):
    r"""Gaussian field of N nodes with D values each, in canonical form.

    .. math::
        \mathrm{score}(y) = -\tfrac12 y^\top J y + h^\top y, \qquad
        (J y)_s = A_s y_s + \sum_{e = (s, t)} B_{t_e} y_t + \sum_{e = (t, s)} B_{t_e}^\top y_t

    The distribution is :math:`p(y) = \exp(\mathrm{score}(y)) / Z`, with mean :math:`J^{-1} h` and covariance
    :math:`J^{-1}`, if the precision J is positive definite. Inference checks this condition.

    Parameters
    ----------
    graph : Graph
        Topology, N nodes and E edges. The block of an edge depends on the edge's direction.
    h : array-like of shape (N, D) or (N,)
        Linear coefficients, float32 or float64 (other types are converted to float64). Shape (N,) implies D = 1.
    diagonal : array-like of shape (N, D, D), (D, D) or, for D = 1, (N,)
        Symmetric diagonal blocks A of the precision, stored in the dtype of ``h``. With shape (D, D), all nodes share
        one block.
    blocks : array-like of shape (T, D, D) or, for D = 1, (T,)
        Blocks B of the T edge types.
    edge_type : array-like of shape (E,), optional
        Type of each edge. None means type 0 for all edges, and ``arange(E)`` means a separate block for each edge.
    precision_operator : LinearOperator of shape (N * D, N * D), optional
        Symmetric and positive semidefinite operator that is added to J, such as :math:`K^\top K` for observations
        :math:`K y`. If the operator has an attribute ``diagonal``, an array of N * D numbers, conjugate gradients use
        this array as preconditioner. Other algorithms do not support a model with an operator.

    Raises
    ------
    ValueError
        If shapes or types are inconsistent, a value is not finite or in magnitude above 1e100 (float32: 1e18), or a
        diagonal block is not symmetric.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Eq. (207) and (213) to (217).

    Examples
    --------
    >>> from sklearn_crf.models import GaussianModel
    >>> from sklearn_crf.graphs import lattice
    >>> model = GaussianModel(
    ...     lattice((3,)), h=[1.0, 0.0, 0.0], diagonal=[[2.0]], blocks=[-1.0]
    ... )
    >>> model.product([[1.0], [1.0], [1.0]]).ravel().tolist()
    [1.0, 0.0, 1.0]
    """

    graph: Graph
    h: np.ndarray
    diagonal: np.ndarray
    blocks: np.ndarray
    edge_type: np.ndarray | None = None
    precision_operator: LinearOperator | None = None

    def __post_init__(self):
        check_graph(self.graph)
        n_nodes, n_edges = self.graph.n_nodes, self.graph.n_edges
        h = as_scores(self.h, "h", may_forbid=False)
        h = h[:, None] if h.ndim == 1 else h
        if h.ndim != 2 or len(h) != n_nodes or h.shape[1] < 1:
            raise ValueError(f"h must have shape ({n_nodes}, n_values), got {np.shape(self.h)}.")
        diagonal = _check_diagonal(self.diagonal, n_nodes, h)
        blocks = _check_blocks(self.blocks, h)
        object.__setattr__(self, "h", np.ascontiguousarray(h))
        object.__setattr__(self, "diagonal", diagonal)
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "edge_type", check_edge_type(self.edge_type, n_edges, len(blocks), "blocks"))
        if self.precision_operator is not None and self.precision_operator.shape != (h.size, h.size):
            raise ValueError(
                f"precision_operator must have shape ({h.size}, {h.size}), got {self.precision_operator.shape}."
            )

    @property
    def n_values(self) -> int:
        """Number of values of a node, D."""
        return self.h.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Precision of the coefficients, float32 or float64."""
        return self.h.dtype

    @cached_property
    def operator(self) -> Any:
        """Callable that multiplies a part of J (without ``precision_operator``) by a vector.

        The call ``operator(vector, start, stop, out)`` computes the product for the nodes or rows from start to stop,
        and writes it to ``out``. ``operator.n_items`` is the number of nodes or rows.
        """
        # On lattices with up to three axes, a kernel computes products row by row.
        shape = self.graph.shape
        is_stencil = self.graph.offsets is not None and shape is not None and len(shape) <= 3
        return _StencilProduct(self) if is_stencil else _GraphProduct(self)

    def product(self, vector: ArrayLike) -> np.ndarray:
        """Return J times a vector.

        Parameters
        ----------
        vector : array-like of shape (N, D)

        Returns
        -------
        ndarray of shape (N, D)
        """
        vector = np.ascontiguousarray(as_reals(vector, "vector", self.dtype))
        if vector.shape != self.h.shape:
            raise ValueError(f"vector must have shape {self.h.shape}, got {vector.shape}.")
        out = np.empty_like(vector)
        self.operator(vector, 0, self.operator.n_items, out)
        if self.precision_operator is not None:
            out += self.precision_operator.matvec(vector.ravel()).reshape(vector.shape)
        return out

    def precision_matrix(self) -> sp.csc_matrix:
        """Return J as a sparse matrix, in which node s has the rows s * D to (s + 1) * D.

        Returns
        -------
        scipy.sparse.csc_matrix of shape (N * D, N * D)

        Raises
        ------
        ValueError
            If the model has a ``precision_operator``.
        """
        if self.precision_operator is not None:
            raise ValueError("precision_matrix does not support a model with precision_operator: use product.")
        n_nodes, n_values = self.h.shape
        tails, heads = self.graph.edges.T
        nodes = np.arange(n_nodes)
        values = self.blocks[self.edge_type] if len(tails) else np.zeros((0, n_values, n_values), self.dtype)
        values = np.concatenate([self.diagonal, values, values.transpose(0, 2, 1)])
        rows = np.concatenate([nodes, tails, heads])[:, None, None] * n_values + np.arange(n_values)[:, None]
        columns = np.concatenate([nodes, heads, tails])[:, None, None] * n_values + np.arange(n_values)
        rows, columns = (np.broadcast_to(index, values.shape).ravel() for index in (rows, columns))
        size = n_nodes * n_values
        return sp.csc_matrix((values.ravel().astype(np.float64), (rows, columns)), shape=(size, size))


class _StencilProduct:
    """Matrix product computed by rows of a lattice with up to three axes.

    Shapes with fewer axes are padded with leading ones.
    """

    def __init__(self, model):
        graph = model.graph
        n_added = 3 - len(graph.shape)
        self.shape = (1,) * n_added + tuple(graph.shape)
        self.offsets = np.zeros((len(graph.offsets), 3), dtype=np.int64)
        self.offsets[:, n_added:] = graph.offsets
        self.n_items = self.shape[0] * self.shape[1]
        # If blocks are single numbers, store one number per edge, so that products of rows can be vectorised.
        # The numbers need no more memory than the edge types.
        is_scalar = model.n_values == 1 and graph.n_edges > 0
        self.edge_weight = model.blocks[model.edge_type, 0, 0] if is_scalar else np.empty(0, model.dtype)
        # Do not store the model, which refers to this object: the reference cycle would delay freeing memory.
        self.diagonal, self.edge_type, self.blocks = model.diagonal, model.edge_type, model.blocks

    @property
    def lattice(self):
        """Arguments that describe the matrix to kernels."""
        return self.diagonal, self.edge_weight, self.edge_type, self.blocks, self.offsets, *self.shape

    def __call__(self, vector, start, stop, out):
        stencil_product(*self.lattice, vector, start, stop, out)


class _GraphProduct:
    """Matrix product computed node by node on any graph."""

    def __init__(self, model):
        self.diagonal, self.edge_type, self.blocks = model.diagonal, model.edge_type, model.blocks
        self.incidence = model.graph.incidence
        self.n_items = model.graph.n_nodes

    def __call__(self, vector, start, stop, out):
        halves = self.incidence[:3]
        graph_product(self.diagonal, self.edge_type, self.blocks, *halves, vector, start, stop, out)


@compute_score_terms.register
def _(model: GaussianModel, values):
    values = as_reals(values, "values", np.float64)
    values = values[:, None] if values.ndim == 1 and model.n_values == 1 else values
    if values.shape != model.h.shape:
        raise ValueError(f"values must have shape {model.h.shape}, got {values.shape}.")
    return np.sum(values * (model.h - 0.5 * model.product(values)), axis=1, dtype=np.float64)


def _check_diagonal(diagonal, n_nodes, h):
    n_values = h.shape[1]
    found = np.shape(diagonal)
    diagonal = as_scores(diagonal, "diagonal", h.dtype, may_forbid=False)
    if diagonal.shape == (n_values, n_values):
        diagonal = np.broadcast_to(diagonal, (n_nodes, n_values, n_values))
    if diagonal.ndim == 1 and n_values == 1:
        diagonal = diagonal[:, None, None]
    if diagonal.shape != (n_nodes, n_values, n_values):
        raise ValueError(f"diagonal must have shape ({n_nodes}, {n_values}, {n_values}), got {found}.")
    skew = np.abs(diagonal - diagonal.transpose(0, 2, 1)).max(axis=(1, 2), initial=0.0) if n_values > 1 else None
    if skew is not None and np.any(skew > _SYMMETRY[diagonal.dtype] * np.abs(diagonal).max(initial=0.0)):
        raise ValueError(f"diagonal[{int(np.argmax(skew))}] is not symmetric.")
    return np.ascontiguousarray(diagonal)


def _check_blocks(blocks, h):
    n_values = h.shape[1]
    found = np.shape(blocks)
    blocks = as_scores(blocks, "blocks", h.dtype, may_forbid=False)
    if blocks.size == 0:
        blocks = blocks.reshape(0, n_values, n_values)
    if blocks.ndim == 1 and n_values == 1:
        blocks = blocks[:, None, None]
    if blocks.ndim != 3 or blocks.shape[1:] != (n_values, n_values):
        raise ValueError(f"blocks must have shape (n_types, {n_values}, {n_values}), got {found}.")
    return np.ascontiguousarray(blocks)
