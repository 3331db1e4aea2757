"""Executors for clusters, which keep shards in actors on the workers of dask or Ray."""

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
    """Raised if the cluster that holds the shards does not answer or has no workers left."""


class ClusterExecutor(Executor):
    """Base class of executors whose shards are in actors: objects that live in other processes of a cluster.

    Shards are dealt to actors in turn, or nearly so if their number is not a power of two. Each actor holds whole
    subtrees of :func:`~sklearn_crf.distributed.sum_in_tree_order` and sends back one sum for each. A function and its
    arguments are sent to an actor once for all its shards. If an actor dies, another one takes its place and loads its
    shards again.
    """

    name: ClassVar[str] = ""

    def __init__(self, shards: Sequence[Shard], n_actors: int) -> None:
        self._shards = list(shards)
        n_shards, order = len(self._shards), compute_tree_order(range(len(self._shards)))
        blocks = split_into_even_blocks(0, n_shards, n_actors)
        # Indices of the shards of each actor, and its subtrees, in the order of the leaves.
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
                # The actor works on its next shard while the caller uses the result of this one.
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
        """Return the results of a method of each actor, after replacing actors that have died."""
        requests = [(method, sent)] * len(self._actors)
        calls = [self._get_result_or_none(self._start, k, request) for k, request in enumerate(requests)]
        return [self._wait_for(k, *waiting) for k, waiting in enumerate(zip(calls, requests, strict=True))]

    def _wait_for(self, k, call, request):
        """Return the result of an actor, or of the actor that replaced it."""
        for _ in range(_MOST_WAITS):
            found = None if call is None else self._get_result_or_none(self._result, k, call)
            if found is not None:
                return found[0]
            self._replace(k)
            call = self._get_result_or_none(self._start, k, request)
        raise ClusterGoneError(f"Workers of the {self.name} cluster died {_MOST_WAITS} times in one pass over shards.")

    def _get_result_or_none(self, step, k, argument):
        """Return the result of a step on an actor, or None if the actor has died."""
        try:
            return step(k, argument)
        except Exception as error:
            if not self._is_of_actor(error):
                raise
            return None

    def _held(self, k):
        """Return the arguments of an actor's :class:`Holder`: its pickled shards, and the sizes of its subtrees."""
        # Dask would consider a worker broken if it cannot unpickle its arguments.
        shards = [self._shards[number] for number in self._numbers[k]]
        return self._dumps(shards), [high - low for low, high in self._subtrees[k]]

    def _dumps(self, data):
        """Pickle functions, even if they are not defined in a module, and their arguments, to be sent to all actors."""
        raise NotImplementedError(type(self).__name__)

    def _replace(self, k):
        """Create an actor, which replaces a dead actor if there is one."""
        raise NotImplementedError(type(self).__name__)

    def _start(self, k, request):
        """Start the call of a method of an actor, without waiting for it."""
        # request: name of the method, the result of ``_dumps``, and further arguments
        raise NotImplementedError(type(self).__name__)

    def _result(self, k, call):
        """Return the result of a call of an actor's method."""
        raise NotImplementedError(type(self).__name__)

    def _is_of_actor(self, error):
        """Return whether an error means that an actor died."""
        raise NotImplementedError(type(self).__name__)

    def _is_of_cluster(self, error):
        """Return whether an error means that the whole cluster has gone away."""
        raise NotImplementedError(type(self).__name__)


