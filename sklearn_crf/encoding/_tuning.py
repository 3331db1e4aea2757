"""Constants of encoding and packing that were tuned, and what each trades.

``benchmarks/speed/threads.py`` times fits and predictions that go through them.
"""

# Edge features of this many numbers in all are kept with the batches; of more, they are computed where they are used:
# 200 images of 250 x 320 pixels with 12 features would keep 1.7 GB, and 20 ms each to compute are little next to
# inference.
MOST_KEPT = 2**26

# Sparse edge features give every edge a table: 190 of 44 x 44 states, as of two joined chains of 64 nodes, take 3 MB.
# Several such arrays exist for each of the batches that are worked on together.
MOST_NODES_OF_TABLES = 128

# Batches whose examples are in memory before and after they are prepared, where threads share them. More batches take
# memory, fewer leave threads waiting.
BATCHES_OF_A_LOT = 64

# Chains of a list that are looked at together: more of them take memory, fewer cost calls.
CHAINS_TOGETHER = 1024

# Constant features of more edges are rather made again than kept.
MOST_CONSTANT_EDGES = 2**16

# Most features of nodes whose differences on edges are computed wherever they are used: they take a few nanoseconds
# each, more of them longer than to read them from memory.
FEW_FEATURES = 16

# Nodes that share rows take less of the caches than others: so many times more may be in a batch, at least where there
# are many, and at most while there is a number of batches for threads to share.
LEAST_TIMES, MOST_TIMES, N_BATCHES = 4, 16, 8

# Examples looked at together to tell whether their shapes agree, and numbers that are copied for it.
EXAMPLES_TOGETHER, NUMBERS_TOGETHER = 256, 2**18

# Bytes of a table from which threads share its checks, and its parts: smaller tables are checked before another thread
# has begun.
FEW_BYTES, PARTS_OF_A_TABLE = 2**23, 64

# Nodes whose classes are looked up in one task: fewer cost more calls than threads save.
LABELS_TOGETHER = 2**18
