"""The best labeling that an algorithm for the linear relaxation has come across."""

import numpy as np

from sklearn_crf.inference._local_search import Climber, best_alone
from sklearn_crf.models import check_labels, score


class BestLabels:
    """Candidates are offered; the one of the highest score is kept."""

    # labels: (N,) int32

    def __init__(self, model, climb, init=None):
        self.model, self.climb = model, climb
        self.climber = Climber(model) if climb else None
        self.labels = best_alone(model) if init is None else check_labels(model, init, name="init")
        self.score = score(model, self.labels)

    def offer(self, labels: np.ndarray) -> None:
        """Look at a candidate, which is not changed."""
        if self.climber is not None:
            labels = self.climber.climb(labels.copy())
        found = score(self.model, labels)
        if found > self.score:
            self.labels, self.score = labels.copy(), found


class RecentStates:
    """Moving average of the states that the parts of a decomposition have for the nodes.

    Averages of the solutions of the parts approach a solution of the linear relaxation, which single ones never do, so
    the states that are most frequent in them make good candidates.
    """

    # labels: (N,), to begin with

    # The last ten iterations or so: older ones belong to other dual variables.
    RATE = 0.1

    def __init__(self, labels: np.ndarray, n_columns: int) -> None:
        self.average = (np.arange(n_columns) == labels[:, None]).astype(np.float64)

    def add(self, nodes: np.ndarray, states: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Move towards the states of this iteration, and return the labels that are then most frequent."""
        # weights: (n,), for each node one in sum; returns (N,) int32
        # nodes, states: (n,), a node may come several times
        n_columns = self.average.shape[1]
        fresh = np.bincount(nodes * n_columns + states, weights, self.average.size).reshape(self.average.shape)
        self.average += self.RATE * (fresh - self.average)
        return self.average.argmax(axis=1).astype(np.int32)
