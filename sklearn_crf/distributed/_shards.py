"""Shards: parts of training data, each of which is loaded in the process that uses it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, NoReturn

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._own_methods import errors_of
from sklearn_crf.distributed._clusters import DaskExecutor, RayExecutor
from sklearn_crf.distributed._executors import Executor, LocalExecutor, Shard
from sklearn_crf.kernels import VECTOR_LEVEL


class Shards:
    """Training data in parts, on disk or on the workers of a cluster, for use in place of ``X`` and ``y``.

    Supported by :class:`~sklearn_crf.TRWCRF`, :class:`~sklearn_crf.DRFClassifier`, :class:`~sklearn_crf.M3NClassifier`,
    :class:`~sklearn_crf.ContrastiveCRF`, :class:`~sklearn_crf.RegressionTreeField`,
    :class:`~sklearn_crf.RegressionTreeFieldClassifier` and :class:`~sklearn_crf.MultiConditionalMFA`.

    Weights are sent to the workers, which return the sums of the losses and gradients of their shards. Sums are formed
    in a fixed order, in float64. The fitted weights are therefore bit-identical, whether shards are in memory, on disk,
    or on any number of workers, if all workers have the vector level of this process.

    Parameters
    ----------
    paths : sequence of object
        One object for each shard, such as the path of a file.
    load : callable(path) -> (X, y) or (X, y, sample_weight)
        Function that loads one shard. On a cluster, it is called on the workers. Without ``client``, only one shard is
        in memory at a time, and every evaluation of the loss loads all shards again. Formats that need no parsing (npz,
        memory maps) are therefore fastest. State that training needs from previous evaluations stays in memory.
    client : dask.distributed.Client, "ray" or callable(shards) -> Executor, optional
        Where the shards are stored. On a cluster, each shard stays on one worker in encoded form. "ray" is the cluster
        to which ``ray.init`` has connected this process, and None is this process. A function must return an
        :class:`~sklearn_crf.distributed.Executor` for a list of :class:`~sklearn_crf.distributed.Shard`.

    Raises
    ------
    ValueError
        If there are no paths, or ``load`` is not a function.

    See Also
    --------
    Shards.from_arrays : Shards of data that are in memory.
    Shards.from_dask : Shards made from a dask bag or from delayed dask objects.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from sklearn_crf import Shards, TRWCRF
    >>> def load(path):
    ...     with np.load(path) as part:
    ...         return part["X"], part["y"]
    >>> rng = np.random.default_rng(0)
    >>> folder = tempfile.TemporaryDirectory()
    >>> paths = [Path(folder.name) / f"part{k}.npz" for k in range(3)]
    >>> for path in paths:
    ...     y = rng.integers(2, size=(10, 5))
    ...     np.savez(path, X=y[..., np.newaxis] + rng.normal(size=(10, 5, 1)), y=y)
    >>> shards = Shards(paths, load)
    >>> crf = TRWCRF().fit(shards)
    >>> [labels.shape for labels in crf.predict(shards)], 0.5 < crf.score(shards) < 1
    ([(10, 5), (10, 5), (10, 5)], True)
    >>> folder.cleanup()
    """

    def __init__(self, paths: Iterable, load: Callable[[Any], tuple], client: Any = None) -> None:
        paths = [paths] if isinstance(paths, str) else list(paths)
        if not callable(load):
            raise ValueError(f"load must be a function of a path, got {type(load).__name__}.")
        self._hold(
            [Shard(k, f"shard {path!s}", partial(load, path)) for k, path in enumerate(paths)], client, keep=False
        )

    @classmethod
    def from_arrays(cls, parts: Iterable[tuple], client: Any = None) -> "Shards":
        """Make shards from data in memory.

        Parameters
        ----------
        parts : iterable of (X, y) or (X, y, sample_weight)
            Data of each shard.
        client : dask.distributed.Client, "ray" or callable(shards) -> Executor, optional
            Where the shards go; see :class:`Shards`.

        Returns
        -------
        Shards

        Examples
        --------
        >>> from sklearn_crf import Shards, TRWCRF
        >>> parts = [([[0.0], [1.0], [0.2]], [0, 1, 0]), ([[0.9], [0.1]], [1, 0])]
        >>> len(Shards.from_arrays(parts))
        2
        """
        return cls._from_sources([partial(tuple, tuple(part)) for part in parts], client, keep=True)

    @classmethod
    def from_dask(cls, parts: Any, client: Any = None) -> "Shards":
        """Make a shard from each partition of a dask bag, or from each delayed dask object in a list.

        The task graph of a part is sent to the worker that has the shard, and is computed there.

        Parameters
        ----------
        parts : dask.bag.Bag or iterable of dask.delayed.Delayed
            A bag of examples ``(x, y)`` or ``(x, y, weight)``, or delayed objects that compute ``(X, y)`` or
            ``(X, y, sample_weight)``.
        client : dask.distributed.Client, "ray" or callable(shards) -> Executor, optional
            Where the shards go; see :class:`Shards`.

        Returns
        -------
        Shards

        Raises
        ------
        ValueError
            If ``parts`` is neither a bag nor delayed objects.

        Examples
        --------
        >>> import dask.bag  # doctest: +SKIP
        >>> from sklearn_crf import Shards
        >>> examples = [([[0.0], [1.0]], [0, 1]), ([[0.9]], [1]), ([[0.1]], [0])]
        >>> len(
        ...     Shards.from_dask(dask.bag.from_sequence(examples, npartitions=3))
        ... )  # doctest: +SKIP
        3
        """
        is_bag = hasattr(parts, "map_partitions") and hasattr(parts, "to_delayed")
        delayed = list(parts.to_delayed() if is_bag else parts)
        for k, part in enumerate(delayed):
            if not hasattr(part, "__dask_graph__"):
                raise ValueError(
                    f"parts must be a dask bag or delayed dask objects, got {type(part).__name__} at index {k}."
                )
        return cls._from_sources(
            [partial(_read_examples if is_bag else _compute, part) for part in delayed], client, keep=False
        )

    @classmethod
    def _from_sources(cls, sources, client, keep):
        """Make a shard from each source, named by its index."""
        shards = cls.__new__(cls)
        shards._hold([Shard(k, f"shard {k}", source) for k, source in enumerate(sources)], client, keep)
        return shards

    def _hold(self, shards: Sequence[Shard], client: Any, keep: bool) -> None:
        if not shards:
            raise ValueError("Shards needs at least one shard, got none.")
        self._shards = shards
        self._client = client
        self._keep = keep
        self._executor: Executor | None = None

    def __len__(self) -> int:
        return len(self._shards)

    def __repr__(self) -> str:
        return f"Shards(n_shards={len(self)})"

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        refuse_shards("This call")

    # Raise this error also for iteration, indexing and conversion to an array.
    __iter__ = __getitem__ = __array__

    def map(self, function: Callable[[Shard, Any], Any], broadcast: Any = None) -> list:
        """Call a function on every shard, in the process that has the shard.

        Parameters
        ----------
        function : callable(shard, broadcast) -> object
            Module-level function, which workers can import.
        broadcast : object, default=None
            Argument that is sent to every worker.

        Returns
        -------
        list
            Results in the order of the shards.

        Examples
        --------
        >>> from sklearn_crf import Shards
        >>> shards = Shards(["a", "b"], lambda path: ([[1.0], [2.0]], [0, 1]))
        >>> shards.map(lambda shard, label: shard.load()[1].count(label), 1)
        [1, 1]
        """
        found = self._held().map(partial(_number_result, function), broadcast)
        return list(self._check_order(found, "map"))

    def sum(self, function: Callable[[Shard, Any], Any], broadcast: Any = None) -> Any:
        """Call a function on every shard, in the process that has the shard, and return the sum of all results.

        Parameters
        ----------
        function : callable(shard, broadcast) -> object
            Module-level function, which workers can import. Its results are numbers, arrays, or tuples, lists or data
            classes of numbers and arrays.
        broadcast : object, default=None
            Argument that is sent to every worker.

        Returns
        -------
        object
            The sum of the results in a fixed order. It is bit-identical for any location of the shards.

        Examples
        --------
        >>> from sklearn_crf import Shards
        >>> shards = Shards(["a", "b"], lambda path: ([[1.0], [2.0]], [0, 1]))
        >>> shards.sum(lambda shard, label: shard.load()[1].count(label), 1)
        2
        """
        executor = self._held()
        found = executor.sum(partial(_count_result, function), broadcast)
        with errors_of(f"{type(executor).__name__}.sum"):
            if not isinstance(found, _Result) or found.number != len(self):
                which = f"that of {found.number}" if isinstance(found, _Result) else type(found).__name__
                raise ValueError(f"the sum over {len(self)} shards was expected, got {which}.")
        return found.result

    def apply(
        self, estimator: Any, method: str = "predict", write: Callable[[int, Any], Any] | None = None, **options: Any
    ) -> list:
        """Call a method of a fitted estimator with the X of every shard, in the process that has the shard.

        Parameters
        ----------
        estimator : estimator
            Any fitted estimator, even if it cannot be trained on shards. On a cluster each worker gets a copy with
            ``n_jobs=1``, because workers already have a thread for each of their tasks.
        method : str, default="predict"
        write : callable(number, result) -> object, optional
            Function that is called in the process that has the shard, for instance to write the result to disk. The
            return value is sent back in place of the result, so that few results are in the memory of this process.
        **options : object
            Further arguments of the method.

        Returns
        -------
        list
            Results in the order of the shards.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from sklearn_crf import Shards, TRWCRF
        >>> parts = [([[0.0], [1.0], [0.2]], [0, 1, 0]), ([[0.9], [0.1]], [1, 0])]
        >>> shards, folder = Shards.from_arrays(parts), tempfile.TemporaryDirectory()
        >>> def write(number, labels):
        ...     path = Path(folder.name) / f"labels{number}.npy"
        ...     np.save(path, labels)
        ...     return path.name
        >>> shards.apply(TRWCRF(C=100).fit(shards), write=write)
        ['labels0.npy', 'labels1.npy']
        >>> np.load(Path(folder.name) / "labels0.npy").tolist()
        [0, 1, 0]
        >>> folder.cleanup()
        """
        return self.map(_apply, (estimator, method, write, options))

    def apply_lazily(self, estimator: Any, method: str = "predict", **options: Any) -> Iterator:
        """Call a method of a fitted estimator with the X of every shard, and yield each result when it is requested.

        In this process, a shard is loaded when its result is requested. On a cluster, each worker computes at most two
        results in advance, to limit memory.

        Parameters
        ----------
        estimator : estimator
            See :meth:`apply`.
        method : str, default="predict"
        **options : object
            Further arguments of the method.

        Returns
        -------
        iterator
            Results in the order of the shards.

        Examples
        --------
        >>> from sklearn_crf import Shards, TRWCRF
        >>> parts = [([[0.0], [1.0], [0.2]], [0, 1, 0]), ([[0.9], [0.1]], [1, 0])]
        >>> shards = Shards.from_arrays(parts)
        >>> for labels in shards.apply_lazily(TRWCRF(C=100).fit(shards)):
        ...     print(labels)
        [0 1 0]
        [1 0]
        """
        found = self._held().iterate(partial(_number_result, _apply), (estimator, method, None, options))
        return self._check_order(found, "iterate")

    def _check_order(self, found, method):
        """Yield the executor's results one by one, after checking that they are in the order of the shards."""
        for number, each in zip_longest(range(len(self)), found if isinstance(found, Iterable) else ()):
            with errors_of(f"{type(self._held()).__name__}.{method}"):
                if not isinstance(each, _Result) or each.number != number:
                    what = f"the result of shard {each.number}" if isinstance(each, _Result) else type(each).__name__
                    where = "after the last shard" if number is None else f"for shard {number}"
                    raise ValueError(f"results of all {len(self)} shards were expected in order, got {what} {where}.")
            yield each.result

    def transformed(self, transformer: Any) -> "Shards":
        """Return shards whose X is transformed by a fitted transformer each time a shard is loaded.

        Transformed shards are not cached. Without a cluster, a shard is therefore transformed each time it is loaded.
        If the transformation is slow, write its results to disk with :meth:`apply`, and load these results instead.

        Parameters
        ----------
        transformer : estimator
            Fitted transformer with a method ``transform``.

        Returns
        -------
        Shards

        Examples
        --------
        >>> from sklearn.preprocessing import StandardScaler
        >>> from sklearn_crf import Shards, TRWCRF
        >>> parts = [([[0.0], [10.0], [2.0]], [0, 1, 0]), ([[9.0], [1.0]], [1, 0])]
        >>> scaled = Shards.from_arrays(parts).transformed(StandardScaler().fit(parts[0][0]))
        >>> [labels.tolist() for labels in TRWCRF(C=100).fit(scaled).predict(scaled)]
        [[0, 1, 0], [1, 0]]
        """
        return self._having(
            Shard(own.number, own.name, partial(_load_transformed, own.source, transformer)) for own in self._shards
        )

    def _having(self, held: Iterable[Shard]) -> "Shards":
        """Return Shards with the same client and options, but other shards."""
        shards = type(self).__new__(type(self))
        shards._hold(list(held), self._client, self._keep)
        return shards

    def _held(self):
        if self._executor is None:
            self._executor = self._make_executor()
        return self._executor

    def _make_executor(self) -> Executor:
        if self._client is None:
            return LocalExecutor(self._shards, self._keep)
        if isinstance(self._client, str) and self._client == "ray":
            return RayExecutor(self._shards)
        if hasattr(self._client, "scatter"):
            return DaskExecutor(self._shards, self._client)
        if callable(self._client):
            made = self._client(self._shards)
            if not isinstance(made, Executor):
                raise TypeError(f"client must make an Executor, got an object of type {type(made).__name__}.")
            return made
        raise ValueError(
            f"client must be a dask.distributed.Client, 'ray', a function that makes an Executor, or None, got "
            f"{self._client!r}."
        )


