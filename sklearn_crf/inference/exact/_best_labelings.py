"""The m best labelings of a model without cycles."""

from typing import Any, ClassVar, NamedTuple

import numpy as np

from sklearn_crf._options import options
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._base import Inference, at_least, name_conflict
from sklearn_crf.inference._results import Infeasible, score_labeling
from sklearn_crf.inference.exact._brute_force import n_labelings


class BestLabelings(NamedTuple):
    """Labelings in descending order of their scores."""

    labels: np.ndarray  # (m, N), int32
    scores: np.ndarray  # (m,), float64


@options(kw_only=False)
class TreeBestLabelings(Inference):
    r"""Exact m best labelings of a forest, by max-product with lists of the m best scores in place of maxima.

    .. math:: L_s(a) = u_s(a) + \operatorname{top}_m \sum_{c} \operatorname{top}_m \{\theta_{sc}(a, b) + L_c(b)\}_b

    Every node stores, for each of its states, the scores of the m best labelings of its subtree and their origin. The
    time is O(N K^2 m). On a chain this is the list Viterbi algorithm.

    Parameters
    ----------
    m : int, default=5
        Number of labelings to find.

    References
    ----------
    N. Seshadri, C.-E. W. Sundberg. List Viterbi decoding algorithms with applications. IEEE Trans. Communications 42,
    1994.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeBestLabelings
    >>> from sklearn_crf.models import PairwiseModel
    >>> unary = np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]])
    >>> model = PairwiseModel(lattice((3,)), unary, [0.5 * np.eye(2)])
    >>> best = TreeBestLabelings(m=2).best(model)
    >>> best.labels.tolist(), best.scores.round(3).tolist()
    ([[1, 1, 1], [1, 0, 1]], [3.0, 2.2])
    """

    tasks = frozenset({"map"})
    _starts_from: ClassVar[tuple[type, ...]] = ()
    exact_on = "forest"
    _ranges: ClassVar[dict] = {"m": at_least(1)}
    m: int = 5

    def best(self, model: Any) -> BestLabelings:
        """Find the m best labelings.

        Parameters
        ----------
        model : PairwiseModel

        Returns
        -------
        BestLabelings

        Raises
        ------
        ValueError
            If the graph has a cycle or every labeling is forbidden.
        """
        self._require("map", model)
        if not model.graph.n_nodes:
            return BestLabelings(np.zeros((1, 0), dtype=np.int32), np.zeros(1))
        m = int(min(self.m, n_labelings(model.graph.n_nodes, model.n_columns)))
        lists, steps, roots = _collect(model, m)
        scores, places = _join_roots([lists[root] for root in roots], m)
        allowed = scores > -np.inf
        if not allowed.any():
            with name_conflict(model):
                raise Infeasible("model is infeasible: every labeling has a score of -inf.", proven=True)
        labels = np.array([_read_back(steps, roots, place, m, model.graph.n_nodes) for place in places[allowed]])
        return BestLabelings(labels.astype(np.int32), scores[allowed])

    def _check_model(self, model):
        super()._check_model(model)
        if not model.graph.is_forest:
            raise ValueError("TreeBestLabelings needs a graph without cycles.")

    def _map(self, model, *, init=None, n_threads=1):
        found = self.best(model)
        result = score_labeling(model, found.labels[0])
        return result._replace(bound=result.score)


def _collect(model, m):
    """Return the lists (K, m) of all nodes, the merges that produced them, and the roots."""
    graph = model.graph
    order, parent_slot, _ = graph.forest
    incidence = graph.incidence
    lists = np.full((graph.n_nodes, model.n_columns, m), -np.inf)
    lists[:, :, 0] = model.unary
    # For each merge of a child into its parent, store the child and two arrays of positions, (K, m).
    # The first array has positions in the list of the parent before the merge.
    # The second array has positions in the flat list (K * m) of the child.
    steps: list[list] = [[] for _ in range(graph.n_nodes)]
    roots = []
    for s in order[::-1]:
        checkpoint()
        slot = parent_slot[s]
        if slot < 0:
            roots.append(int(s))
            continue
        parent, half_edge = incidence.neighbor[slot], incidence.half_edge[slot]
        table = model.edge_tables(slice(half_edge >> 1, (half_edge >> 1) + 1))[0]
        # Side 0 means that the child is the first node of the edge, whose states are the rows of the table.
        table = table if half_edge & 1 else table.T
        reached, of_child = find_largest((table[:, :, None] + lists[s]).reshape(len(table), -1), m)
        joined, place = find_largest((lists[parent][:, :, None] + reached[:, None, :]).reshape(len(table), -1), m)
        lists[parent] = joined
        of_child = np.take_along_axis(of_child, place % m, axis=1)
        steps[parent].append((int(s), place // m, of_child))
    return lists, steps, roots


def find_largest(values: np.ndarray, m: int) -> tuple:
    """Return the m largest values of each row in descending order (-inf if there are fewer), and their positions."""
    if values.shape[1] < m:
        values = np.pad(values, ((0, 0), (0, m - values.shape[1])), constant_values=-np.inf)
    places = np.argsort(-values, axis=1, kind="stable")[:, :m]
    return np.take_along_axis(values, places, axis=1), places


def _join_roots(lists, m):
    """Return the scores of the best combinations of all trees, and their positions in the flat lists of the roots."""
    scores, places = np.zeros(1), np.zeros((1, 0), dtype=np.intp)
    for values in lists:
        flat, own = find_largest(values.reshape(1, -1), m)
        joined, place = find_largest((scores[:, None] + flat).reshape(1, -1), m)
        kept = joined[0] > -np.inf
        before, new = np.divmod(place[0][kept], m)
        scores, places = joined[0][kept], np.column_stack((places[before], own[0][new]))
    return scores, places


def _read_back(steps, roots, places, m, n_nodes):
    """Return the labels of all nodes, given positions in the flat lists of the roots."""
    labels = np.empty(n_nodes, dtype=np.int32)
    waiting = list(zip(roots, places.tolist(), strict=True))
    while waiting:
        node, place = waiting.pop()
        state, rank = divmod(place, m)
        labels[node] = state
        for child, of_parent, of_child in reversed(steps[node]):
            waiting.append((child, int(of_child[state, rank])))
            rank = int(of_parent[state, rank])
    return labels
