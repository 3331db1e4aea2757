"""Executors: who holds the shards of training data, and calls functions where they are."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from threading import Lock
from time import sleep
from typing import Any, NamedTuple


class Shard:
    """One part of the training data, where it is worked on.

    Parameters
    ----------
    number : int
        Its place among the shards.
    name : str
        What errors call it, such as its path.
    source : callable() -> (X, y) or (X, y, sample_weight)
        Loads it.

    Attributes
    ----------
    cache : dict
        What can be worked out again: dropped where memory is short, and left behind where the shard moves.
    memory : dict
        What functions keep from call to call.
    is_local : bool
        Whether it is in the process that asks, and alone there, so that several threads may work on it.
    lock : threading.Lock
        For workers with several threads: after one is lost, others may be asked again for what they still work on.

    Examples
    --------
    >>> from sklearn_crf.distributed import Shard
    >>> Shard(0, "first", lambda: ([[0.0], [1.0]], [0, 1])).load()
    ([[0.0], [1.0]], [0, 1], None)
    """

    def __init__(self, number: int, name: str, source: Callable[[], tuple]):
        self.number = number
        self.name = name
        self.source = source
        self.cache: dict = {}
        self.memory: dict = {}
        self.is_local = True
        self.lock = Lock()

    def __getstate__(self) -> dict:
        return {**self.__dict__, "cache": {}, "is_local": False, "lock": None}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state, lock=Lock())

    def load(self) -> tuple:
        """Load the data.

        Returns
        -------
        tuple
            X, y and sample_weight, None for the last where there is none.

        Raises
        ------
        RuntimeError
            If loading fails, naming the shard.
        ValueError
            If what is loaded is no pair or triple.
        """
        try:
            loaded = self.source()
        except Exception as error:
            raise RuntimeError(f"load failed for {self.name}: {type(error).__name__}: {error}") from error
        if not isinstance(loaded, tuple) or len(loaded) not in (2, 3):
            raise ValueError(
                f"load must return the tuple (X, y) or (X, y, sample_weight), got {type(loaded).__name__} for "
                f"{self.name}."
            )
        return loaded if len(loaded) == 3 else (*loaded, None)

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Context that says in a ValueError which shard it is about."""
        try:
            yield
        except ValueError as error:
            error.args = (f"In {self.name}: {error}",)
            raise


class Executor:
    """Base of what holds the shards of a :class:`~sklearn_crf.Shards`, and calls functions on them.

    A shard stays where it is, with what functions keep in its ``memory``. If that is lost, because a worker is, the
    shard is loaded again elsewhere and its memory is empty.

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
            A function of a module, which processes can import. It may be called more than once on a shard.
        broadcast : object
            Sent to every worker.

        Returns
        -------
        list
            Results in the order of the shards.

        Raises
        ------
        RuntimeError
            If the shards are on a cluster, and that goes away.
        """
        raise NotImplementedError(type(self).__name__)