class _Result(NamedTuple):
    """Result with its shard's number, or sum with the number of summed shards; the numbers verify custom executors."""

    number: int
    result: Any


def _number_result(function, shard, broadcast):
    return _Result(shard.number, function(shard, broadcast))


def _count_result(function, shard, broadcast):
    return _Result(1, function(shard, broadcast))


def take_shards(shards: Shards, numbers: Iterable[int]) -> Shards:
    """Return the shards with the given numbers, renumbered from 0."""
    held = [shards._shards[number] for number in numbers]
    if len(held) == len(shards):
        return shards
    return shards._having(Shard(number, own.name, own.source) for number, own in enumerate(held))


def call_on_each_shard(estimator: Any, method: str, shards: Shards, evidence: Any = None, **options: Any) -> Any:
    """Call a method of a fitted estimator for each shard, and return the results."""
    if evidence is not None:
        raise ValueError(
            "evidence is not supported with Shards: pass X and evidence in memory, one part after another."
        )
    check_is_fitted(estimator)
    return shards.apply(estimator, method, **options)


def score_parts(estimator: Any, score: Callable, X: Any, y: Any = None, sample_weight: Any = None) -> list:
    """Compute ``score(estimator, X, y, sample_weight)``, for each shard of positive weight if X is Shards."""
    if not isinstance(X, Shards):
        return [score(estimator, X, y, sample_weight)]
    refuse_labels(y, sample_weight)
    check_is_fitted(estimator)
    found = [part for part in X.map(_score_shard, (estimator, score)) if part is not None]
    if not found:
        raise ValueError("Shards have no sample of positive weight to score: pass at least one.")
    return found


