"""Tuned constants of encoding and batching, and the trade-off of each.

``benchmarks/speed/threads.py`` times fits and predictions that depend on them.
"""

# Largest total number of edge features that batches store; more features are computed when they are used. For example,
# 200 images of 250 x 320 pixels with 12 features would take 1.7 GB, and computing the features of an image takes 20 ms,
# which is little compared with inference.
MOST_KEPT = 2**26

# Largest number of nodes of a batch with sparse edge features, which give every edge its own table. Two joined chains
# of 64 nodes with 44 states may have 190 tables, which take 3 MB. Every batch in progress has several such arrays.
MOST_NODES_OF_TABLES = 128

# Number of batches that threads prepare at a time, with examples in memory before and after. More batches take more
# memory; with fewer batches threads wait.
BATCHES_OF_A_LOT = 64

# Number of chains of a list that are checked together. More chains take more memory; fewer chains need more calls.
CHAINS_TOGETHER = 1024

# Largest number of edges whose constant features are stored instead of computed when used.
MOST_CONSTANT_EDGES = 2**16

# Largest number of node features whose differences on edges are quick to compute: each takes a few nanoseconds, but
# computing more features takes longer than reading them from memory.
FEW_FEATURES = 16

# Nodes that share rows take less space in caches, so a batch may hold more of them: at least LEAST_TIMES as many, and
# up to MOST_TIMES as many while at least N_BATCHES batches remain for threads to share.
LEAST_TIMES, MOST_TIMES, N_BATCHES = 4, 16, 8

# Number of examples that are checked together for NaN and infinity, and largest number of values that are copied for
# this.
EXAMPLES_TOGETHER, NUMBERS_TOGETHER = 256, 2**18

# Size in bytes from which threads share the checks of a table, and the number of its parts. The check of a smaller
# table ends before another thread begins.
FEW_BYTES, PARTS_OF_A_TABLE = 2**23, 64

# Number of nodes whose classes one task looks up. With fewer nodes, calls take more time than threads save.
LABELS_TOGETHER = 2**18
