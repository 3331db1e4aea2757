"""Base class of inference algorithms."""

from collections.abc import Callable, Collection
from contextlib import contextmanager
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np

from sklearn_crf._numbers import as_integer, check_choice, check_option
from sklearn_crf._own_methods import ChecksOwnMethods
from sklearn_crf._reports import warn_unconverged, without_convergence
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.inference._allowed_labels import nearest_allowed
from sklearn_crf.inference._local_search import climbed
from sklearn_crf.inference._proofs import Proof, moved, near_zero
from sklearn_crf.inference._results import CHECKS, Infeasible, Labeling, Marginals, Refuted
from sklearn_crf.models import FactorGraph, PairwiseModel, check_allowed_states, models_of_parts, score


def convergence_left_to_caller() -> Any:
    """Context in which inference does not warn: training, which calls it hundreds of times, looks at ``converged`` of
    the results and warns once.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import LoopyBP, convergence_left_to_caller
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> with convergence_left_to_caller():
    ...     found = LoopyBP(max_iter=1).marginals(model)  # no warning
    >>> found.converged
    False
    """
    return without_convergence()


@contextmanager
def conflict_named(model: Any) -> Any:
    """Name the nodes of the conflict where a model is found to be infeasible, if a search proves it."""
    try:
        yield
        return
    except Infeasible as error:
        claim = error
    if not isinstance(claim, Refuted):
        nearest_allowed(model, None)
    raise claim


class Range(NamedTuple):
    """What must hold of a numeric option."""

    kind: type
    holds: Callable[[Any], bool]
    needed: str


NOT_NEGATIVE = Range(Real, lambda value: value >= 0, "not be negative")
POSITIVE = Range(Real, lambda value: value > 0, "be positive")
FACTOR = Range(Real, lambda value: 0 < value <= 1, "lie above 0 and be at most 1")


def at_least(number: float) -> Range:
    """Return the range of numbers that are no less than one; whole numbers take integers alone."""
    kind = Integral if isinstance(number, int) else Real
    return Range(kind, lambda value: value >= number, f"be at least {number:g}")


# What must hold of options that several algorithms have.
_COMMON_OPTIONS = {
    "max_iter": at_least(1),
    "tol": NOT_NEGATIVE,
    "damping": Range(Real, lambda value: 0 <= value < 1, "lie in [0, 1)"),
}
_SWITCHES = ("climb", "bounded", "search")


