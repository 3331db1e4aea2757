"""Fusion: the best of what several labelings have, node by node."""

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._local_search import Descent
from sklearn_crf.inference.cuts import _tuning
from sklearn_crf.inference.cuts._cut_network import CROSS, CutNetwork, pairwise_values
from sklearn_crf.kernels.cuts.fusion_moves import score_gain
from sklearn_crf.kernels.local.neighborhood_search import keep_better
from sklearn_crf.models import FactorGraph, PairwiseModel, check_labels


def fuse_labelings(model: PairwiseModel | FactorGraph, labelings: list[np.ndarray]) -> np.ndarray:
    r"""A labeling at least as good as each of several, put together from them.

    From two labelings y and z a fusion move makes

    .. math::
        \max_{x \in \{0, 1\}^N} \mathrm{score}\big(y_s (1 - x_s) + z_s x_s\big)

    as far as roof duality decides :math:`x_s`; where it does not, y stays, and the score never falls (Lempitsky et al.
    2010). On a factor graph :math:`x_s` is decided for each connected part of the nodes in which y and z differ: parts
    have no factor in common, so that each is taken if it gains (Tinos et al. 2015). The first labeling is fused with
    the others one after the other, until none of them has anything to add.

    Parameters
    ----------
    model : PairwiseModel or FactorGraph
        With any tables and any number of states.
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
    fusion = fusion_of(model)
    best = given[0]
    for _ in range(_tuning.FUSION_PASSES):
        before = best
        for other in given:
            best = fusion.of(best, other)
        if best is before:
            break
    return best


class Fusion:
    """Fusion moves on one model, all on the buffers of one network."""

    def __init__(self, model):
        self.model = model
        self._network = None

    def of(self, labels, other):
        """The labels with those of the other labeling where they gain; the labels themselves if they do nowhere."""
        model = self.model
        if np.array_equal(labels, other):
            return labels
        if self._network is None:
            self._network = CutNetwork(model, mirrored=True)
        checkpoint()
        taken = self._network.cut(labels, other, CROSS)[: model.graph.n_nodes]
        fused = np.where(taken, other, labels)
        values = (model.unary, *pairwise_values(model), model.graph.edges)
        # Whatever roof duality leaves open may be all of it: then the better of both.
        for candidate in (fused, other):
            if score_gain(*values, labels, candidate) > 0:
                return candidate
        return labels


class PartFusion:
    """Fusion on one factor graph, by the connected parts in which two labelings differ."""

    def __init__(self, model):
        self._search = Descent(model)

    def of(self, labels, other):
        """The labels with those of the other labeling where they gain; the labels themselves if they do nowhere."""
        fused = np.array(other, dtype=np.int32)
        arrays, unary = self._search.arrays, self._search.unary
        gain, _, _ = keep_better(arrays, unary, labels, fused, arrays.cells(unary, fused), self._search.workspace)
        return fused if gain > 0 else labels


def fusion_of(model):
    """The fusion of a type of model."""
    return PartFusion(model) if isinstance(model, FactorGraph) else Fusion(model)
