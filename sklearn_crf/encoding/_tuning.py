"""Tuned constants of encoding and batching, with the trade-off behind each constant.

``benchmarks/speed/threads.py`` times fits and predictions that depend on these constants.
"""

# Maximum total number of edge features that batches store. If there are more, all are computed when they are used.
# For example, storing the edge features of 200 images of 250 x 320 pixels with 12 features would take 1.7 GB.
# Computing the edge features of one of these images takes 20 ms, which is little compared with inference.
MOST_KEPT = 2**26

# Maximum number of nodes of a batch with sparse edge features, for which every edge has its own table.
# For example, two joined chains of 64 nodes with 44 states may have 190 tables, which take 3 MB.
# Several arrays of this size are in memory for every batch in progress.
MOST_NODES_OF_TABLES = 128

# Number of batches that threads prepare at a time, with unprepared and prepared examples in memory.
# A larger number of batches takes more memory; with a smaller number, threads have to wait.
BATCHES_OF_A_LOT = 64

# Number of chains that are checked together. A larger number takes more memory; a smaller number needs more calls.
CHAINS_TOGETHER = 1024

# Maximum number of edges for which constant features are stored. For more edges, they are computed when used.
MOST_CONSTANT_EDGES = 2**16

# Up to this number of node features, computing the differences on edges is faster than reading them from memory.
FEW_FEATURES = 16

# Nodes that share rows need less cache, so their batches are LEAST_TIMES to MOST_TIMES times as large as others.
# Batches of more than LEAST_TIMES the size of others are only used if N_BATCHES batches remain for threads to share.
LEAST_TIMES, MOST_TIMES, N_BATCHES = 4, 16, 8

# Number of examples that are checked together for NaN and infinity; maximum number of values copied for such a check.
EXAMPLES_TOGETHER, NUMBERS_TOGETHER = 256, 2**18

# Minimum size in bytes of tables that several threads check; number of parts into which such a table is divided.
# The check of a smaller table would end before a second thread could start.
FEW_BYTES, PARTS_OF_A_TABLE = 2**23, 64

# Number of nodes whose classes one task looks up. For fewer nodes, a task would cost more time than threads save.
LABELS_TOGETHER = 2**18
