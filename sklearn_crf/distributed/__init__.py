"""Training data in shards, and executors that call functions on the shards."""

from sklearn_crf.distributed._clusters import ClusterExecutor, ClusterGoneError, DaskExecutor, RayExecutor
from sklearn_crf.distributed._executors import Executor, LocalExecutor, Shard
from sklearn_crf.distributed._replay import KeptObjects
from sklearn_crf.distributed._shards import (
    Shards,
    of_each_shard,
    on_worker,
    refuse_labels,
    refuse_shards,
    require_one_vector_level,
    scored_shards,
)
from sklearn_crf.distributed._sums import tree_sum

__all__ = ["Executor", "LocalExecutor", "Shard", "Shards"]
