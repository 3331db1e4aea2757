"""Tuned constants of relaxations, with the trade-off behind each constant.

``benchmarks/quality/map_solvers.py`` and ``benchmarks/peers/certificates.py`` show what relaxations prove, and how fast
they do so.
"""

# Changes of the penalty: first interval between changes; factor by which intervals grow.
# Factor by which a change multiplies or divides the penalty; ratio of residuals that causes a change.
# Intervals grow because convergence requires that changes end.
FIRST_REVIEW, LONGER, PENALTY_FACTOR, IMBALANCE = 5, 1.5, 2.0, 5.0

# Minimum number of factors per thread. For fewer factors, calls cost more than threads save.
SMALLEST_RANGE = 64

# Limits of branch and bound: joint states of one table; joint states of all tables; free nodes.
# Number of sweeps before the search.
# On larger models, the search would use up the budget without a proof.
MOST_CELLS_OF_BRANCHES, MOST_ENTRIES_OF_BRANCHES, MOST_NODES, N_SWEEPS = 2.0**14, 2.0**24, 5000, 100

# Fraction of the budget for the search for labels; maximum budget of this search.
SEARCH_SHARE, MOST_SEARCH = 0.25, 3e8

# Minimum budget, per node and edge, with which two-state models are first solved by the relaxation over cycles.
# Maximum work of its linear programs in automatic choices, two to six seconds.
# With more work, more labelings are proven, but models without a proof take longer.
# Tuned on grids, planar, hexagonal and regular graphs with other seeds than in the benchmark.
WORK_OF_VARIABLE, WORK_OF_CYCLES = 1e4, 1e8

# Maximum number of entries of a table, of all tables before clusters are added, and of a cluster.
# Larger tables would leave a budget for only a few sweeps.
MOST_CELLS, MOST_ENTRIES, MOST_CELLS_OF_CLUSTER = 2**16, 2**24, 2**14

# Sweeps end when a sweep lowers the bound by less than the fraction SLOW of the gap, or after MOST_SWEEPS sweeps.
SLOW, MOST_SWEEPS = 3e-4, 200

# Clusters are no longer added if they and the next sweeps lower the bound by less than this fraction of the gap.
SLOW_ROUND = 3e-3

# Number of nodes up to which elimination is always planned.
# With more nodes, elimination is planned again after at least a fifth of the nodes have been removed.
FEW_NODES = 30

# Number of nodes whose distances to all other nodes are in memory together.
# More nodes take more memory; fewer nodes require more calls.
SOURCES = 200

# Maximum number of pairs of neighbours per node for which cycles of four edges are listed in advance.
# On grids, these cycles are nearly sufficient; in graphs of higher degree, most of them are not needed.
MOST_PAIRS_OF_NODE = 40

# Number of edges per node above which many linear programs are needed, which seldom end with a proof.
MOST_EDGES_OF_NODE = 3.0

# Maximum number of nodes and edges for the cycle relaxation. Each linear program of a larger model takes minutes.
MOST_EDGES = 10**5

# Maximum number of clusters added at once, relative to the number of regions.
# Maximum number of nodes of a cycle; maximum number of states at which a node is split to look for cycles.
# More clusters would lower the bound by less.
ADDED_SHARE, LONGEST_CYCLE, MOST_SPLITS = 0.5, 24, 3