def compute_correct_share(parts: Iterable, nothing: str = "y has no labelled node") -> float:
    """Return the correctly predicted fraction, given the total weights of correct and of all nodes in each part."""
    # nothing: beginning of the error if the total weight is 0
    right, total = map(sum, zip(*parts, strict=True))
    if not total:
        raise ValueError(f"{nothing} of positive weight: there is nothing to score.")
    return right / total


def refuse_shards(caller: str) -> NoReturn:
    """Raise ValueError if Shards are passed to a caller that only supports arrays or lists."""
    raise ValueError(
        f"{caller} needs X in memory, got Shards: pass X and y as arrays or lists; choose an estimator that trains on "
        "Shards (field classifiers, fields of regression trees, MultiConditionalMFA and SequenceVectorizer); or get "
        "the results of each shard by shards.apply(estimator, method)."
    )


def refuse_labels(*given: Any) -> None:
    """Raise ValueError if labels or weights are passed along with Shards."""
    if any(each is not None for each in given):
        raise ValueError(
            "Shards get y and sample_weight from their load function: do not pass y or sample_weight as well."
        )


def require_one_vector_level(parts: Iterable) -> None:
    """Raise ValueError if the vector level of any part's process differs from the level of this process."""
    for part in parts:
        if part.vector_level != VECTOR_LEVEL:
            raise ValueError(
                f"{part.name} is on a worker with the vector level {part.vector_level!r}, but this process has "
                f"{VECTOR_LEVEL!r}, so results would depend on the worker: set SKLEARN_CRF_VECTOR_LEVEL=baseline in "
                "the environment of both."
            )


