"""Training data in parts: where they are, and who calls functions on them."""

from sklearn_crf.distributed._executors import ClusterExecutor, DaskExecutor, Executor, LocalExecutor, RayExecutor
from sklearn_crf.distributed._kept import KeptObjects
from sklearn_crf.distributed._shards import Shard, Shards, of_each_shard, on_worker, scored_shards

__all__ = [
    "ClusterExecutor",
    "DaskExecutor",
    "Executor",
    "KeptObjects",
    "LocalExecutor",
    "RayExecutor",
    "Shard",
    "Shards",
    "of_each_shard",
    "on_worker",
    "scored_shards",
]
