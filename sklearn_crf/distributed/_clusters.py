"""Executors for clusters of dask or Ray, which store shards in actors on the workers."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from operator import itemgetter
from time import sleep
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sklearn_crf.distributed._executors import Executor, Shard
from sklearn_crf.distributed._sums import compute_tree_order, find_whole_subtrees, split_into_even_blocks, sum_leaves


class ClusterGoneError(RuntimeError):
    """Error raised if the cluster that holds the shards does not answer or has no workers left."""


class ClusterExecutor(Executor):
    """Base class of executors whose shards are in actors, which are objects in the processes of a cluster.

    Shards are assigned to actors in turn, or nearly in turn if the number of actors is not a power of two. Each actor
    has whole subtrees of :func:`~sklearn_crf.distributed.sum_in_tree_order`, and returns one sum for each subtree. A
    function and its arguments are sent once to each actor, not once per shard. If an actor dies, another actor replaces
    it and loads its shards again.
    """

    name: ClassVar[str] = ""

    def __init__(self, shards: Sequence[Shard], n_actors: int) -> None:
        self._shards = list(shards)
        n_shards, order = len(self._shards), compute_tree_order(range(len(self._shards)))
        blocks = split_into_even_blocks(0, n_shards, n_actors)
        # For each actor, the indices of its shards and its subtrees, both in the order of the leaves.
        self._numbers = [order[start:stop] for start, stop in blocks]
        self._subtrees = [find_whole_subtrees(start, stop, 0, n_shards) for start, stop in blocks]
        self._actors: list = [None] * n_actors
        for k in range(n_actors):
            self._replace(k)

    def map(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> list:
        with self._name_cluster_in_errors():
            found = self._collect_actor_results("results", self._dumps((function, broadcast)))
        numbered = zip(chain.from_iterable(self._numbers), chain.from_iterable(found), strict=True)
        return [_require_success(result) for _, result in sorted(numbered, key=itemgetter(0))]

    def sum(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> Any:
        with self._name_cluster_in_errors():
            found = self._collect_actor_results("sums", self._dumps((function, broadcast)))
        parts = (part for of_actor in found for part in _require_success(of_actor))
        summed = {subtree for subtrees in self._subtrees for subtree in subtrees}
        return sum_leaves(parts, len(self._shards), summed)

    def iterate(self, function: Callable[[Shard, Any], Any], broadcast: Any) -> Iterator:
        sent = self._dumps((function, broadcast))
        places = {number: (k, n) for k, numbers in enumerate(self._numbers) for n, number in enumerate(numbers)}
        waiting = [iter(sorted(numbers)) for numbers in self._numbers]
        calls: dict[int, Any] = {}

        def start_next_of(k):
            number = next(waiting[k], None)
            if number is not None:
                calls[number] = self._get_result_or_none(self._start, k, ("result", sent, places[number][1]))

        with self._name_cluster_in_errors():
            for k in range(len(self._actors)):
                start_next_of(k)
        for number, (k, n) in sorted(places.items()):
            with self._name_cluster_in_errors():
                # Start the actor's next shard now, so that the actor works while the caller uses the result.
                start_next_of(k)
                found = self._wait_for(k, calls.pop(number), ("result", sent, n))
            yield _require_success(found)

    @contextmanager
    def _name_cluster_in_errors(self):
        try:
            yield
        except Exception as error:
            if not self._is_of_cluster(error):
                raise
            raise ClusterGoneError(
                f"The {self.name} cluster was lost while it processed {len(self._shards)} shards "
                f"({type(error).__name__}): start a cluster, and fit with new shards."
            ) from error

    def _collect_actor_results(self, method, sent):
        """Call a method of each actor, and return the results; actors that have died are replaced."""
        requests = [(method, sent)] * len(self._actors)
        calls = [self._get_result_or_none(self._start, k, request) for k, request in enumerate(requests)]
        return [self._wait_for(k, *waiting) for k, waiting in enumerate(zip(calls, requests, strict=True))]

    def _wait_for(self, k, call, request):
        """Wait for the result of an actor, or of the actor that replaced it."""
        for _ in range(_MOST_WAITS):
            found = None if call is None else self._get_result_or_none(self._result, k, call)
            if found is not None:
                return found[0]
            self._replace(k)
            call = self._get_result_or_none(self._start, k, request)
        raise ClusterGoneError(f"Workers of the {self.name} cluster died {_MOST_WAITS} times in one pass over shards.")

    def _get_result_or_none(self, step, k, argument):
        """Call ``step`` for an actor, and return the result, or None if the actor has died."""
        try:
            return step(k, argument)
        except Exception as error:
            if not self._is_of_actor(error):
                raise
            return None

    def _held(self, k):
        """Return the arguments for the :class:`Holder` of an actor: pickled shards, and the sizes of its subtrees."""
        # Pass pickled shards, because dask considers a worker broken if it cannot unpickle arguments.
        shards = [self._shards[number] for number in self._numbers[k]]
        return self._dumps(shards), [high - low for low, high in self._subtrees[k]]

    def _dumps(self, data):
        """Pickle a function and its arguments for all actors, even if the function is not defined in a module."""
        raise NotImplementedError(type(self).__name__)

    def _replace(self, k):
        """Create actor number k, or replace it if it has died."""
        raise NotImplementedError(type(self).__name__)

    def _start(self, k, request):
        """Start to call a method of an actor, without waiting for the result."""
        # request: name of the method, the result of ``_dumps``, and further arguments
        raise NotImplementedError(type(self).__name__)

    def _result(self, k, call):
        """Wait for the result of a call that :meth:`_start` has started."""
        raise NotImplementedError(type(self).__name__)

    def _is_of_actor(self, error):
        """Return whether an error means that an actor died."""
        raise NotImplementedError(type(self).__name__)

    def _is_of_cluster(self, error):
        """Return whether an error means that the whole cluster is lost."""
        raise NotImplementedError(type(self).__name__)


class DaskExecutor(ClusterExecutor):
    """Executor with shards on the workers of a dask cluster. A shard stays on its worker as long as the worker lives.

    If a worker dies, another worker loads its shards again.
    """

    name = "dask"

    def __init__(self, shards: Sequence[Shard], client: Any) -> None:
        self.client = client
        n_actors = min(len(self._count_worker_threads()), len(shards))
        self._homes = [""] * n_actors
        self._calls_directly = self._reaches_workers()
        super().__init__(shards, n_actors)

    def _reaches_workers(self):
        """Return whether to call workers directly; unless the user has chosen, test whether direct calls work."""
        if self.client.direct_to_workers is not None:
            return self.client.direct_to_workers
        home = next(iter(self._count_worker_threads()))
        try:
            self.client.sync(self.client.rpc(home).identity, callback_timeout=_PATIENCE)
        except (OSError, TimeoutError):
            return False
        return True

    @contextmanager
    def _name_cluster_in_errors(self):
        chosen = self.client.direct_to_workers
        # Actors reach workers through the current client, which may belong to another cluster.
        with super()._name_cluster_in_errors(), self.client.as_current():
            self.client.direct_to_workers = self._calls_directly
            try:
                yield
            finally:
                self.client.direct_to_workers = chosen

    def _count_worker_threads(self):
        """Return the number of threads of each worker, by address; if there are no workers, wait for new workers."""
        for _ in range(20 * _MOST_WAITS):
            found = self.client.nthreads()
            if found:
                return dict(sorted(found.items()))
            sleep(_PATIENCE / 20)
        raise ClusterGoneError("The dask cluster of client has no workers: start workers, and fit with a new client.")

    def _dumps(self, data):
        from distributed.protocol.pickle import dumps

        return _pickle_with_buffers(dumps, data)

    def _replace(self, k):
        workers = self._count_worker_threads()
        free = [home for home in workers if home not in self._homes]
        self._homes[k] = home = (free or list(workers))[k % len(free or workers)]
        # Use an actor, because calls of tasks go through the scheduler and take several times as long.
        self._actors[k] = self.client.submit(
            Holder, *self._held(k), workers[home], workers=[home], actor=True, pure=False
        )

    def _start(self, k, request):
        if not hasattr(self._actors[k], "results"):
            # Until the actor exists, its entry in the list is a future that returns the actor.
            self._actors[k] = self._wait_while_alive(k, self._actors[k].result)
        method, *arguments = request
        return getattr(self._actors[k], method)(*arguments)

    def _result(self, k, call):
        return (self._wait_while_alive(k, call.result),)

    def _wait_while_alive(self, k, result):
        """Wait for a result only while the worker is alive, because dask would wait forever for a lost worker."""
        while True:
            try:
                return result(timeout=_PATIENCE)
            except TimeoutError:
                if self._homes[k] not in self.client.nthreads():
                    raise ConnectionError("The worker is no longer part of the cluster.") from None

    def _is_of_actor(self, error):
        # Do not replace an actor after an ImportError, because the new actor would fail in the same way.
        return not isinstance(error, ImportError) and self._is_running()

    def _is_of_cluster(self, error):
        # Errors of functions are returned as results. All errors that are raised come from dask and have many types.
        return not self._is_running()

    def _is_running(self):
        """Return whether the cluster answers."""
        try:
            self.client.nthreads()
        except Exception:
            return False
        return self.client.status == "running"


class RayExecutor(ClusterExecutor):
    """Executor with shards in actors of a Ray cluster. A shard stays in its actor as long as the actor lives.

    There is one actor for each processor. If an actor dies, another actor replaces it and loads its shards again.
    """

    name = "Ray"

    def __init__(self, shards: Sequence[Shard]) -> None:
        import ray

        if not ray.is_initialized():
            raise RuntimeError("client='ray' needs a connection to a Ray cluster: call ray.init() first.")
        self._ray = ray
        n_actors = min(int(ray.cluster_resources().get("CPU", 0)), len(shards))
        if not n_actors:
            raise RuntimeError(
                "The Ray cluster has no processors: start it with processors, for example ray.init(num_cpus=2)."
            )
        # Actors reserve no processors, because actors of an earlier fit may still be alive.
        self._make_actor = ray.remote(scheduling_strategy="SPREAD")(Holder).remote
        super().__init__(shards, n_actors)

    def __del__(self):
        # When the interpreter exits, Ray may already have been shut down.
        if getattr(self, "_actors", None) and self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor)

    def _dumps(self, data):
        sent = _pickle_with_buffers(partial(self._ray.cloudpickle.dumps, protocol=5), data)
        # Send data of less than 64 KB with each call, because storing the data first would take longer.
        # Store larger data, so that the data are sent only once to each machine, where processes share them.
        return sent if sum(map(len, sent)) < 2**16 else self._ray.put(sent)

    def _replace(self, k):
        self._actors[k] = self._make_actor(*self._held(k), 1)

    def _start(self, k, request):
        method, *arguments = request
        return getattr(self._actors[k], method).remote(*arguments)

    def _result(self, k, call):
        return (self._ray.get(call),)

    def _is_of_actor(self, error):
        # If an actor could not be created, for instance because modules are missing, a new actor would also fail.
        is_broken = getattr(error, "actor_init_failed", False)
        return isinstance(error, self._ray.exceptions.RayActorError) and not is_broken

    def _is_of_cluster(self, error):
        return isinstance(error, self._ray.exceptions.RaySystemError | ConnectionError)


class Holder:
    """Shards of one actor, which are the leaves of whole subtrees, in the order of the leaves."""

    # sent: the pickled shards
    # subtrees: number of leaves of each subtree

    def __init__(self, sent, subtrees, n_threads):
        self._shards, self._subtrees = pickle.loads(sent[0], buffers=sent[1:]), subtrees
        self._threads = ThreadPoolExecutor(n_threads)

    def results(self, sent):
        """Call a function for each shard, and return the results, or errors in place of the results of failed calls."""
        return list(self._map_own(_catch_failure, sent))

    def sums(self, sent):
        """Call a function for each shard; return the sum of the results for each subtree, or only the first error."""
        found = self._map_own(lambda function, *arguments: function(*arguments), sent)
        try:
            return [sum_leaves(found, size) for size in self._subtrees]
        except Exception as error:
            return _Failure(error)

    def result(self, sent, number):
        """Call a function for the shard at the given position in this actor, and return the result or the error."""
        return next(self._map_own(_catch_failure, sent, slice(number, number + 1)))

    def _map_own(self, call, sent, chosen=slice(None)):
        function, broadcast = pickle.loads(sent[0], buffers=sent[1:])
        return self._threads.map(lambda shard: call(function, shard, broadcast), self._shards[chosen])


def _pickle_with_buffers(dumps, data):
    """Pickle data; return a list of the pickle and, without copies, the contents of large arrays."""
    buffers: list = []
    head = dumps(data, buffer_callback=buffers.append)
    return [head, *(np.frombuffer(buffer, np.uint8) for buffer in buffers)]


class _Failure(NamedTuple):
    """Error of a function or loader, which is returned because a cluster might hide or misinterpret a raised error."""

    error: Exception


def _require_success(result):
    if isinstance(result, _Failure):
        raise result.error
    return result


def _catch_failure(function, shard, broadcast):
    try:
        return function(shard, broadcast)
    except Exception as error:
        return _Failure(error)


# Seconds between two checks that a worker is alive; maximum number of replacements of an actor in one pass.
# The maximum time to wait for new workers is the product of both numbers.
_PATIENCE, _MOST_WAITS = 2.0, 30
