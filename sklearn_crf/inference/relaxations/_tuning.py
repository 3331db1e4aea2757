"""Constants of relaxations that were tuned, and what each trades.

``benchmarks/quality/map_solvers.py`` and ``benchmarks/peers/certificates.py`` show what they prove, and in what time.
"""

# The penalty is looked at after so many iterations, and changed by this factor if one residual is so much the larger;
# after each change it is left alone for longer, as convergence is certain only if changes come to an end.
FIRST_REVIEW, LONGER, PENALTY_FACTOR, IMBALANCE = 5, 1.5, 2.0, 5.0

# Factors that a thread takes at least: fewer cost more calls than threads save.
SMALLEST_RANGE = 64

# Branch and bound: joint states of one table and of all tables together, nodes of more states than one, and sweeps that
# lower the bound before the search. Larger models would spend the budget without a proof.
MOST_CELLS_OF_BRANCHES, MOST_ENTRIES_OF_BRANCHES, MOST_NODES, N_SWEEPS = 2.0**14, 2.0**24, 5000, 100

# Share of the budget that the search for labels may take, and the most that it takes.
SEARCH_SHARE, MOST_SEARCH = 0.25, 3e8

# The relaxation over cycles comes first on models of two states, where nodes and edges together are at most as many as
# the budget holds this number.
WORK_OF_VARIABLE = 1e4

# Entries of one table, of all tables before any cluster is added, and of a cluster: larger ones leave work for few
# sweeps.
MOST_CELLS, MOST_ENTRIES, MOST_CELLS_OF_CLUSTER = 2**16, 2**24, 2**14

# Sweeps end when one of them lowers the bound by less than this part of the gap, or after so many.
SLOW, MOST_SWEEPS = 3e-4, 200

# Clusters are no longer added when they and the sweeps after them lower the bound by less than this part of the gap.
SLOW_ROUND = 3e-3

# So few nodes are worth a plan of elimination at any time; of more, a fifth must have gone since the last plan.
FEW_NODES = 30

# Nodes from which distances to all others are held at once: more take memory, fewer cost calls.
SOURCES = 200

# Cycles of four edges are listed beforehand in graphs of so few pairs of neighbours a node: on grids they are nearly
# all that is needed, where nodes have many neighbours most of them are not.
MOST_PAIRS_OF_NODE = 40

# Where nodes have more edges, programs are many and their ends seldom a proof; where cycles are long, they are slow
# unless the model is small.
MOST_EDGES_OF_NODE, FEW_EDGES = 3.0, 400

# Linear programs of the automatic choices: of graphs with more than two edges a node, and of others.
MOST_ROUNDS = (6, 30)

# Larger linear programs take minutes each.
MOST_EDGES = 10**5

# Most clusters that are added at once, relative to the number of regions, nodes of their longest cycle, and states of a
# node at which it is split in two to look for cycles. More of each add clusters that lower the bound by less.
ADDED_SHARE, LONGEST_CYCLE, MOST_SPLITS = 0.5, 24, 3
