"""A model as factors that are to agree on their nodes, and the labels that are read off marginals of these."""

from itertools import pairwise

import numpy as np

from sklearn_crf.inference._best_labels import BestLabels
from sklearn_crf.inference._local_polytope import LocalPolytope
from sklearn_crf.inference._pieces import pieces_of_pairwise, pieces_of_polytope
from sklearn_crf.inference._relaxed_problem import consistent, in_double_precision, least_score, spread_of_scores
from sklearn_crf.models import score


class EdgesProblem:
    """Edges as factors, labels by local search in compiled code."""

    constant = 0.0

    def __init__(self, model, climb):
        self.model = consistent(in_double_precision(model))
        self.pieces = pieces_of_pairwise(self.model)
        self.spread, self.least = spread_of_scores(self.model), least_score(self.model)
        self.best = BestLabels(self.model, climb)
        self.seen = None

    @property
    def score(self):
        return self.best.score

    def offer(self, fractional):
        labels = fractional.argmax(axis=1).astype(np.int32)
        if not np.array_equal(labels, self.seen):
            self.seen = labels
            self.best.offer(labels)

    def offer_labels(self, labels):
        self.best.offer(labels)

    def finished(self, messages, marginals):
        self.best.repair()
        return self.best.labels

    def fractional(self, marginals):
        return marginals


class FactorsProblem:
    """Factors between the free nodes of a factor graph."""

    def __init__(self, model, climb):
        self.model, self.climb = model, climb
        self.polytope = LocalPolytope(model)
        self.constant = self.polytope.constant
        self.pieces = pieces_of_polytope(self.polytope)
        scores = np.concatenate((self.pieces.unary[np.isfinite(self.pieces.unary)], self.pieces.score))
        self.spread = float(np.std(scores)) if len(scores) and np.ptp(scores) > 0 else 1.0
        self.least = self.constant + sum(part.min() for part in self._parts())
        self.free = np.array(self.polytope.free_nodes, dtype=np.int64)
        self.labels = self.seen = None
        self.score = -np.inf

    def _parts(self):
        yield from self.polytope.unary.values()
        ptr = self.pieces.cell_ptr
        yield from (self.pieces.score[a:b] for a, b in pairwise(ptr))

    def offer(self, fractional):
        places = np.zeros(self.model.n_nodes, dtype=np.int64)
        places[self.free] = fractional.argmax(axis=1)
        if not np.array_equal(places, self.seen):
            self.seen = places
            self.offer_labels(self.polytope.labels(places))

    def offer_labels(self, labels):
        found = score(self.model, labels)
        if self.labels is None or found > self.score:
            self.labels, self.score = labels, found

    def finished(self, messages, marginals):
        if self.climb:
            self._climb(messages, marginals)
        return self.labels

    def _climb(self, messages, marginals):
        """Labels that follow from the messages, and the best so far, each changed one node at a time."""
        polytope, ptr = self.polytope, self.pieces.scope_ptr
        by_piece = [
            [row[: len(polytope.unary[node])] for node, row in zip(piece.nodes, messages[a:b], strict=True)]
            for piece, a, b in zip(polytope.pieces, ptr[:-1], ptr[1:], strict=True)
        ]
        confidence = np.ones(self.model.n_nodes)
        confidence[self.free] = marginals.max(axis=1)
        for labels in (self.labels, polytope.rounded(by_piece, confidence)):
            self.offer_labels(polytope.improved(labels))

    def fractional(self, marginals):
        found = np.zeros((self.model.n_nodes, self.model.n_columns))
        for node, known in enumerate(self.polytope.problem.states):
            found[node, known] = 1.0
        for node, row in zip(self.polytope.free_nodes, marginals, strict=True):
            known = self.polytope.problem.states[node]
            found[node, known] = row[: len(known)]
        return found


def one_hot(labels, n_columns):
    """Rows of zeros with a one at the label, float64."""
    return (np.arange(n_columns) == labels[:, None]).astype(np.float64)
