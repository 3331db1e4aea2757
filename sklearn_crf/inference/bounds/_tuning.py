"""Tuned constants of bounds on the log-partition, with the trade-off behind each constant.

``benchmarks/papers/trw_convergence.py`` shows how fast the bounds decrease.
"""

# Number of message sweeps between two evaluations of the bound.
# A larger number may cause unnecessary sweeps; a smaller number evaluates the bound more often.
SWEEPS_AT_ONCE = 50

# Damping once the bound no longer decreases. Undamped sweeps converge five times as fast as damped ones, or not at all.
DAMPING = 0.5

# Fraction of the predicted linear decrease that a conditional gradient step must achieve.
# Maximum number of halvings of a conditional gradient step.
SUFFICIENT_DECREASE, MOST_HALVINGS = 0.1, 6

# Number of nodes per group of trees. Larger groups need fewer calls for small trees; smaller groups suit more threads.
NODES_AT_ONCE = 20_000

# Minimum number of series-parallel subgraphs of a graph with cycles.
# The gap between the bound and the log-partition was measured for random models on grids of 3 x 4 and 6 x 6 nodes.
# With two subgraphs, the gap is 1.6 times (3 x 4 nodes) and 1.2 times (6 x 6 nodes) as large as with four.
# With eight subgraphs, the gap is 6 to 10 % smaller than with four.
FEWEST_SUBGRAPHS = 4

# Weight of an edge that other series-parallel subgraphs contain, relative to edges that none of them contains.
# The weight only breaks ties among subgraphs that cover equally many new edges.
WEIGHT_OF_COVERED = 1e-3
