"""Tuned constants of the models, with the trade-off behind each constant.

``benchmarks/peers/dense_speed.py`` times the filters of dense models.
"""

# Maximum number of cells of a dense table, which is 512 MiB in float64. Larger tables could exhaust memory.
MAX_DENSE_CELLS = 2**26

# Maximum number of cells of all tables of factors with costs in one prediction, which takes 100 bytes per cell.
MOST_EXPANDED_CELLS = 2**25

# Maximum number of joint states of a factor that becomes a node of a pairwise model.
# Every message of the node has this number of entries. An edge table has up to the square of this number.
MOST_STATES_OF_NODE = 2**10

# Maximum number of edge types for which work on a part of a lattice may include a scan of all types.
# With more types, the scan takes longer than the rest of the work on the part.
FEW_TYPES = 256

# Maximum length of rows of values that are scattered to the vertices of a permutohedral lattice.
# Longer rows are gathered.
LONGEST_SCATTERED = 4
