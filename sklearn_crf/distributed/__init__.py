"""Training data in parts: where they are, and who calls functions on them."""

from sklearn_crf.distributed._executors import ClusterExecutor, DaskExecutor, Executor, LocalExecutor, RayExecutor
from sklearn_crf.distributed._shards import Shard, Shards, on_worker

__all__ = [
    "ClusterExecutor",
    "DaskExecutor",
    "Executor",
    "LocalExecutor",
    "RayExecutor",
    "Shard",
    "Shards",
    "on_worker",
]
