"""Tuned constants of Gaussian inference, with the trade-off behind each constant.

``benchmarks/speed/rtf_scaling.py`` measures the speed of Gaussian inference in tree fields.
"""

# Minimum number of values for a separate partial sum: for fewer, the call costs more than the computation.
SMALLEST_RANGE = 2**14

# Number of values that one call processes, summed over its iterations.
# A smaller number needs more calls, but Ctrl-C is only noticed between calls.
NUMBERS_AT_ONCE = 2**20

# Number of columns of the inverse computed at once. More columns take more memory, fewer columns cost more calls.
COLUMNS_AT_ONCE = 256

# Number of pixels of a tile without margin, initial margin, and number of tiles whose means are in memory at once.
# Larger tiles and margins take more memory and fewer rounds.
TILE, MARGIN, TILES_AT_ONCE = 512 * 512, 32, 16

# Fractions of the tolerance for the solves of tiles and for their disagreement at seams. Their sum must be below one.
# With a smaller fraction for solves, solves take more iterations. With a smaller fraction for seams, margins are wider.
SHARE_OF_SOLVES, SHARE_OF_SEAMS = 0.5, 0.4
