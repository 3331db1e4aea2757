"""Constants of models that were tuned, and what each trades.

``benchmarks/peers/dense_speed.py`` times the filters of dense models.
"""

# Cells of the largest table that is written out in full, 512 MiB: a larger one would fail for want of memory.
MAX_DENSE_CELLS = 2**26

# Types of edges of which each part of a lattice may look at all: more of them take longer than a part.
FEW_TYPES = 256

# Rows of at most so many values are scattered to the vertices of a permutohedral lattice, longer ones gathered there.
LONGEST_SCATTERED = 4
