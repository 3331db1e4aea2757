"""Training data in parts: where they are, and who calls functions on them."""

from sklearn_crf.distributed._executors import ClusterExecutor, DaskExecutor, Executor, LocalExecutor, RayExecutor
from sklearn_crf.distributed._kept import KeptObjects
from sklearn_crf.distributed._shards import Shard, Shards, of_each_shard, on_worker, scored_shards
from sklearn_crf.distributed._sums import tree_sum

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
    "tree_sum",
]
