"""Extrapolation of sweeps over messages to the point that they converge to."""

from typing import Protocol

import numpy as np

from sklearn_crf._numbers import highest_of_rows
from sklearn_crf.inference._field import MAX_SCORE, SUM_PROBABILITY
from sklearn_crf.inference.messages import _tuning


def extrapolation_of(graph, field, values, as_odds):
    """Extrapolation of sweeps, or None where it gains little or there may be no single point ahead."""
    # values: as sweeps write them, log-odds where as_odds, else probabilities or scores
    n_messages, n_columns = len(field.neighbor), field.tables.shape[3]
    size = n_messages if as_odds else n_messages * n_columns
    if graph.n_nodes < _tuning.FEWEST_NODES or graph.n_components > 1 or graph.is_forest or field.semiring == MAX_SCORE:
        return None
    if (2 * _tuning.SWEEPS_COMBINED + 2) * size * values.dtype.itemsize > _tuning.MOST_BYTES:
        return None
    if as_odds:
        return Extrapolation(LogOdds(values[:n_messages]))
    form = LogProbabilities if field.semiring == SUM_PROBABILITY else Scores
    return Extrapolation(form(values[:, :n_columns]))


class _Form(Protocol):
    """Messages as a vector of numbers on which sweeps are nearly linear."""

    values: np.ndarray

    def read(self, out):
        """Write the messages into a vector."""

    def write(self, vector):
        """Take the messages from a vector, which becomes what ``read`` gives then."""


class LogOdds:
    """Log-odds of the second of two states."""

    def __init__(self, values):
        self.values = values  # (2E,)

    def read(self, out):
        out[:] = self.values

    def write(self, vector):
        self.values[:] = vector


class LogProbabilities:
    """Logarithms of probabilities."""

    def __init__(self, values):
        self.values = values  # (2E, K), a part of wider rows

    def read(self, out):
        with np.errstate(divide="ignore"):
            np.log(self.values, out=out.reshape(self.values.shape))

    def write(self, vector):
        scores = vector.reshape(self.values.shape)
        scores -= highest_of_rows(scores)
        np.exp(scores, out=self.values)
        total = self.values.sum(axis=1, keepdims=True)
        self.values /= total
        scores -= np.log(total)


class Scores:
    """Scores less the best of each message."""

    def __init__(self, values):
        self.values = values  # (2E, K), a part of wider rows

    def read(self, out):
        np.subtract(self.values, highest_of_rows(self.values), out=out.reshape(self.values.shape))

    def write(self, vector):
        scores = vector.reshape(self.values.shape)
        scores -= highest_of_rows(scores)
        self.values[:] = scores


class Extrapolation:
    r"""Combinations of the latest sweeps (Anderson 1965).

    With messages :math:`g_i` after some sweeps and their changes :math:`f_i` by these, messages become

    .. math::
        \sum_i a_i g_i, \qquad a = \arg\min_{\sum_i a_i = 1} \Bigl\| \sum_i a_i f_i \Bigr\|^2,

    which a sweep would change least if it were linear. Where sweeps change nothing, neither do combinations.
    """

    # D. G. Anderson. Iterative procedures for nonlinear integral equations. Journal of the ACM 12, 1965.
    # H. F. Walker, P. Ni. Anderson acceleration for fixed-point iterations. SIAM J. Numerical Analysis 49, 2011.

    def __init__(self, form: _Form) -> None:
        shape = _tuning.SWEEPS_COMBINED, form.values.size
        self._form = form
        self._after, self._changes = np.empty(shape, form.values.dtype), np.empty(shape, form.values.dtype)
        self._before, self._spare = np.empty(shape[1], form.values.dtype), np.empty(shape[1], form.values.dtype)
        self._products = np.zeros((_tuning.SWEEPS_COMBINED, _tuning.SWEEPS_COMBINED))
        self._n_sweeps = self._n_kept = 0
        self._least = np.inf
        self._goes_on = True
        form.read(self._before)

    def advance(self) -> None:
        """Look at the messages after a sweep, and change them every few sweeps."""
        if not self._goes_on:
            return
        own = self._n_sweeps % _tuning.SWEEPS_COMBINED
        self._form.read(self._after[own])
        np.subtract(self._after[own], self._before, out=self._changes[own])
        self._n_sweeps += 1
        self._n_kept = min(self._n_kept + 1, _tuning.SWEEPS_COMBINED)
        places = [(own - k) % _tuning.SWEEPS_COMBINED for k in range(self._n_kept)]
        for place in places:
            product = np.multiply(self._changes[own], self._changes[place], out=self._spare).sum(dtype=np.float64)
            self._products[own, place] = self._products[place, own] = product
        squared = self._products[own, own]
        if not np.isfinite(squared):
            # Messages rule out states.
            self._goes_on = False
            return
        if squared > _tuning.LARGEST_GROWTH * self._least:
            self._n_kept = 1
        self._least = min(self._least, squared)
        is_due = self._n_sweeps >= _tuning.FIRST_SWEEPS and self._n_sweeps % _tuning.SWEEPS_BETWEEN == 0
        if not is_due or self._n_kept == 1:
            self._before[:] = self._after[own]
            return
        shares = _shares(self._products[np.ix_(places, places)])
        self._before.fill(0.0)
        for share, place in zip(shares, places, strict=True):
            self._before += np.multiply(self._after[place], share, out=self._spare)
        # Probabilities beyond those of sweeps could underflow, and rule out states.
        latest = self._after[own]
        np.clip(self._before, latest.min(), latest.max(), out=self._before)
        self._form.write(self._before)


def _shares(products):
    """Numbers that sum to one, with the shortest combination of changes whose products (m, m) are given."""
    m = len(products)
    steps = np.eye(m - 1, m) - np.eye(m - 1, m, 1)
    of_steps = steps @ products @ steps.T
    of_steps += _tuning.RIDGE * np.trace(of_steps) / (m - 1) * np.eye(m - 1)
    shares = np.eye(m)[0]
    if np.trace(of_steps) > 0:
        shares -= steps.T @ np.linalg.solve(of_steps, steps @ products[:, 0])
    return shares
