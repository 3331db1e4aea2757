"""Which weights of a trajectory are kept (Kumar et al. 2005, sections 5 and 7.2)."""

import numpy as np

# A vote of more costs more at every prediction than it gains.
_MOST_VOTERS = 9


class Selection:
    """Choice among the weights that an iteration without a limit has visited.

    Parameters
    ----------
    rule : {"best", "last", "averaged", "voted"}
        Fewest training errors (of ties the last), the last, the mean, or the ``9`` with the fewest errors among
        those visited, which vote at prediction.
    """

    def __init__(self, rule):
        self.rule = rule
        self._n_visited = 0
        self._mean = None
        self._kept = []  # (errors, -visit, coef), best first

    def visit(self, coef, n_errors):
        """Consider an iterate, an array that stays as it is.

        ``n_errors`` is None for rules that count none, which keep the last instead.
        """
        self._n_visited += 1
        if self.rule == "averaged":
            mean = np.zeros_like(coef) if self._mean is None else self._mean
            self._mean = mean + (coef - mean) / self._n_visited
            return
        if self.rule == "last" or n_errors is None:
            n_errors = 0.0
        self._kept.append((n_errors, -self._n_visited, coef))
        self._kept.sort(key=lambda entry: entry[:2])
        del self._kept[_MOST_VOTERS if self.rule == "voted" else 1 :]

    def chosen(self):
        """The weights kept, and the voters (None unless several vote).

        Returns
        -------
        coef : ndarray of shape (n_coef,)
            The mean of the voters, where several vote.
        voters : ndarray of shape (n_voters, n_coef) or None
        """
        if self.rule == "averaged":
            return self._mean, None
        kept = [coef for _, _, coef in self._kept]
        if self.rule == "voted":
            return np.mean(kept, axis=0), np.array(kept)
        return kept[0], None
