"""Executors, which store shards of training data and call functions on these shards."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sklearn_crf.distributed._sums import compute_tree_order, sum_in_tree_order, sum_leaves


class Shard:
    """One part of the training data, which exists in the process that works on this part.

    Parameters
    ----------
    number : int
        Index of the shard.
    name : str
        Name of the shard in errors, such as its path.
    source : callable() -> (X, y) or (X, y, sample_weight)
        Loads the data.

    Attributes
    ----------
    cache : dict
        Derived data that can be computed again. The data are dropped if memory is short, and are not sent with the
        shard.
    memory : dict
        State that functions store between calls.
    is_local : bool
        Whether the shard is the only shard in the calling process, so that several threads may process it.

    Examples
    --------
    >>> from sklearn_crf.distributed import Shard
    >>> Shard(0, "first", lambda: ([[0.0], [1.0]], [0, 1])).load()
    ([[0.0], [1.0]], [0, 1], None)
    """

    def __init__(self, number: int, name: str, source: Callable[[], tuple]) -> None:
        self.number = number
        self.name = name
        self.source = source
        self.cache: dict = {}
        self.memory: dict = {}
        self._outline: int | None = None
        self.is_local = True

    def __getstate__(self) -> dict:
        return {**self.__dict__, "cache": {}, "is_local": False}

    def load(self) -> tuple:
        """Load X, y and the sample weights of the shard.

        Returns
        -------
        tuple
            X, y and sample_weight, which is None if it was not loaded.

        Raises
        ------
        RuntimeError
            If loading fails. The error names the shard.
        ValueError
            If the loaded data are not a pair or triple, or their shapes differ from an earlier load.
        """
        try:
            loaded = self.source()
        except Exception as error:
            raise RuntimeError(f"load failed for {self.name}: {type(error).__name__}: {error}") from error
        if not isinstance(loaded, tuple) or len(loaded) not in (2, 3):
            found = f"a tuple of {len(loaded)}" if isinstance(loaded, tuple) else type(loaded).__name__
            raise ValueError(
                f"load must return the tuple (X, y) or (X, y, sample_weight), got {found} for {self.name}."
            )
        outline = hash(tuple(map(_shapes, loaded[:2])))
        if self._outline not in (None, outline):
            raise ValueError(
                f"load returned data for {self.name} whose shapes differ from an earlier call: training loads a shard "
                "many times, and needs the same data each time."
            )
        self._outline = outline
        return loaded if len(loaded) == 3 else (*loaded, None)

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Return a context manager that adds the name of the shard to each ValueError and TypeError."""
        try:
            yield
        except (ValueError, TypeError) as error:
            if not str(error).startswith(f"In {self.name}: "):
                error.args = (f"In {self.name}: {error}",)
            raise


def _shapes(values):
    """Return the shape of an array, or the shapes of the arrays in a list."""
    if hasattr(values, "shape"):
        return tuple(values.shape)
    if not isinstance(values, list | tuple):
        return -2
    return tuple(x.shape if hasattr(x, "shape") else len(x) if hasattr(x, "__len__") else -1 for x in values)


class Executor:
    """Base class of executors, which store the shards of a :class:`~sklearn_crf.Shards` and call functions on them.

    A shard stays in one process, along with the state that functions store in its ``memory``. If this process is lost,
    the shard is loaded again in another process, with an empty memory.

    Examples
    --------
    >>> from sklearn_crf.distributed import LocalExecutor, Shard
    >>> shards = [Shard(k, str(k), lambda k=k: ([[float(k)]], [k])) for k in range(3)]
    >>> LocalExecutor(shards).map(lambda shard, factor: factor * shard.load()[1][0], 10)
    [0, 10, 20]
    """

    def map(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> list:
        """Call a function on every shard.

        Parameters
        ----------
        function : callable(shard, broadcast) -> object
            Module-level function, which other processes can import. The function may be called more than once on a
            shard.
        broadcast : object
            Argument that is sent to every worker.

        Returns
        -------
        list
            Results in the order of the shards.

        Raises
        ------
        ClusterGoneError
            If the shards are on a cluster that no longer answers.
        """
        raise NotImplementedError(type(self).__name__)

    def iterate(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> Iterator:
        """Call a function on every shard and yield the results one by one.

        This implementation calls :meth:`map`. Executors can override this method, so that only a few results are in
        memory.

        Parameters
        ----------
        function : callable(shard, broadcast) -> object
            See :meth:`map`.
        broadcast : object

        Returns
        -------
        iterator
            Results in the order of the shards.
        """
        yield from self.map(function, broadcast)

    def sum(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> Any:
        """Call a function on every shard and return the sum of the results.

        This implementation sums the results of :meth:`map`. Executors override this method if they can sum the results
        in the processes that have the shards.

        Parameters
        ----------
        function : callable(shard, broadcast) -> object
            See :meth:`map`. Its results are numbers, arrays, or tuples, lists or data classes of numbers and arrays.
        broadcast : object

        Returns
        -------
        object
            The :func:`~sklearn_crf.distributed.sum_in_tree_order` of the results.
        """
        return sum_in_tree_order(self.map(function, broadcast))


class LocalExecutor(Executor):
    """Executor that processes shards in this process, one after the other.

    Parameters
    ----------
    shards : sequence of Shard
    keep : bool, default=True
        Whether the cached data of a shard stay in memory. If False, they are dropped before the next shard is loaded.

    Examples
    --------
    >>> from sklearn_crf.distributed import LocalExecutor, Shard
    >>> shards = [Shard(k, str(k), lambda k=k: ([[float(k)]], [k])) for k in range(3)]
    >>> LocalExecutor(shards, keep=False).map(lambda shard, broadcast: shard.name, None)
    ['0', '1', '2']
    """

    def __init__(self, shards: Sequence[Shard], keep: bool = True) -> None:
        self.shards = list(shards)
        self.keep = keep

    def map(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> list:
        return list(self.iterate(function, broadcast))

    def iterate(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> Iterator:
        return (self._call(function, shard, broadcast) for shard in self.shards)

    def sum(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> Any:
        order = compute_tree_order(range(len(self.shards)))
        return sum_leaves((self._call(function, self.shards[k], broadcast) for k in order), len(order))

    def _call(self, function, shard, broadcast):
        try:
            return function(shard, broadcast)
        finally:
            if not self.keep:
                shard.cache.clear()