class LocalExecutor(Executor):
    """Shards in this process, one after the other.

    Parameters
    ----------
    shards : sequence of Shard
    keep : bool, default=True
        Whether what functions cache of a shard stays in memory, or goes before the next shard is loaded.

    Examples
    --------
    >>> from sklearn_crf.distributed import LocalExecutor, Shard
    >>> shards = [Shard(k, str(k), lambda k=k: ([[float(k)]], [k])) for k in range(3)]
    >>> LocalExecutor(shards, keep=False).map(lambda shard, broadcast: shard.name, None)
    ['0', '1', '2']
    """

    def __init__(self, shards: Sequence[Shard], keep: bool = True):
        self.shards = list(shards)
        self.keep = keep

    def map(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> list:
        return [self._call(function, shard, broadcast) for shard in self.shards]

    def _call(self, function, shard, broadcast):
        try:
            return function(shard, broadcast)
        finally:
            if not self.keep:
                shard.cache.clear()


class DaskExecutor(Executor):
    """Shards on the workers of a dask cluster, each on the same worker for as long as that lives.

    Shards are dealt out in turn. Those of a worker that dies are loaded again by others.

    Parameters
    ----------
    shards : sequence of Shard
    client : dask.distributed.Client

    Raises
    ------
    RuntimeError
        If the cluster has no workers.

    Examples
    --------
    >>> from dask.distributed import Client  # doctest: +SKIP
    >>> from sklearn_crf.distributed import DaskExecutor, Shard
    >>> shards = [Shard(k, str(k), lambda k=k: ([[float(k)]], [k])) for k in range(3)]
    >>> DaskExecutor(shards, Client()).map(
    ...     lambda shard, broadcast: shard.name, None
    ... )  # doctest: +SKIP
    ['0', '1', '2']
    """

    def __init__(self, shards: Sequence[Shard], client: Any):
        self.client = client
        self._shards = list(shards)
        self._homes: list[str] = [""] * len(self._shards)
        self._placed: list = [None] * len(self._shards)
        self._place(self._workers())

    def _workers(self):
        """Addresses of the workers, some of which may be about to come back."""
        for _ in range(_MOST_WAITS):
            found = sorted(self.client.nthreads())
            if found:
                return found
            sleep(_PATIENCE)
        raise RuntimeError("The dask cluster of client has no workers: start some, and fit with a new client.")

    def _place(self, workers):
        """Give the shards that have no home among the workers a new one."""
        for k, shard in enumerate(self._shards):
            if self._homes[k] not in workers:
                self._homes[k] = workers[k % len(workers)]
                self._placed[k] = self._submit(_unchanged, k, shard)

    def _submit(self, function, k, *arguments):
        # Where a worker dies, another takes over its tasks without delay.
        return self.client.submit(function, *arguments, workers=[self._homes[k]], allow_other_workers=True, pure=False)

    def map(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> list:
        try:
            while True:
                tasks = self._submit_all(function, broadcast)
                if self._have_ended(tasks):
                    return self.client.gather(tasks)
                self._place(self._workers())
        except Exception as error:
            # Errors of functions and loaders are Python's own; dask has many kinds, in several modules.
            if not (isinstance(error, OSError | CancelledError) or type(error).__module__.startswith("distributed")):
                raise
            raise RuntimeError(
                f"The dask cluster went away while {len(self._shards)} shards were worked on "
                f"({type(error).__name__}): start one, and fit with a new client."
            ) from error

    def _submit_all(self, function, broadcast):
        import dask
        from distributed.protocol.pickle import dumps

        sent = dumps(broadcast)
        if len(sent) * len(self._placed) > _FEW_BYTES:
            # A task of its own, so that the data go to each worker once, and are there again after a worker is lost.
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
                sent = self.client.submit(_unchanged, sent, pure=False)
        return [self._submit(_on_bytes, k, function, shard, sent) for k, shard in enumerate(self._placed)]

    def _have_ended(self, tasks):
        """Wait for the tasks, as long as all workers live: without any, dask forgets that others may take over."""
        from distributed import wait

        while True:
            try:
                wait(tasks, timeout=_PATIENCE)
            except TimeoutError:
                if set(self._homes) <= set(self.client.nthreads()):
                    continue
                return False
            return True


class RayExecutor(Executor):
    """Shards in actors of a Ray cluster, each in the same actor for as long as that lives.

    There is an actor for each processor. Shards are dealt out in turn. Those of an actor that dies are loaded again by
    another one in its place.

    Parameters
    ----------
    shards : sequence of Shard

    Raises
    ------
    RuntimeError
        If ``ray.init`` was not called before, or the cluster has no processors.

    Examples
    --------
    >>> import ray  # doctest: +SKIP
    >>> from sklearn_crf.distributed import RayExecutor, Shard
    >>> ray.init()  # doctest: +SKIP
    >>> shards = [Shard(k, str(k), lambda k=k: ([[float(k)]], [k])) for k in range(3)]
    >>> RayExecutor(shards).map(lambda shard, broadcast: shard.name, None)  # doctest: +SKIP
    ['0', '1', '2']
    """

    def __init__(self, shards: Sequence[Shard]):
        import ray

        if not ray.is_initialized():
            raise RuntimeError("client='ray' needs a connection to a Ray cluster: call ray.init() before.")
        self._ray = ray
        self._shards = list(shards)
        n_actors = min(int(ray.cluster_resources().get("CPU", 0)), len(self._shards))
        if not n_actors:
            raise RuntimeError("The Ray cluster has no processors: start it with some, as by ray.init(num_cpus=2).")
        # They reserve no processors: the actors of a fit before this one may not have gone yet.
        self._make_actor = ray.remote(scheduling_strategy="SPREAD")(_Holder).remote
        self._actors = [self._make_actor(self._shards[k::n_actors]) for k in range(n_actors)]

    def __del__(self):
        # At the end of the interpreter Ray may have gone before.
        if getattr(self, "_actors", None) and self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor)

    def map(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> list:
        exceptions = self._ray.exceptions
        try:
            found = self._of_actors(function, self._ray.put(broadcast))
        except (exceptions.RaySystemError, exceptions.RayActorError, ConnectionError) as error:
            raise RuntimeError(
                f"The Ray cluster went away while {len(self._shards)} shards were worked on ({type(error).__name__}): "
                "start one, and fit again."
            ) from error
        results: list = [None] * len(self._shards)
        for k, part in enumerate(found):
            results[k :: len(found)] = part
        for result in results:
            if isinstance(result, _Failure):
                raise result.error
        return results

    def _of_actors(self, function, sent):
        """Results of each actor, those that have died replaced."""
        tasks = [actor.call.remote(function, sent) for actor in self._actors]
        found: list = [None] * len(tasks)
        for k in range(len(tasks)):
            for _ in range(_MOST_WAITS):
                try:
                    found[k] = self._ray.get(tasks[k])
                    break
                except self._ray.exceptions.RayActorError:
                    self._actors[k] = self._make_actor(self._shards[k :: len(tasks)])
                    tasks[k] = self._actors[k].call.remote(function, sent)
            else:
                raise RuntimeError(f"Workers of the Ray cluster died {_MOST_WAITS} times in one pass over the shards.")
        return found


class _Failure(NamedTuple):
    """An error of a function or loader, as it was raised: Ray would hide it in a trace of the worker."""

    error: Exception


class _Holder:
    """Shards in an actor of Ray."""

    def __init__(self, shards):
        self._shards = shards

    def call(self, function, broadcast):
        return [self._call(function, shard, broadcast) for shard in self._shards]

    def _call(self, function, shard, broadcast):
        try:
            return function(shard, broadcast)
        except Exception as error:
            return _Failure(error)


# Seconds between two looks at the workers, and how many times one waits for the first of them.
_PATIENCE, _MOST_WAITS = 2.0, 30


# Little data go out with every task: tasks that wait for another one to hand them out take a quarter longer.
_FEW_BYTES = 2**20


def _on_bytes(function, shard, sent):
    from distributed.protocol.pickle import loads

    with shard.lock:
        return function(shard, loads(sent))


def _unchanged(data):
    return data