class Inference(ChecksOwnMethods, HoldsOptions):
    """Base of the inference algorithms: options in, results out.

    An algorithm holds options only, as constructor parameters (``get_params``, ``clone`` and grid search work);
    whatever belongs to one model travels in ``init`` and in the ``state`` of results. A subclass says what it can
    do in ``tasks`` and writes ``_map``, ``_marginals``, ``_sample`` accordingly. What these return is checked: shapes,
    states within range, finite marginals that sum to one.

    Attributes
    ----------
    tasks : frozenset
        Out of ``"map"``, ``"marginals"``, ``"sample"``.
    exact_on : str or None
        Where it is exact: ``"any"``, ``"forest"``, ``"submodular"``, or nowhere.
    takes : tuple of type
        The types of models it takes.
    enumerates : int
        Number of labelings up to which it is exact on any graph.
    has_fractional : bool
        Whether its labelings come with the solution of a linear relaxation.
    takes_turns : bool
        Whether all that it does for long is :class:`~sklearn_crf._threads.out_of_turn`.
    takes_turns_on_forests : bool
        Whether it is on graphs without cycles.
    convex : bool
        Whether its marginals solve a concave problem: the same from any start, and the derivative of their ``log_z``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import Inference, Labeling
    >>> from sklearn_crf.models import PairwiseModel, score
    >>> class EachNodeAlone(Inference):
    ...     tasks = frozenset({"map"})
    ...
    ...     def _map(self, model, init, n_threads):
    ...         labels = model.unary.argmax(axis=1).astype(np.int32)
    ...         return Labeling(labels, score(model, labels))
    >>> unary = np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]])
    >>> EachNodeAlone().map(PairwiseModel(lattice((3,)), unary, [np.eye(2)])).labels
    array([1, 1, 1], dtype=int32)
    """

    enumerates: int = 0
    has_fractional: bool = False
    takes_turns: bool = False
    takes_turns_on_forests: bool = False
    convex: bool = False
    tasks: frozenset[str] = frozenset()
    takes: tuple[type, ...] = (PairwiseModel,)
    exact_on: str | None = None
    _climbs = True
    _returns: ClassVar[dict] = CHECKS
    # Options that are one of several names, and what must hold of options that are numbers.
    _choices: ClassVar[dict[str, Collection[str]]] = {}
    # Types of ``init``; none where results have no state to start from, None where the algorithm checks it.
    _starts_from: ClassVar[tuple[type, ...] | None] = None
    _ranges: ClassVar[dict[str, Range]] = {}

    def map(self, model: Any, *, init: Any = None, n_threads: int = 1) -> Labeling:
        """Labeling of (nearly) the highest score.

        Where an algorithm comes to labels that something forbids, a search for allowed ones begins with them. It ends
        with such labels, with the proof that there are none, or after a bounded effort with a warning. In that case
        the labels break as few constraints as were found to be broken, and their score is -inf. Labels that are not
        known to be optimal are changed one node at a time as long as that gains, unless the algorithm has an
        option ``climb`` that is False. Where the scores of labelings differ by multiples of some step, as with tables
        of integers, the bound is rounded down to a multiple above the score.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph
            One of the types in ``takes``.
        init : object, optional
            ``state`` of a former :class:`Labeling` of the same topology: a warm start.
        n_threads : int, default=1
            Threads inside this one model; results do not depend on it.

        Returns
        -------
        Labeling

        Raises
        ------
        ValueError
            If the algorithm does not take this model, or ``init`` is no state of its results, or if it is proven that
            no labeling has a score above -inf. The message names nodes that have no allowed labeling together.
        """
        self._require("map", model, init, n_threads)
        close, taken = near_zero(model)
        found = self._best(close, init, n_threads)
        return found if close is model else moved(found, score(model, found.labels), taken)

    def _best(self, model, init, n_threads):
        """The labels found, with what their bound proves."""
        found = claim = None
        try:
            found = self._named(self._map(model, init=init, n_threads=n_threads))
        except Refuted:
            raise
        except Infeasible as error:
            claim = error
        if found is None or np.isneginf(found.score):
            return self._allowed(model, found, claim)
        return self._ended(model, found, getattr(self, "climb", self._climbs))

    @overload
    def marginals(self, model: PairwiseModel | FactorGraph, *, init: Any = None, n_threads: int = 1) -> Marginals: ...

    @overload
    def marginals(self, model: Any, *, init: Any = None, n_threads: int = 1) -> Any: ...

    def marginals(self, model: Any, *, init: Any = None, n_threads: int = 1) -> Any:
        """Marginals of nodes and tables, and the log-partition.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph
            One of the types in ``takes``.
        init : object, optional
            ``state`` of a former :class:`Marginals` of the same topology: a warm start.
        n_threads : int, default=1
            Threads inside this one model; results do not depend on it.

        Returns
        -------
        Marginals

        Raises
        ------
        ValueError
            If the algorithm does not take this model, or ``init`` is no state of its results, or if it finds that no
            labeling has a score above -inf. Exact algorithms always do; marginals that fit together locally may exist
            where that takes a search to show. The message names nodes that have no allowed labeling together, if a
            short search finds them.
        """
        self._require("marginals", model, init, n_threads)
        with conflict_named(model):
            return self._named(self._bounded_marginals(model, init=init, n_threads=n_threads))

    def marginals_for_learning(self, model: Any, *, init: Any = None, n_threads: int = 1) -> Any:
        """Marginals whose ``log_z`` has them as its derivative up to smaller errors than theirs.

        Messages that have not quite converged may give a bound on the log-partition at the price of such errors, and of
        time. Then this is their value without the bound.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph
            One of the types in ``takes``.
        init : object, optional
            ``state`` of a former result of the same topology: a warm start.
        n_threads : int, default=1
            Threads inside this one model; results do not depend on it.

        Returns
        -------
        Marginals
        """
        self._require("marginals", model, init, n_threads)
        return self._named(self._marginals(model, init=init, n_threads=n_threads))

    def node_marginals(self, model: Any, *, n_threads: int = 1) -> np.ndarray:
        """Marginals of nodes alone: what prediction asks for, in less time where those of tables can be left out.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph
            One of the types in ``takes``.
        n_threads : int, default=1
            Threads inside this one model; results do not depend on it.

        Returns
        -------
        ndarray of shape (N, K)
            ``marginals(model).unary``.
        """
        if self.joined_nodes > 1 and has_parts(model):
            return node_marginals_of_parts(self, self._settled_nodes, model, n_threads)
        self._require("marginals", model, n_threads=n_threads)
        with conflict_named(model):
            return self._node_marginals(model, n_threads)

    @property
    def joined_nodes(self) -> int:
        """Nodes up to which :meth:`node_marginals` of graphs with cycles side by side takes them together.

        Each has its own convergence and the bits that it has alone, in less time. One is an algorithm that does not.
        """
        return 1

    def transitions_of_chains(self, model: Any, rule: str) -> Any:
        """Forms of the table of a model by which one kernel call labels many chains, without a model of each.

        Parameters
        ----------
        model : PairwiseModel
            One with that table, of some of the chains or of no nodes.
        rule : {"mpm", "map"}
            Whether each node has its likeliest label, or all have the best labeling.

        Returns
        -------
        tuple of arrays and floats, or None
            None where the algorithm labels chains in another way, and where scores of the table range too widely.
        """
        return None

    def _bounded_marginals(self, model, *, init=None, n_threads=1):
        return self._marginals(model, init=init, n_threads=n_threads)

    def _node_marginals(self, model, n_threads):
        return self._marginals(model, n_threads=n_threads).unary

    def _settled_nodes(self, model, n_threads):
        """Node marginals of graphs side by side, and those nodes (bool) whose graph has to be looked at alone."""
        raise NotImplementedError(type(self).__name__)

    def sample(self, model: Any, n_samples: int = 1, *, random_state: Any = None, n_threads: int = 1) -> np.ndarray:
        """Labelings drawn from the distribution of the model.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph
            One of the types in ``takes``.
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None
        n_threads : int, default=1
            Threads inside this one model; results do not depend on it.

        Returns
        -------
        ndarray of shape (n_samples, N), int32
        """
        self._require("sample", model, n_threads=n_threads)
        n_samples = as_integer(n_samples, "n_samples")
        with conflict_named(model):
            return self._sample(model, n_samples, random_state=random_state, n_threads=n_threads)

    def for_learning(self) -> "Inference":
        """The same algorithm with options for the many models of training, which change a little at a time.

        Returns
        -------
        Inference
            Itself, where no option is for single models alone.
        """
        return self

    def is_exact_for(self, model: Any) -> bool:
        """Whether results for a model are known to be exact, by its structure.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph

        Returns
        -------
        bool
        """
        if self.exact_on == "forest" and isinstance(model, PairwiseModel):
            return bool(model.graph.is_forest)
        return self.exact_on == "any"

    def _ended(self, model, found, climbs):
        """The result with what its bound proves, after single changes as long as these gain."""
        proof = Proof(model)
        bound = proof.bound(found.score, found.bound)
        if climbs and not bound <= found.score and isinstance(model, PairwiseModel | FactorGraph):
            labels = climbed(model, found.labels)
            value = score(model, labels)
            if value > found.score:
                return found._replace(labels=labels, score=value, bound=proof.bound(value, max(bound, value)))
        return found if bound == found.bound else found._replace(bound=bound)

    def _named(self, found):
        return found._replace(method=type(self).__name__) if getattr(found, "method", "") is None else found

    def _require(self, task, model, init=None, n_threads=1):
        name = type(self).__name__
        if task not in self.tasks:
            able = ", ".join(sorted(self.tasks))
            raise ValueError(f"{name} cannot do task {task!r}; it can do: {able}.")
        if not isinstance(model, self.takes):
            taken = " or ".join(kind.__name__ for kind in self.takes)
            others = ", ".join(_takers(type(model), task)) or "no algorithm"
            raise TypeError(
                f"model must be a {taken} for {name}, got {type(model).__name__}. Of the algorithms for task {task!r}, "
                f"{others} can take that."
            )
        for option, needed in (_COMMON_OPTIONS | self._ranges).items():
            if hasattr(self, option):
                check_option(getattr(self, option), option, needed.holds, needed.needed, kind=needed.kind)
        for option, choices in self._choices.items():
            check_choice(getattr(self, option), option, choices)
        for switch in _SWITCHES:
            if not isinstance(getattr(self, switch, True), bool | np.bool_):
                raise ValueError(f"{switch} must be True or False, got {getattr(self, switch)!r}.")
        as_integer(n_threads, "n_threads", lowest=1)
        self._require_start(init)
        self._check_model(model)

    def _require_start(self, init):
        """Raise ValueError if ``init`` is of another type than the states of this algorithm."""
        if init is None or self._starts_from is None or isinstance(init, self._starts_from):
            return
        name = type(self).__name__
        if not self._starts_from:
            raise ValueError(f"init must be None, as {name} has no warm start, got {type(init).__name__}.")
        raise ValueError(f"init must be the state of a former result of {name}, got {type(init).__name__}.")

    def _check_model(self, model):
        """Raise ValueError if the model cannot be taken; a subclass adds its own conditions."""
        check_allowed_states(model)

    def _allowed(self, model, found, claim):
        """The result with labels that nothing forbids, or with a warning that none were found."""
        # found: result with forbidden labels, or None where the algorithm claims that there are no others
        labels = nearest_allowed(model, None if found is None else found.labels)
        value = score(model, labels)
        if np.isneginf(value):
            if claim is not None and claim.proven:
                raise claim
            warn_unconverged(
                f"{type(self).__name__}: no labeling of finite score was found; this is no proof that there is none. "
                "Its labels break as few constraints as were found to be broken."
            )
        if found is None:
            found = self._named(Labeling(labels, value, converged=False))
        # A bound of -inf is no proof.
        bound = np.inf if np.isneginf(found.bound) else max(found.bound, value)
        found = found._replace(labels=labels, score=value, bound=bound)
        if np.isneginf(value):
            return found
        return self._ended(model, found, getattr(self, "climb", True))


