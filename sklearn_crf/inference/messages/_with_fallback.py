"""Tree-reweighted messages, with damping and another algorithm as fallbacks."""

from sklearn.base import clone

from sklearn_crf.inference._base import Inference, convergence_left_to_caller
from sklearn_crf.inference.messages._belief_propagation import TRWMessagePassing

# Damping if undamped messages oscillate. A little damping is sufficient; more damping requires more sweeps.
_DAMPING = 0.2


class MarginalsWithFallback(Inference):
    """Tree-reweighted messages, with damping and then another algorithm if messages do not converge."""

    # messages: without damping, which is added here if needed; fallback: an algorithm for the same relaxation

    tasks = frozenset({"marginals"})
    takes = TRWMessagePassing.takes
    convex = True

    def __init__(self, messages: TRWMessagePassing, fallback: Inference):
        self.messages = messages
        self.fallback = fallback
        # Limit the undamped sweeps, because oscillating messages would use all of them.
        self.undamped = clone(messages).set_params(max_iter=-(-messages.max_iter // 4))
        self._method = type(messages).__name__
        self._damped = clone(messages).set_params(damping=_DAMPING)

    @property
    def tol(self):
        return self.messages.tol

    @tol.setter
    def tol(self, tol):
        for inference in (self.messages, self.undamped, self._damped, self.fallback):
            inference.tol = tol

    @property
    def joined_nodes(self):
        return self.undamped.joined_nodes

    def _marginalise_graphs_jointly(self, model, n_threads):
        return self.undamped._marginalise_graphs_jointly(model, n_threads)

    def _marginals(self, model, *, init=None, n_threads=1):
        # The joint state contains the states of both algorithms, and whether messages are damped.
        # If a model has needed damping once, it is not tried without damping again.
        of_messages, of_fallback, is_damped = (None, None, False) if init is None else init
        with convergence_left_to_caller():
            if not is_damped:
                # The undamped algorithm also checks the model and the common options.
                found = self.undamped._marginals(model, init=of_messages, n_threads=n_threads)
                if found.converged:
                    return found._replace(state=(found.state, of_fallback, False), method=self._method)
                # Messages that have diverged are not a useful start.
                of_messages = None
            found = self._damped.marginals_for_learning(model, init=of_messages, n_threads=n_threads)
            if found.converged:
                return found._replace(state=(found.state, of_fallback, True))
        found = self.fallback.marginals_for_learning(model, init=of_fallback, n_threads=n_threads)
        return found._replace(state=(None, found.state, True))
