"""Constants of local methods that were tuned, and what each trades.

``benchmarks/speed/local_methods_speed.py`` times them, ``benchmarks/quality/hard_search.py`` and
``benchmarks/quality/map_solvers.py`` show what the search in large neighbourhoods finds.
"""

# Edges whose table rows are gathered at once: more take memory, fewer cost calls.
EDGES_AT_ONCE = 65536

# Cells of all tables of one subgraph, 8 bytes each, about: where they are used up, tables are small.
MOST_CELLS = 2.0**24

# Nodes of one region: moves of larger ones take longer and gain no more per node.
MOST_NODES = 2**14

# Times that the restarts exchange what they have found. Exchanging more often makes them agree too early.
N_EXCHANGES = 16

# Sweeps of annealing at most, the share of the budget that they may take, and the part of the first temperature that
# the last one is. Slower annealing finds better labels, and leaves less of the budget to moves.
MOST_ANNEALING_SWEEPS, ANNEALED_SHARE, FROZEN = 1000, 0.3, 0.02

# Temperatures of disturbances, as parts of what changing one label costs: over all of this range they gained, on spin
# glasses and Potts models of several sizes.
COOLEST, HOTTEST = 0.1, 0.4

# Moves after a disturbance before its parts are judged, and moves after annealing at most. More of them repair more,
# and leave fewer disturbances.
N_DESCENTS, N_FIRST_DESCENTS = 3, 20

# Moves that the budget of a restart has to have room for, before their tables grow from this logarithm to base 2.
N_MOVES, FIRST_TABLE = 50, 6.0

# The budget if none is given: so many sweeps over all nodes, and no more table entries than this.
DEFAULT_SWEEPS, DEFAULT_WORK = 30_000, 1e9

# Nodes of the blocks that sums over nodes of a dense model are cut into, in float64. Longer blocks leave the cache,
# shorter ones cost calls; the bits of results depend on them.
SUMMED_NODES = 4096
