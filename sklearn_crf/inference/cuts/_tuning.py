"""Tuned constants of minimum cuts, with the trade-off behind each constant.

``benchmarks/peers/inference_speed.py`` measures the speed of cuts and moves, ``benchmarks/speed/predict_memory.py`` the
memory of methods that go row by row.
"""

# Number of edge types whose tables are processed together: more types take more memory.
TYPES_PER_PORTION = 1 << 14

# Number of nodes above which moves on a model in memory go row by row, 15 % slower but with less memory.
NODES_FOR_ROWS = 1 << 21

# Fraction of nodes with a choice in a move above which nodes without a choice are not searched for.
# With strong couplings, a larger fraction has a choice, and the search takes longer than it saves.
MOST_FREE = 3 / 4

# Node visits between two checks for Ctrl-C, which take a fraction of a second. Fewer visits cost more calls.
WORK_PER_CALL = 1 << 21

# Number of nodes in the parts of a lattice that are solved separately first.
# Parts are small enough for the cache, and threads share them.
NODES_PER_BLOCK = 1 << 16

# Fractions of nodes with excess after the flow along lines.
# Above MOST_IN_BOXES, paths are so short that solving parts saves less than it costs to grow their forests twice.
# Below LEAST_TO_SPREAD, spreading the excess takes longer than it saves.
MOST_IN_BOXES, LEAST_TO_SPREAD = 1 / 2, 1 / 3

# Initial fraction of nodes with excess below which flow along lines takes longer than it saves.
LEAST_FOR_LINES = 0.5

# Visits per node after which the search switches to heights.
# Heights take a third of the time if supply is far from demand, but ten times as long if paths are short.
LONG_SEARCH = 32

# Largest rounding error of int32 capacities, as a fraction of a typical unary score. The type int32 halves the memory.
# Number of nodes above which capacities may be int32, as in float32 models with any number of nodes.
COARSEST, NODES_FOR_HALF = 2.0**-20, 1 << 17

# Maximum number of passes over the labelings in a fusion. Each pass fuses with all of them; a second pass rarely gains.
FUSION_PASSES = 3

# Number of nodes whose scores are in memory at once if a lattice is processed row by row.
NODES_OF_ROWS = 1 << 16

# Maximum fraction of edges that are not submodular, and maximum fraction of rows left to roof duality.
# Above these fractions, solving the whole lattice at once is better.
MOST_TRUNCATED, MOST_OPEN_ROWS = 0.01, 0.25
