"""Constants of Gaussian inference that were tuned, and what each trades.

``benchmarks/speed/rtf_scaling.py`` times it in tree fields.
"""

# Numbers worth a partial sum of their own: shorter ranges cost more to call than to compute.
SMALLEST_RANGE = 2**14

# Numbers of all iterations of one call, after which it may be interrupted. Fewer cost calls.
NUMBERS_AT_ONCE = 2**20

# Columns of the inverse computed at once: more take memory, fewer cost calls.
COLUMNS_AT_ONCE = 256

# Pixels of a tile without its margin, the margin that tiles start with, and tiles whose means are in memory at once.
# Larger tiles and margins take more memory and fewer rounds.
TILE, MARGIN, TILES_AT_ONCE = 512 * 512, 32, 16

# Shares of the tolerance: of the solves of tiles, and of what tiles disagree about at their seams. Together they must
# stay below one; less for the first takes iterations, less for the second wider margins.
SHARE_OF_SOLVES, SHARE_OF_SEAMS = 0.5, 0.4
