"""Fusion of several labelings into one that takes the best parts of each."""

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._local_search import Descent
from sklearn_crf.inference.cuts import _tuning
from sklearn_crf.inference.cuts._cut_network import CROSS, CutNetwork, gather_pairwise_values
from sklearn_crf.kernels.cuts.fusion_moves import score_gain
from sklearn_crf.kernels.local.local import keep_better
from sklearn_crf.models import FactorGraph, PairwiseModel, check_labels


def fuse_labelings(model: PairwiseModel | FactorGraph, labelings: list[np.ndarray]) -> np.ndarray:
    r"""Combine several labelings into one that scores at least as high as each of them.

    A fusion move combines two labelings y and z into the labeling of

    .. math::
        \max_{x \in \{0, 1\}^N} \mathrm{score}\big(y_s (1 - x_s) + z_s x_s\big)

    as far as roof duality determines :math:`x_s`. The remaining nodes keep y, and the score never decreases
    (Lempitsky et al. 2010). On a factor graph :math:`x_s` is decided jointly for each connected part of the nodes where
    y and z differ. The parts have no factor in common, so each part is accepted separately if it increases the score
    (Tinos et al. 2015). The first labeling is fused with the others one by one, until none of them improves it.

    Parameters
    ----------
    model : PairwiseModel or FactorGraph
        Model with any tables and any number of states.
    labelings : list of array-like of shape (N,) of int

    Returns
    -------
    ndarray of shape (N,), int32

    References
    ----------
    V. Lempitsky, C. Rother, S. Roth, A. Blake. Fusion moves for Markov random field optimization. TPAMI 32, 2010. R.
    Tinos, D. Whitley, F. Chicano. Partition crossover for pseudo-Boolean optimization. FOGA 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import fuse_labelings
    >>> from sklearn_crf.models import PairwiseModel
    >>> unary = np.array(
    ...     [[2.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 2.0]]
    ... )
    >>> model = PairwiseModel(lattice((4,)), unary, [0.5 * np.eye(3)])
    >>> fuse_labelings(model, [[0, 0, 1, 1], [2, 1, 2, 2]])
    array([0, 0, 2, 2], dtype=int32)
    """
    given = [np.array(check_labels(model, labels)) for labels in labelings]
    if not given:
        raise ValueError("labelings must hold at least one labeling.")
    fuse = choose_fusion(model)
    best = given[0]
    for _ in range(_tuning.FUSION_PASSES):
        before = best
        for other in given:
            best = fuse(best, other)
        if best is before:
            break
    return best


def choose_fusion(model):
    """Return a function that fuses labels with another labeling, or returns the labels if no fusion scores higher."""
    if isinstance(model, FactorGraph):
        search = Descent(model)
        arrays, unary = search.arrays, search.unary

        def fuse_parts(labels, other):
            fused = np.array(other, dtype=np.int32)
            gain, _, _ = keep_better(arrays, unary, labels, fused, arrays.cells(unary, fused), search.workspace)
            return fused if gain > 0 else labels

        return fuse_parts
    network = None

    def fuse(labels, other):
        nonlocal network
        if np.array_equal(labels, other):
            return labels
        network = network or CutNetwork(model, mirrored=True)
        checkpoint()
        taken = network.cut(labels, other, CROSS)[: model.graph.n_nodes]
        fused = np.where(taken, other, labels)
        values = (model.unary, *gather_pairwise_values(model), model.graph.edges)
        # Roof duality may leave all nodes undecided, so also consider the other labeling as a whole.
        for candidate in (fused, other):
            if score_gain(*values, labels, candidate) > 0:
                return candidate
        return labels

    return fuse
