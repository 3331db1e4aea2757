"""Constants of minimum cuts that were tuned, and what each trades.

``benchmarks/peers/inference_speed.py`` times cuts and moves, ``benchmarks/speed/predict_memory.py`` measures the memory
of those that go by rows.
"""

# Types of edges whose tables a move looks at together: more of them take more memory.
TYPES_PER_PORTION = 1 << 14

# Nodes of models in memory from which on moves go by rows. Rows take some 15 % longer than the whole, for less memory.
NODES_FOR_ROWS = 1 << 21

# Share of nodes that a move leaves a choice to, from which on couplings are so strong that other moves will too:
# looking for nodes without a choice then takes longer than it saves.
MOST_FREE = 3 / 4

# Node visits between two looks at Ctrl-C, a fraction of a second. Fewer visits cost calls.
WORK_PER_CALL = 1 << 21

# Nodes of the parts of a lattice that are solved first, each by itself: small enough for the cache, and one for each
# thread.
NODES_PER_BLOCK = 1 << 16

# Nodes with excess after the flow along lines. Where more than half have some, paths are so short that parts save less
# than growing their forests twice takes; where few of those with a choice have, spreading it takes longer than it
# saves.
MOST_IN_BOXES, LEAST_TO_SPREAD = 1 / 2, 1 / 3

# Where few nodes have any excess at first, as in a move that leaves most no choice, lines take longer than they save.
LEAST_FOR_LINES = 0.5

# Visits to each node from which on a search goes over to heights, which take a third of the time where supply is far
# from demand, and ten times as long where paths are short.
LONG_SEARCH = 32

# In float32 models with so many nodes, capacities are int32 if that rounds them to this part of a typical unary score:
# half the memory for no loss.
COARSEST, NODES_FOR_HALF = 2.0**-20, 1 << 17

# Passes over the labelings that are fused: each fuses with all, and a second one hardly ever gains.
FUSION_PASSES = 3

# Types of edges that are looked at one by one: for so few that takes less than arrays do.
FEW_TYPES = 16

# Nodes whose scores are in memory at once where a lattice goes by rows.
NODES_OF_ROWS = 1 << 16

# Share of edges that are not submodular, and of rows that these leave to roof duality, above which that had better have
# the whole lattice.
MOST_TRUNCATED, MOST_OPEN_ROWS = 0.01, 0.25
