"""Tuned constants of local methods, with the trade-off behind each constant.

``benchmarks/speed/local_methods_speed.py`` measures their speed. ``benchmarks/quality/hard_search.py`` and
``benchmarks/quality/map_solvers.py`` show the results of large neighbourhood search.
"""

# Number of edges whose table rows are gathered at once. More edges take more memory; fewer edges require more calls.
EDGES_AT_ONCE = 65536

# Number of cells (8 bytes each) in the tables of a subgraph above which only small tables are added.
MOST_CELLS = 2.0**24

# Maximum number of nodes of a region. Moves of larger regions take longer and gain no more per node.
MOST_NODES = 2**14

# Number of exchanges between restarts. More frequent exchanges make restarts agree too early.
N_EXCHANGES = 16

# Annealing: maximum number of sweeps; maximum fraction of the budget; ratio of the last to the first temperature.
# Slower annealing finds better labels, but leaves less of the budget for moves.
MOST_ANNEALING_SWEEPS, ANNEALED_SHARE, FROZEN = 1000, 0.3, 0.02

# Range of temperatures of perturbations, relative to the mean cost of changing one label.
# On spin glasses and Potts models of several sizes, all temperatures of this range improved labels.
COOLEST, HOTTEST = 0.1, 0.4

# Number of moves after a perturbation, before its changes are kept or undone; maximum number of moves after annealing.
# More moves repair more, but leave time for fewer perturbations.
N_DESCENTS, N_FIRST_DESCENTS = 3, 20

# Minimum number of moves that a restart's budget must allow before tables grow; initial log2 of the table size.
N_MOVES, FIRST_TABLE = 50, 6.0

# Default budget: this number of sweeps over all nodes, but at most this number of table entries.
DEFAULT_SWEEPS, DEFAULT_WORK = 30_000, 1e9

# Number of nodes per block in float64 sums over the nodes of a dense model.
# Larger blocks exceed the cache; smaller blocks require more calls. The last bits of results depend on this number.
SUMMED_NODES = 4096

# Parallel tempering: number of ladders; number of temperatures in each; number of rounds that adapt the temperatures.
# Each round that adapts temperatures has twice as many sweeps as the previous round.
# More temperatures suit larger models, but labels take longer to pass all temperatures.
# With fewer sweeps, results are worse than with belief propagation (benchmarks/quality/auto_limits.py).
N_LADDERS, N_TEMPERATURES, N_ADAPTATIONS, FEWEST_TEMPERED_SWEEPS = 2, 24, 5, 300

# Time of an edge in a sweep of a chain, relative to the time of a node.
WORK_OF_EDGE = 0.375

# Ratio of the estimated error to the difference between the marginals of a ladder and the mean of both ladders.
# With 1, half of the estimates are too low.
ERROR_FACTOR = 2.0

# Score difference that replaces a forbidden pair in warm chains.
# With smaller values, labels of the model are sometimes forbidden. Larger values need more temperatures.
# If more than this number of forbidden pairs is expected in a labeling, the result is rejected.
PENALTY, MOST_FORBIDDEN = 20.0, 1e-3

# Number added to each rejection rate of exchanges when temperatures are adapted, so that no two temperatures coincide.
LEAST_REJECTED = 1e-3
