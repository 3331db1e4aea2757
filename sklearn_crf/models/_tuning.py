"""Tuned constants of the models, with the trade-off behind each constant.

``benchmarks/peers/dense_speed.py`` times the filters of dense models.
"""

# Maximum number of cells of a dense table, 512 MiB in float64. Larger tables could exhaust memory.
MAX_DENSE_CELLS = 2**26

# Maximum number of joint states of a factor that becomes a node of a pairwise model.
# Every message of this model then has as many entries, and every edge table their square.
MOST_STATES_OF_NODE = 2**10

# Maximum number of edge types for which the work on each part of a lattice includes a scan of all types.
# With more types, the scan takes longer than the rest of the work on the part.
FEW_TYPES = 256

# Rows of at most this many values are scattered to the vertices of a permutohedral lattice. Longer rows are gathered.
LONGEST_SCATTERED = 4
