"""Base class of inference algorithms."""

from collections.abc import Callable, Collection
from contextlib import contextmanager
from inspect import getattr_static
from itertools import pairwise
from math import inf
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np

from sklearn_crf._numbers import as_integer, check_choice, check_option, check_switch
from sklearn_crf._own_methods import ChecksOwnMethods
from sklearn_crf._reports import warn_unconverged, without_convergence
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._allowed_labels import find_nearest_allowed
from sklearn_crf.inference._local_search import improve_by_climbing
from sklearn_crf.inference._proofs import Proof, shift_near_zero, undo_shift
from sklearn_crf.inference._results import CHECKS, Infeasible, Labeling, Marginals, Refuted
from sklearn_crf.models import FactorGraph, PairwiseModel, check_allowed_states, models_of_parts, score


def convergence_left_to_caller() -> Any:
    """Return a context in which inference does not warn if it has not converged.

    Training calls inference hundreds of times, checks ``converged`` of the results, and warns only once.

    Returns
    -------
    context manager
        For a ``with`` statement.

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
def name_conflict(model: Any) -> Any:
    """Return a context that adds conflicting nodes to the error for an infeasible model, if a search finds any."""
    try:
        yield
        return
    except Infeasible as error:
        claim = error
    if not isinstance(claim, Refuted):
        find_nearest_allowed(model, None)
    raise claim


class Range(NamedTuple):
    """Allowed range of a numeric option."""

    kind: type
    holds: Callable[[Any], bool]
    needed: str


NOT_NEGATIVE = Range(Real, lambda value: value >= 0, "not be negative")
FINITE = Range(Real, lambda value: 0 <= value < inf, "be finite and not negative")
POSITIVE = Range(Real, lambda value: 0 < value < inf, "be positive and finite")
FACTOR = Range(Real, lambda value: 0 < value <= 1, "lie above 0 and be at most 1")


def at_least(number: float) -> Range:
    """Return the condition that an option is at least ``number``, and an integer if ``number`` is of type int."""
    kind = Integral if isinstance(number, int) else Real
    return Range(kind, lambda value: value >= number, f"be at least {number:g}")


# Conditions on options that several algorithms share.
_COMMON_OPTIONS = {
    "max_iter": at_least(1),
    "tol": NOT_NEGATIVE,
    "damping": Range(Real, lambda value: 0 <= value < 1, "lie in [0, 1)"),
}
_SWITCHES = ("climb", "bounded", "search")


class Inference(ChecksOwnMethods, HoldsOptions):
    """Base class of inference algorithms.

    An algorithm only holds options, which are constructor parameters, so ``get_params``, ``clone`` and grid search
    work. Data about a single model are passed as ``init``, and returned as ``state`` of results. A subclass lists its
    tasks in ``tasks``, and implements ``_map``, ``_marginals`` and ``_sample`` for these tasks. The results of these
    methods are checked: shapes, states within range, finite marginals that sum to one.

    Attributes
    ----------
    tasks : frozenset
        Subset of ``"map"``, ``"marginals"``, ``"sample"``.
    exact_on : str or None
        Models for which the algorithm is exact: ``"any"``, ``"forest"``, ``"submodular"``, or None.
    takes : tuple of type
        Supported types of models.
    enumerates : int
        Number of labelings up to which the algorithm is exact on any graph.
    has_fractional : bool
        Whether labelings include the solution of a linear relaxation.
    convex : bool
        Whether marginals maximise a concave function. If so, they do not depend on the start, and are the derivative of
        ``log_z``.

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
    convex: bool = False
    tasks: frozenset[str] = frozenset()
    takes: tuple[type, ...] = (PairwiseModel,)
    exact_on: str | None = None
    _climbs = True
    _returns: ClassVar[dict] = CHECKS
    # Options with a set of choices. Numeric options have conditions in _ranges.
    _choices: ClassVar[dict[str, Collection[str]]] = {}
    # Types of ``init``: empty if there is no warm start, None if the algorithm checks ``init`` itself.
    _starts_from: ClassVar[tuple[type, ...] | None] = None
    _ranges: ClassVar[dict[str, Range]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        named = getattr_static(cls, "tasks")
        if isinstance(named, property | frozenset):
            return
        tasks = frozenset([named] if isinstance(named, str) else named)
        if not tasks <= {"map", "marginals", "sample"}:
            raise TypeError(f"{cls.__name__}.tasks must be a subset of 'map', 'marginals' and 'sample', got {named!r}.")
        cls.tasks = tasks

    def map(self, model: Any, *, init: Any = None, n_threads: int = 1) -> Labeling:
        """Return a labeling with the highest score, or with a score near the highest.

        If the labeling of an algorithm is forbidden, a search for allowed labels starts from it. The search ends with
        allowed labels, with a proof that there are none, or after a bounded effort with a warning. In the last case,
        the labels violate as few constraints as possible, and their score is -inf. If labels are not known to be
        optimal, they are improved by hill climbing, which changes one node at a time, unless the algorithm has an
        option ``climb`` that is False. If the scores of labelings differ by multiples of a step, as with tables of
        integers, the bound is rounded down to the score plus a multiple of the step.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph
            One of the types in ``takes``.
        init : object, optional
            ``state`` of an earlier :class:`Labeling` of the same topology: a warm start.
        n_threads : int, default=1
            Threads inside this one model; results do not depend on it.

        Returns
        -------
        Labeling

        Raises
        ------
        ValueError
            If the algorithm does not support this model, if ``init`` is not a state of its results, or if it is proven
            that no labeling has a score above -inf. In the last case, the message names nodes that have no joint
            allowed labeling.
        """
        self._require("map", model, init, n_threads)
        close, taken = shift_near_zero(model)
        found = self._find_best(close, init, n_threads)
        return found if close is model else undo_shift(found, self._evaluate(model, found.labels), taken)

    def _evaluate(self, model: Any, labels: np.ndarray) -> float:
        """Return the score that :meth:`map` maximises."""
        return score(model, labels)

    def _find_best(self, model, init, n_threads):
        """Return the algorithm's labeling, repaired if forbidden, with a tightened bound."""
        found = claim = None
        try:
            found = self._attach_method_name(self._map(model, init=init, n_threads=n_threads))
        except Refuted:
            raise
        except Infeasible as error:
            claim = error
        if found is None or np.isneginf(found.score):
            return self._find_allowed(model, found, claim)
        return self._finish(model, found, getattr(self, "climb", self._climbs))

    @overload
    def marginals(self, model: PairwiseModel | FactorGraph, *, init: Any = None, n_threads: int = 1) -> Marginals: ...

    @overload
    def marginals(self, model: Any, *, init: Any = None, n_threads: int = 1) -> Any: ...

    def marginals(self, model: Any, *, init: Any = None, n_threads: int = 1) -> Any:
        """Return the marginals of nodes and tables, and the log-partition.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph
            One of the types in ``takes``.
        init : object, optional
            ``state`` of an earlier :class:`Marginals` of the same topology: a warm start.
        n_threads : int, default=1
            Threads inside this one model; results do not depend on it.

        Returns
        -------
        Marginals

        Raises
        ------
        ValueError
            If the algorithm does not support this model, if ``init`` is not a state of its results, or if the algorithm
            finds that no labeling has a score above -inf. In the last case, the message names nodes that have no joint
            allowed labeling, if a short search finds such nodes. Exact algorithms always detect that no labeling is
            allowed; other algorithms may return locally consistent marginals instead.
        """
        self._require("marginals", model, init, n_threads)
        with name_conflict(model):
            return self._attach_method_name(self._compute_bounded_marginals(model, init=init, n_threads=n_threads))

    def marginals_for_learning(self, model: Any, *, init: Any = None, n_threads: int = 1) -> Any:
        """Return marginals that are the derivative of their ``log_z`` up to small errors, as learning requires.

        If messages have not fully converged, :meth:`marginals` may return a bound as ``log_z``, which takes time and is
        less consistent with the marginals. This method returns the value without the bound instead.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph
            One of the types in ``takes``.
        init : object, optional
            ``state`` of an earlier result of the same topology: a warm start.
        n_threads : int, default=1
            Threads inside this one model; results do not depend on it.

        Returns
        -------
        Marginals
        """
        self._require("marginals", model, init, n_threads)
        return self._attach_method_name(self._marginals(model, init=init, n_threads=n_threads))

    def node_marginals(self, model: Any, *, n_threads: int = 1) -> np.ndarray:
        """Return only the marginals of nodes, as needed for prediction; this is faster if tables can be skipped.

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
            return compute_part_marginals(self, self._marginalise_graphs_jointly, model, n_threads)
        self._require("marginals", model, n_threads=n_threads)
        with name_conflict(model):
            return self._node_marginals(model, n_threads)

    @property
    def joined_nodes(self) -> int:
        """Maximum number of nodes in graphs with cycles that :meth:`node_marginals` processes jointly.

        Joint processing is faster. Each graph converges separately, and results are bitwise equal to the results of
        single graphs. 1 means that the algorithm does not support joint processing.
        """
        return 1

    def joined_copies(self, graph: Graph, n_states: int) -> int:
        """Return the maximum number of nodes for which copies of a graph with equal tables are processed jointly.

        Parameters
        ----------
        graph : Graph
        n_states : int

        Returns
        -------
        int
        """
        return self.joined_nodes

    def transitions_of_chains(self, model: Any, rule: str) -> Any:
        """Convert the table of a model to the form in which kernels label many chains in one call.

        Parameters
        ----------
        model : PairwiseModel
            Any model with the table of the chains. It may contain only some of the chains, or no nodes.
        rule : {"mpm", "map"}
            Whether to compute the most probable label of each node, or the best labeling.

        Returns
        -------
        tuple of arrays and floats, or None
            None if the algorithm does not support this, or the range of the table's scores is too large.
        """
        return None

    def _compute_bounded_marginals(self, model, *, init=None, n_threads=1):
        return self._marginals(model, init=init, n_threads=n_threads)

    def _node_marginals(self, model, n_threads):
        return self._marginals(model, n_threads=n_threads).unary

    def _marginalise_graphs_jointly(self, model, n_threads):
        """Return node marginals of several graphs, and a mask of the nodes whose graph must be processed separately."""
        raise NotImplementedError(type(self).__name__)

    def sample(self, model: Any, n_samples: int = 1, *, random_state: Any = None, n_threads: int = 1) -> np.ndarray:
        """Draw labelings from the distribution of the model.

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
        with name_conflict(model):
            return self._sample(model, n_samples, random_state=random_state, n_threads=n_threads)

    def for_learning(self) -> "Inference":
        """Return the algorithm with options for training, in which many models differ only slightly.

        Returns
        -------
        Inference
            The algorithm itself, if its options suit training.
        """
        return self

    def is_exact_for(self, model: Any) -> bool:
        """Return whether results are known to be exact because of the structure of a model.

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

    def _finish(self, model, found, climbs):
        """Return the result with a tightened bound, and with labels improved by hill climbing if the option is set."""
        proof = Proof(model)
        bound = proof.bound(found.score, found.bound)
        if climbs and not bound <= found.score and isinstance(model, PairwiseModel | FactorGraph):
            labels = improve_by_climbing(model, found.labels)
            value = score(model, labels)
            if value > found.score:
                return found._replace(labels=labels, score=value, bound=proof.bound(value, max(bound, value)))
        return found if bound == found.bound else found._replace(bound=bound)

    def _attach_method_name(self, found):
        return found._replace(method=type(self).__name__) if getattr(found, "method", "") is None else found

    def _require(self, task, model, init=None, n_threads=1):
        name = type(self).__name__
        if task not in self.tasks:
            able = ", ".join(sorted(self.tasks))
            raise ValueError(f"{name} does not support task {task!r}; supported tasks: {able}.")
        if not isinstance(model, self.takes):
            taken = " or ".join(kind.__name__ for kind in self.takes)
            others = ", ".join(_list_supporting_algorithms(type(model), task))
            advice = (
                f"These algorithms accept it for task {task!r}: {others}."
                if others
                else "For arrays of scores, call sklearn_crf.solve or sklearn_crf.marginals."
            )
            raise TypeError(f"model must be a {taken} for {name}, got {type(model).__name__}. {advice}")
        for option, needed in (_COMMON_OPTIONS | self._ranges).items():
            if hasattr(self, option):
                check_option(getattr(self, option), option, needed.holds, needed.needed, kind=needed.kind)
        for option, choices in self._choices.items():
            check_choice(getattr(self, option), option, choices)
        for switch in _SWITCHES:
            check_switch(getattr(self, switch, True), switch)
        as_integer(n_threads, "n_threads", lowest=1)
        self._require_start(init)
        self._check_model(model)

    def _require_start(self, init):
        """Raise ValueError if the type of ``init`` is not the type of this algorithm's states."""
        if init is None or self._starts_from is None or isinstance(init, self._starts_from):
            return
        name = type(self).__name__
        if not self._starts_from:
            raise ValueError(
                f"init must be None, because {name} does not support warm starts, got {type(init).__name__}."
            )
        raise ValueError(f"init must be the state of an earlier result of {name}, got {type(init).__name__}.")

    def _check_model(self, model):
        """Raise ValueError if the model is not supported; subclasses add their own conditions."""
        check_allowed_states(model)

    def _find_allowed(self, model, found, claim):
        """Return the result with allowed labels; warn if none were found."""
        # found: result with forbidden labels, or None if the algorithm claims that there are no allowed labels
        labels = find_nearest_allowed(model, None if found is None else found.labels)
        value = score(model, labels)
        if np.isneginf(value):
            if claim is not None and claim.proven:
                raise claim
            warn_unconverged(
                f"{type(self).__name__} found no labeling with a finite score, but this does not prove that none "
                "exists. The returned labels violate the fewest constraints of all labels tried."
            )
        if found is None:
            found = self._attach_method_name(Labeling(labels, value, converged=False))
        # If the algorithm is not exact, a bound of -inf is no proof, so it is discarded.
        bound = np.inf if np.isneginf(found.bound) else max(found.bound, value)
        found = found._replace(labels=labels, score=value, bound=bound)
        if np.isneginf(value):
            return found
        return self._finish(model, found, getattr(self, "climb", True))


def check_model(algorithm: Inference, model: Any) -> None:
    """Raise ValueError if an algorithm does not support a model of a supported type, or has an invalid option."""
    algorithm._check_model(model)


def run_map_unchecked(algorithm: Inference, model: Any, *, init: Any = None, n_threads: int = 1) -> Labeling:
    """Return the labeling of an algorithm, without the checks and improvements of :meth:`Inference.map`."""
    return algorithm._map(model, init=init, n_threads=n_threads)


def run_marginals_unchecked(algorithm: Inference, model: Any, *, init: Any = None, n_threads: int = 1) -> Any:
    """Return the marginals of an algorithm, without the checks and bounds of :meth:`Inference.marginals`."""
    return algorithm._marginals(model, init=init, n_threads=n_threads)


def _list_supporting_algorithms(kind, task):
    """Return the names of the package's algorithms that support a task and a type of model, sorted."""
    found, classes = [], [Inference]
    while classes:
        cls = classes.pop()
        own = [other for other in cls.__subclasses__() if other.__module__.startswith(__package__)]
        classes += own
        if not own and task in cls.tasks and issubclass(kind, cls.takes):
            found.append(cls.__name__)
    return sorted(found)


def has_parts(model):
    """Return whether a model consists of several graphs, each of which has cycles."""
    if not isinstance(model, PairwiseModel) or len(model.graph.parts) == 1:
        return False
    return not any(part.is_forest for part in model.graph.parts)


def compute_part_marginals(inference, compute_jointly, model, n_threads):
    """Return ``inference.node_marginals`` of all graphs of a joint model, concatenated."""
    # compute_jointly: callable(model, n_threads) that returns node marginals and a mask of nodes to process separately
    try:
        unary, is_missing = compute_jointly(model, n_threads)
    except ValueError:
        # Process the graphs separately to find the graph that causes the error.
        unary, is_missing = np.empty_like(model.unary), np.ones(len(model.unary), dtype=bool)
    if not is_missing.any():
        return unary
    bounds = pairwise(np.cumsum([0, *(part.n_nodes for part in model.graph.parts)]).tolist())
    for number, (part, ends) in enumerate(zip(models_of_parts(model), bounds, strict=True)):
        nodes = slice(*ends)
        if is_missing[nodes].any():
            try:
                unary[nodes] = inference.node_marginals(part, n_threads=n_threads)
            except ValueError as error:
                error.part = number  # type: ignore[attr-defined]  # read by code that names the example
                raise
    return unary