class DaskExecutor(ClusterExecutor):
    """Executor with shards on the workers of a dask cluster; each stays on one worker while the worker lives.

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
        """Return whether to call workers directly instead of through the scheduler, unless the user has decided."""
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
        """Return the number of threads of each worker by address; waits for workers that may be restarting."""
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
        # An actor, because a task would go through the scheduler, with several times the delay of an actor's call.
        self._actors[k] = self.client.submit(
            Holder, *self._held(k), workers[home], workers=[home], actor=True, pure=False
        )

    def _start(self, k, request):
        if not hasattr(self._actors[k], "results"):
            # Before the actor exists, this is a future that returns it.
            self._actors[k] = self._wait_while_alive(k, self._actors[k].result)
        method, *arguments = request
        return getattr(self._actors[k], method)(*arguments)

    def _result(self, k, call):
        return (self._wait_while_alive(k, call.result),)

    def _wait_while_alive(self, k, result):
        """Wait for a result while the worker lives: dask itself keeps waiting for workers that are gone."""
        while True:
            try:
                return result(timeout=_PATIENCE)
            except TimeoutError:
                if self._homes[k] not in self.client.nthreads():
                    raise _WorkerGoneError from None

    def _is_of_actor(self, error):
        # Do not replace an actor after ImportError: its successor would fail in the same way.
        return not isinstance(error, ImportError) and self._is_running()

    def _is_of_cluster(self, error):
        # Errors of functions are returned as results. Errors that are raised come from dask and have many types.
        return not self._is_running()

    def _is_running(self):
        """Return whether the cluster answers."""
        try:
            self.client.nthreads()
        except Exception:
            return False
        return self.client.status == "running"


class RayExecutor(ClusterExecutor):
    """Executor with shards in actors of a Ray cluster; each stays in one actor while the actor lives.

    There is an actor for each processor. If an actor dies, another one takes its place and loads its shards again.
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
        # Actors reserve no processors, because the actors of an earlier fit may still be alive.
        self._make_actor = ray.remote(scheduling_strategy="SPREAD")(Holder).remote
        super().__init__(shards, n_actors)

    def __del__(self):
        # At interpreter exit Ray may already be shut down.
        if getattr(self, "_actors", None) and self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor)

    def _dumps(self, data):
        sent = _pickle_with_buffers(partial(self._ray.cloudpickle.dumps, protocol=5), data)
        # Up to 64 KB are sent with each call, which is faster. More go to each machine once and are shared by
        # processes.
        return sent if sum(map(len, sent)) < 2**16 else self._ray.put(sent)

    def _replace(self, k):
        self._actors[k] = self._make_actor(*self._held(k), 1)

    def _start(self, k, request):
        method, *arguments = request
        return getattr(self._actors[k], method).remote(*arguments)

    def _result(self, k, call):
        return (self._ray.get(call),)

    def _is_of_actor(self, error):
        # An actor that could not be created, for instance because modules are missing, would fail again.
        is_broken = getattr(error, "actor_init_failed", False)
        return isinstance(error, self._ray.exceptions.RayActorError) and not is_broken

    def _is_of_cluster(self, error):
        return isinstance(error, self._ray.exceptions.RaySystemError | ConnectionError)


class Holder:
    """Shards in an actor, as the leaves of whole subtrees in order."""

    # sent: the pickled shards; subtrees: number of leaves of each subtree

    def __init__(self, sent, subtrees, n_threads):
        self._shards, self._subtrees = pickle.loads(sent[0], buffers=sent[1:]), subtrees
        self._threads = ThreadPoolExecutor(n_threads)

    def results(self, sent):
        """Return the results of a function for each shard, with errors as results."""
        return list(self._map_own(_catch_failure, sent))

    def sums(self, sent):
        """Return the sums of a function's results over each subtree, or the first error."""
        found = self._map_own(_call, sent)
        try:
            return [sum_leaves(found, size) for size in self._subtrees]
        except Exception as error:
            return _Failure(error)

    def result(self, sent, number):
        """Return the result of a function for the shard at a position in this actor, or its error."""
        return next(self._map_own(_catch_failure, sent, slice(number, number + 1)))

    def _map_own(self, call, sent, chosen=slice(None)):
        function, broadcast = pickle.loads(sent[0], buffers=sent[1:])
        return self._threads.map(lambda shard: call(function, shard, broadcast), self._shards[chosen])


def _pickle_with_buffers(dumps, data):
    """Pickle data and return its bytes, followed by arrays, which are not copied."""
    buffers: list = []
    head = dumps(data, buffer_callback=buffers.append)
    return [head, *(np.frombuffer(buffer, np.uint8) for buffer in buffers)]


def _call(function, shard, broadcast):
    return function(shard, broadcast)


class _Failure(NamedTuple):
    """An error of a function or loader, returned instead of raised: a cluster would hide it or take it for its own."""

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


class _WorkerGoneError(Exception):
    """Raised if the worker of an actor is no longer part of the cluster."""


# Seconds between two checks that a worker is alive, and maximum number of waits for an actor's worker.
_PATIENCE, _MOST_WAITS = 2.0, 30
