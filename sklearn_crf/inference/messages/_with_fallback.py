"""Tree-reweighted messages, and what takes their place where they do not settle."""

from sklearn.base import clone

from sklearn_crf._threads import out_of_turn
from sklearn_crf.inference._base import Inference, convergence_left_to_caller
from sklearn_crf.inference.messages._belief_propagation import TRWMessagePassing

# Share of the old messages where those without damping oscillate: a little is enough, and more takes more sweeps.
_DAMPING = 0.2


class MarginalsWithFallback(Inference):
    """Tree-reweighted messages, damped ones where these do not settle, another algorithm where those do not either."""

    # messages: undamped, as oscillating ones are damped here; fallback: of the same relaxation

    tasks = frozenset({"marginals"})

    def __init__(self, messages: TRWMessagePassing, fallback: Inference):
        self.messages = messages
        self.fallback = fallback
        # Messages that oscillate would go on to the last sweep.
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
    def takes_turns(self) -> bool:  # type: ignore[override]  # a class attribute of the other inferences
        return self.undamped.takes_turns

    @property
    def joined_nodes(self):
        return self.undamped.joined_nodes

    def _settled_nodes(self, model, n_threads):
        return self.undamped._settled_nodes(model, n_threads)

    def _marginals(self, model, *, init=None, n_threads=1):
        # States of both algorithms, and whether the messages are damped: what has needed it once is spared the sweeps
        # without.
        of_messages, of_fallback, is_damped = (None, None, False) if init is None else init
        with convergence_left_to_caller():
            if not is_damped:
                # The model is checked, and so are the options that all of these share.
                found = self.undamped._marginals(model, init=of_messages, n_threads=n_threads)
                if found.converged:
                    return found._replace(state=(found.state, of_fallback, False), method=self._method)
                # Messages that diverged are not a useful start.
                of_messages = None
            found = self._damped.marginals_for_learning(model, init=of_messages, n_threads=n_threads)
            if found.converged:
                return found._replace(state=(found.state, of_fallback, True))
        with out_of_turn():
            found = self.fallback.marginals_for_learning(model, init=of_fallback, n_threads=n_threads)
        return found._replace(state=(None, found.state, True))
