"""Tuned constants of minimum cuts, with the trade-off behind each constant.

``benchmarks/peers/inference_speed.py`` measures the speed of cuts and moves, ``benchmarks/speed/predict_memory.py`` the
memory of methods that go row by row.
"""

# Number of edge types whose tables are processed together. More types take more memory.
TYPES_PER_PORTION = 1 << 14

# Number of nodes above which moves on a model in memory go row by row, which is 15 % slower but needs less memory.
NODES_FOR_ROWS = 1 << 21

# If a larger fraction of nodes has a choice in a move, nodes without a choice are not identified.
# With strong couplings, a larger fraction has a choice, and identifying the rest takes longer than it saves.
MOST_FREE = 3 / 4

# Number of node visits between two checks for Ctrl-C, a fraction of a second. Fewer visits require more calls.
WORK_PER_CALL = 1 << 21

# Number of nodes in the parts of a lattice that are solved separately first.
# Parts are small enough for the cache, and threads share them.
NODES_PER_BLOCK = 1 << 16

# MOST_IN_BOXES: fraction of nodes with excess, after the flow along lines, above which parts are not solved separately.
# Paths are then so short that solving parts saves less time than growing their forests twice takes.
# LEAST_TO_SPREAD: fraction below which the excess is not spread, because spreading takes longer than it saves.
MOST_IN_BOXES, LEAST_TO_SPREAD = 1 / 2, 1 / 3

# Minimum initial fraction of nodes with excess for flow along lines.
# With a smaller fraction, this flow takes longer than it saves.
LEAST_FOR_LINES = 0.5

# Number of visits per node after which the search switches to heights.
# The search by heights takes a third of the time if supply is far from demand.
# If paths are short, it takes ten times as long.
LONG_SEARCH = 32

# Maximum rounding error of int32 capacities, as a fraction of a typical unary score. The type int32 halves the memory.
# Number of nodes above which capacities may be int32. In float32 models they may always be int32.
COARSEST, NODES_FOR_HALF = 2.0**-20, 1 << 17

# Maximum number of passes over the labelings in a fusion. Each pass fuses all labelings; a second pass rarely gains.
FUSION_PASSES = 3

# Number of nodes whose scores are in memory together if a lattice is processed row by row.
NODES_OF_ROWS = 1 << 16

# Maximum fraction of edges that are not submodular; maximum fraction of rows left to roof duality.
# Above these fractions, solving the whole lattice at once is better.
MOST_TRUNCATED, MOST_OPEN_ROWS = 0.01, 0.25
