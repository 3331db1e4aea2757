"""Tuned constants of Gaussian inference, with the trade-off behind each constant.

``benchmarks/speed/rtf_scaling.py`` measures the speed of Gaussian inference in tree fields.
"""

# Minimum number of values for a separate partial sum. For fewer values, the call takes longer than the computation.
SMALLEST_RANGE = 2**14

# Number of values that one call processes, summed over its iterations.
# A smaller number needs more calls.
# With a larger number, Ctrl-C is noticed later, because it is only checked between calls.
NUMBERS_AT_ONCE = 2**20

# Number of columns of the inverse computed at once. More columns take more memory; fewer columns require more calls.
COLUMNS_AT_ONCE = 256

# Number of pixels of a tile without margin; initial margin; number of tiles whose means are in memory together.
# Larger tiles and margins take more memory and fewer rounds.
TILE, MARGIN, TILES_AT_ONCE = 512 * 512, 32, 16

# Fractions of the tolerance for the solves of tiles and for their disagreement at seams. Their sum must be below one.
# With a smaller fraction for solves, solves take more iterations. With a smaller fraction for seams, margins are wider.
SHARE_OF_SOLVES, SHARE_OF_SEAMS = 0.5, 0.4
