"""Tuned constants of encoding and batching, with the trade-off behind each constant.

``benchmarks/speed/threads.py`` times fits and predictions that depend on these constants.
"""

# Maximum total number of edge features that batches store. If there are more, they are computed when they are used.
# For example, the edge features of 200 images of 250 x 320 pixels with 12 features would take 1.7 GB.
# Computing the edge features of one of these images takes 20 ms, which is little compared with inference.
MOST_KEPT = 2**26

# Maximum number of nodes of a batch with sparse edge features, where every edge has its own table.
# Two joined chains of 64 nodes with 44 states may have 190 tables, which take 3 MB.
# Several arrays of this size are in memory for every batch in progress.
MOST_NODES_OF_TABLES = 128

# Number of batches that threads prepare at a time. Meanwhile, unprepared and prepared examples are in memory.
# More batches take more memory; with fewer batches, threads wait.
BATCHES_OF_A_LOT = 64

# Number of chains that are checked together. More chains take more memory; fewer chains need more calls.
CHAINS_TOGETHER = 1024

# Maximum number of edges for which constant features are stored, not computed when they are used.
MOST_CONSTANT_EDGES = 2**16

# Maximum number of node features for which differences on edges are computed faster than read from memory.
FEW_FEATURES = 16

# Nodes that share rows take less cache, so their batches are at least LEAST_TIMES times as large as other batches.
# The batches are up to MOST_TIMES times as large if at least N_BATCHES batches remain for threads to share.
LEAST_TIMES, MOST_TIMES, N_BATCHES = 4, 16, 8

# Number of examples that are checked together for NaN and infinity; maximum number of values copied for such a check.
EXAMPLES_TOGETHER, NUMBERS_TOGETHER = 256, 2**18

# Minimum size in bytes of tables that several threads check; number of parts into which such a table is divided.
# The check of a smaller table ends before a second thread starts.
FEW_BYTES, PARTS_OF_A_TABLE = 2**23, 64

# Number of nodes whose classes one task looks up. With fewer nodes, calls would take more time than threads save.
LABELS_TOGETHER = 2**18
