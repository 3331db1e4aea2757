"""Shards of training data, and executors that call functions on shards."""

from sklearn_crf.distributed._clusters import ClusterExecutor, ClusterGoneError, DaskExecutor, RayExecutor
from sklearn_crf.distributed._executors import Executor, LocalExecutor, Shard
from sklearn_crf.distributed._replay import KeptObjects
from sklearn_crf.distributed._shards import (
    Shards,
    call_on_each_shard,
    compute_correct_share,
    copy_for_worker,
    refuse_labels,
    refuse_shards,
    require_one_vector_level,
    score_parts,
    take_shards,
)
from sklearn_crf.distributed._sums import sum_in_tree_order

__all__ = ["Executor", "LocalExecutor", "Shard", "Shards"]
