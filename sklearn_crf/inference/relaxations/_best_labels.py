"""Record of the best labeling that an algorithm for the linear relaxation has found."""

import numpy as np

from sklearn_crf.inference._local_search import choose_climber, label_nodes_independently
from sklearn_crf.models import check_labels, score


class BestLabels:
    """The best of the labelings that have been offered."""

    # labels: (N,) int32

    def __init__(self, model, climb, init=None):
        self.model, self.climb = model, climb
        self.climber = choose_climber(model) if climb else None
        self.labels = label_nodes_independently(model) if init is None else check_labels(model, init, name="init")
        self.score = score(model, self.labels)

    def offer(self, labels: np.ndarray) -> None:
        """Keep a candidate, which is not modified, if it is better than the best labels so far."""
        if self.climber is not None:
            labels = self.climber.climb(labels.copy())
        found = score(self.model, labels)
        if found > self.score:
            self.labels, self.score = labels.copy(), found


class RecentStates:
    """Moving average of the states that the parts of a decomposition choose for the nodes.

    Averages of the solutions of the parts approach a solution of the linear relaxation, whereas single solutions do
    not. The most frequent states are therefore good candidates.
    """

    # labels: (N,), the initial labels

    # The average covers about the last ten iterations, because older states belong to outdated dual variables.
    RATE = 0.1

    def __init__(self, labels: np.ndarray, n_columns: int) -> None:
        self.average = (np.arange(n_columns) == labels[:, None]).astype(np.float64)

    def add(self, nodes: np.ndarray, states: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Update the average with the states of this iteration, and return the most frequent labels."""
        # weights: (n,), which sum to one for each node; returns: (N,) int32
        # nodes, states: (n,), in which a node may appear several times
        n_columns = self.average.shape[1]
        fresh = np.bincount(nodes * n_columns + states, weights, self.average.size).reshape(self.average.shape)
        self.average += self.RATE * (fresh - self.average)
        return self.average.argmax(axis=1).astype(np.int32)
