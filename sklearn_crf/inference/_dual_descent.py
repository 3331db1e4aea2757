"""Results of messages that lower an upper bound."""

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.models import score

# Messages have to cross the graph before a bound that no longer falls is known to have converged.
_PATIENCE = 10


class RecentFall:
    """Fall of a bound in its last ten iterations: one flat iteration alone can be followed by further falls."""

    def __init__(self):
        self._bounds = []

    def after(self, bound):
        """The fall up to an iteration that came to this bound; inf where it is too early to tell."""
        self._bounds.append(bound)
        return self._bounds[-1 - _PATIENCE] - bound if len(self._bounds) > _PATIENCE else np.inf


def labeling_by_descent(algorithm, model, run):
    """Lower the bound until it converges or a labeling attains it, and return the best labeling of all iterations."""
    # algorithm: with ``max_iter`` and ``tol``, which is relative to the size of the bound
    # run: ``run.lower()`` does an iteration and returns what ``run.bound`` fell by, ``run.labels()`` the labels that
    # it has come to, ``run.state`` what a warm start needs
    best, best_score, converged, n_iter = None, -np.inf, False, 0
    recent = RecentFall()
    while not converged and n_iter < algorithm.max_iter:
        checkpoint()
        n_iter += 1
        fall = run.lower()
        labels = run.labels()
        found = score(model, labels)
        # Of labels that something forbids, the last ones are the nearest to any that are allowed.
        if found > best_score or np.isneginf(best_score):
            best, best_score = labels, found
        size = max(1.0, abs(run.bound))
        converged = recent.after(run.bound) <= algorithm.tol * size or run.bound - best_score <= 1e-12 * size
    if not converged:
        algorithm._warn_unconverged(still_falling(algorithm, fall))
    result = algorithm._labeling(model, best, n_iter=n_iter, converged=converged, state=run.state)
    return result._replace(bound=max(run.bound, result.score))


def still_falling(algorithm, fall):
    """The warning that a bound has not converged, by what it fell in the last iteration."""
    stopped = f"{type(algorithm).__name__} stopped after max_iter={algorithm.max_iter} iterations"
    if np.isinf(fall):
        return f"{stopped}, and one alone cannot tell whether the bound still falls: raise max_iter."
    return (
        f"{stopped} with the bound still falling by {fall:.2g} in the last: raise max_iter or tol (now "
        f"{algorithm.tol:g})."
    )


def marginals_by_descent(algorithm, run, bound):
    """Lower the bound until messages converge, and return the marginals there."""
    # algorithm: with ``max_iter`` and ``tol``, the largest change of the probabilities of a message that counts as
    # none
    # run: ``run.iterate()`` does an iteration and returns the largest change, ``run.marginals(**fields)`` gives the
    # result with these fields
    # bound: what the bound is, in the end, of the log-partition
    change, n_iter = np.inf, 0
    while change > algorithm.tol and n_iter < algorithm.max_iter:
        checkpoint()
        n_iter += 1
        change = run.iterate()
    converged = bool(change <= algorithm.tol)
    if not converged:
        algorithm._warn_unconverged(
            f"{type(algorithm).__name__} stopped after max_iter={algorithm.max_iter} iterations with probabilities of "
            f"messages still changing by {change:.2g}, more than tol={algorithm.tol:g}: raise max_iter."
        )
    kind = "upper" if bound == "exact" and not converged else bound
    return run.marginals(bound=kind, n_iter=n_iter, converged=converged)