def check_model(algorithm: Inference, model: Any) -> None:
    """Raise ValueError if an algorithm cannot take a model of a type that it takes, or has a wrong option."""
    algorithm._check_model(model)


def labeling_as_found(algorithm: Inference, model: Any, *, init: Any = None, n_threads: int = 1) -> Labeling:
    """Return the labeling that an algorithm comes to, without what :meth:`Inference.map` checks and adds."""
    return algorithm._map(model, init=init, n_threads=n_threads)


def marginals_as_found(algorithm: Inference, model: Any, *, init: Any = None, n_threads: int = 1) -> Any:
    """Return the marginals that an algorithm comes to, without what :meth:`Inference.marginals` checks and adds."""
    return algorithm._marginals(model, init=init, n_threads=n_threads)


def _takers(kind, task):
    """Names of the package's algorithms for a task on a type of model, in alphabetical order."""
    found, classes = [], [Inference]
    while classes:
        cls = classes.pop()
        own = [other for other in cls.__subclasses__() if other.__module__.startswith(__package__)]
        classes += own
        if not own and task in cls.tasks and issubclass(kind, cls.takes):
            found.append(cls.__name__)
    return sorted(found)


def has_parts(model):
    """Whether a model is that of several graphs with cycles side by side."""
    if not isinstance(model, PairwiseModel) or len(model.graph.parts) == 1:
        return False
    return not any(part.is_forest for part in model.graph.parts)


def node_marginals_of_parts(inference, settled_nodes, model, n_threads):
    """Return ``inference.node_marginals`` of each part of a model, one below the other."""
    # settled_nodes: callable(model, n_threads), node marginals of all parts, and which nodes have to be looked at alone
    try:
        unary, unsettled = settled_nodes(model, n_threads)
    except ValueError:
        # The parts by themselves tell which of them it is.
        unary, unsettled = np.empty_like(model.unary), np.ones(len(model.unary), dtype=bool)
    if not unsettled.any():
        return unary
    bounds = pairwise(np.cumsum([0, *(part.n_nodes for part in model.graph.parts)]).tolist())
    for number, (part, ends) in enumerate(zip(models_of_parts(model), bounds, strict=True)):
        nodes = slice(*ends)
        if unsettled[nodes].any():
            try:
                unary[nodes] = inference.node_marginals(part, n_threads=n_threads)
            except ValueError as error:
                error.part = number  # type: ignore[attr-defined]  # read by whoever names the example
                raise
    return unary
