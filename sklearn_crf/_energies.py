"""Inference for given scores or costs, without features, learning or an estimator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf._numbers import as_array, as_reals, check_switch
from sklearn_crf._threads import count_threads, limit_blas_threads
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import AutoMarginals, Inference, Labeling, Marginals, choose_able_inference
from sklearn_crf.inference.automatic._names import choose_map_inference
from sklearn_crf.models import PairwiseModel


def solve(
    unary: ArrayLike,
    pairwise: float | ArrayLike,
    *,
    edges: Graph | ArrayLike | None = None,
    edge_weight: ArrayLike | Sequence[ArrayLike] | None = None,
    connectivity: int | ArrayLike = 1,
    costs: bool = False,
    label_costs: float | ArrayLike | None = None,
    inference: str | Inference = "auto",
    n_jobs: int | None = None,
) -> Labeling:
    r"""Return the labeling with the highest score, or with the lowest cost, for given scores or costs.

    .. math::
        \max_y \; \sum_s u_{s, y_s} + \sum_{e = (i, j)} w_e \, \theta(y_i, y_j)

    Parameters
    ----------
    unary : array-like of shape (\*lattice, K), or (N, K) with ``edges``
        Score of each of K states at each cell of a lattice: ``(T, K)`` is a chain, ``(H, W, K)`` an image,
        ``(D, H, W, K)`` a volume. Types other than float32 and float64 are converted to float64. -inf forbids a state.
    pairwise : float or array-like
        A number is the strength of a Potts term: each pair of neighbours with unequal labels lowers the score, or
        raises the cost, by this number. A table (K, K) contains the score, or the cost, of each pair of states. An
        array (T, K, K) contains one table for each offset of a lattice, or for each edge of ``edges``.
    edges : Graph, array-like of shape (E, 2), sparse adjacency matrix or networkx graph, optional
        Edges in any form that :class:`~sklearn_crf.Graph` accepts. None connects neighbours on the lattice.
    edge_weight : array-like, or sequence of array-like, optional
        Factor by which each edge's pairwise term is multiplied, such as a contrast. With ``edges``, the shape is (E,).
        On a lattice, there is one array for each offset: along the last axis first, diagonals last. For an image
        ``(H, W)`` with ``connectivity=1``, these are an array (H, W - 1) for neighbours in a row, then an array
        (H - 1, W) for neighbours in a column. The arrays may be flattened and concatenated to a single array of shape
        (E,).
    connectivity : int or array-like of shape (n_offsets, ndim), default=1
        Neighbours on the lattice: in 2-D, 1 means 4 neighbours and 2 means 8. Not used with ``edges``.
    costs : bool, default=False
        Whether ``unary`` and the tables of ``pairwise`` are costs, which are minimised. A cost of +inf then forbids a
        state or a pair. The score of the result is the negative cost.
    label_costs : float or array-like of shape (K,), optional
        Cost of each label that occurs in the labeling, or one cost for all labels. Label costs are finite and not
        negative. They lower the score whether or not ``costs`` is set. Labels are found by
        :class:`~sklearn_crf.inference.AlphaExpansion`.
    inference : str or Inference, default="auto"
        Name of an inference, such as "alpha_expansion", "trws" or "icm", or an inference object with options.
        "auto" is :class:`~sklearn_crf.inference.AutoMap`, or AlphaExpansion if there are label costs.
    n_jobs : int, optional
        Number of threads; the result does not depend on it.

    Returns
    -------
    Labeling
        Labeling whose ``labels`` have the shape of ``unary[..., 0]``.

    Raises
    ------
    ValueError
        If shapes do not match, a number is NaN or infinite where this is not allowed, or the inference does not find
        labelings or does not support the tables or label costs.

    See Also
    --------
    marginals : Probabilities of states from the same arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import solve
    >>> image = np.array([[0.1, 0.2, 0.9], [0.7, 0.1, 0.8], [0.0, 0.3, 1.0]])
    >>> costs = np.stack([image**2, (1 - image) ** 2], axis=-1)
    >>> found = solve(costs, 0.4, costs=True)
    >>> found.labels
    array([[0, 0, 1],
           [0, 0, 1],
           [0, 0, 1]], dtype=int32)
    >>> found.certified
    True
    """
    model, shape = _as_model(unary, pairwise, edges, edge_weight, connectivity, costs)
    chosen = choose_map_inference(inference, label_costs, model.n_columns)
    with limit_blas_threads():
        found = chosen.map(model, n_threads=count_threads(n_jobs))
    fractional = None if found.fractional is None else found.fractional.reshape(*shape, -1)
    return found._replace(labels=found.labels.reshape(shape), fractional=fractional)


def marginals(
    unary: ArrayLike,
    pairwise: float | ArrayLike,
    *,
    edges: Graph | ArrayLike | None = None,
    edge_weight: ArrayLike | Sequence[ArrayLike] | None = None,
    connectivity: int | ArrayLike = 1,
    costs: bool = False,
    inference: str | Inference = "auto",
    n_jobs: int | None = None,
) -> Marginals:
    r"""Return the probability of each state of each node, for given scores or costs.

    .. math::
        p(y) \propto \exp\Bigl(\sum_s u_{s, y_s} + \sum_{e = (i, j)} w_e \, \theta(y_i, y_j)\Bigr)

    Parameters
    ----------
    unary, pairwise, edges, edge_weight, connectivity, costs : object
        As in :func:`solve`. Class log-probabilities of a classifier are scores.
    inference : str or Inference, default="auto"
        Name of an inference that computes marginals, such as "bp", "trw", "mean_field" or "junction_tree", or an
        inference object with options. "auto" is :class:`~sklearn_crf.inference.AutoMarginals`.
    n_jobs : int, optional
        Number of threads; the result does not depend on it.

    Returns
    -------
    Marginals
        Marginals whose ``unary`` has the shape of the argument ``unary``.

    Raises
    ------
    ValueError
        If shapes do not match, a number is NaN or infinite where this is not allowed, or the inference does not compute
        marginals.

    See Also
    --------
    solve : The best labeling.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import marginals
    >>> scores = np.log([[0.9, 0.1], [0.5, 0.5], [0.8, 0.2]])
    >>> marginals(scores, 1.0).unary.round(2)
    array([[0.92, 0.08],
           [0.79, 0.21],
           [0.85, 0.15]])
    """
    chosen = choose_able_inference(inference, "marginals", "marginals()", AutoMarginals())
    model, shape = _as_model(unary, pairwise, edges, edge_weight, connectivity, costs)
    with limit_blas_threads():
        found = chosen.marginals(model, n_threads=count_threads(n_jobs))
    return found._replace(unary=found.unary.reshape(*shape, -1))


def _as_model(unary, pairwise, edges, edge_weight, connectivity, costs):
    """Build a pairwise model from the arguments; return the model and the shape of the labels."""
    check_switch(costs, "costs")
    unary = _as_numbers(unary, "unary", costs)
    if unary.ndim < 2 or not unary.size:
        raise ValueError(
            f"unary must have shape (*lattice, n_states), for example (H, W, n_states) for an image, got {unary.shape}."
        )
    shape, n_states = unary.shape[:-1], unary.shape[-1]
    if edges is None:
        graph = lattice(shape, connectivity)
    elif len(shape) > 1:
        raise ValueError(f"unary must have shape (n_nodes, n_states) if edges are given, got {unary.shape}.")
    else:
        graph = edges if isinstance(edges, Graph) else Graph(shape[0], edges)
    tables, edge_type = _as_tables(pairwise, graph, n_states, costs, on_lattice=edges is None)
    weight = None if edge_weight is None else _as_weights(edge_weight, graph, on_lattice=edges is None)
    return PairwiseModel(graph, unary.reshape(-1, n_states), tables, edge_type, weight), shape


def _as_numbers(values, name, costs):
    """Convert scores or costs to scores in float32 or float64."""
    values = as_reals(as_array(values, name), name)
    forbids, other = ("+inf", -np.inf) if costs else ("-inf", np.inf)
    if np.isnan(values).any() or (values == other).any():
        kind = "costs" if costs else "scores (costs=True reads costs)"
        raise ValueError(f"{name} must hold {kind} that are finite or {forbids}, found NaN or {other:+}.")
    return -values if costs else values


def _as_tables(pairwise, graph, n_states, costs, on_lattice):
    """Return tables (T, K, K), and the table index of each edge (None if all edges use the first table)."""
    if not isinstance(pairwise, list | tuple) and np.ndim(pairwise) == 0:
        strength = np.asarray(pairwise)
        if strength.dtype.kind not in "fiub" or not np.isfinite(strength):
            raise ValueError(f"pairwise must be a finite number or tables, got {pairwise!r}.")
        return -float(strength) * (1 - np.eye(n_states))[None], None
    tables = _as_numbers(pairwise, "pairwise", costs)
    if tables.shape == (n_states, n_states):
        return tables[None], None
    count, what = (len(graph.offsets), "offset") if on_lattice else (graph.n_edges, "edge")
    if tables.shape != (count, n_states, n_states):
        raise ValueError(
            f"pairwise must be a number, a table ({n_states}, {n_states}), or one table for each {what}, "
            f"({count}, {n_states}, {n_states}); got shape {tables.shape}."
        )
    return tables, graph.lattice_edge_type if on_lattice else np.arange(count)


def _as_weights(edge_weight, graph, on_lattice):
    """Read edge weights (E,), given as a single array or as one array for each offset of a lattice."""
    is_sequence = isinstance(edge_weight, list | tuple) or (isinstance(edge_weight, np.ndarray) and edge_weight.ndim)
    if not (on_lattice and is_sequence and len(edge_weight) and np.ndim(edge_weight[0])):
        weight = as_reals(edge_weight, "edge_weight")
        if not weight.ndim:
            raise ValueError(
                f"edge_weight must be an array with one weight per edge, got {edge_weight!r}. To scale all "
                "edges equally, multiply the argument 'pairwise' instead."
            )
        if weight.shape != (graph.n_edges,):
            raise ValueError(f"edge_weight must have shape ({graph.n_edges},), one for each edge, got {weight.shape}.")
        return weight
    wanted = [
        tuple(length - abs(int(step)) for length, step in zip(graph.shape, offset, strict=True))
        for offset in graph.offsets
    ]
    found = [np.shape(part) for part in edge_weight]
    if found != wanted:
        raise ValueError(
            f"edge_weight must hold one array for each lattice offset {graph.offsets.tolist()}, with shapes {wanted}, "
            f"got {found}."
        )
    return np.concatenate([np.ravel(part) for part in edge_weight])