def _score_shard(shard, request):
    estimator, score = request
    X, y, weight = shard.load()
    with shard.named_in_errors():
        largest = 0.0 if weight is None else float(np.max(weight, initial=0.0))
        limit = 1e100  # maximum weight for which sums over all shards stay finite
        if largest > limit:
            raise ValueError(
                f"sample_weight must be at most {limit:g} to score shards, so that sums stay finite, found "
                f"{largest:g}: divide the weights of all shards by the same number."
            )
        if weight is not None and not np.any(weight):
            return None
        return score(copy_for_worker(estimator, shard), X, y, weight)


def copy_for_worker(estimator: Any, shard: Shard) -> Any:
    """Return the estimator or, if the shard is on a worker (which runs one thread per task), a single-threaded copy."""
    if shard.is_local or not hasattr(estimator, "n_jobs"):
        return estimator
    estimator = copy(estimator)
    estimator.n_jobs = 1
    return estimator


def _apply(shard, request):
    estimator, method, write, options = request
    X = shard.load()[0]
    with shard.named_in_errors():
        result = getattr(copy_for_worker(estimator, shard), method)(X, **options)
    return result if write is None else write(shard.number, result)


def _load_transformed(source, transformer):
    """Load a source, transform X, and return the data."""
    loaded = source()
    # Data of an invalid form are returned unchanged, because the caller that loads the shard raises an error.
    return (transformer.transform(loaded[0]), *loaded[1:]) if isinstance(loaded, tuple) else loaded


def _compute(delayed):
    # The computation is synchronous, because a worker already is one thread of a cluster.
    return delayed.compute(scheduler="synchronous")


def _read_examples(delayed):
    """Convert a computed list of examples to X, y and, if present, weights."""
    return tuple(map(list, zip(*_compute(delayed), strict=True)))
