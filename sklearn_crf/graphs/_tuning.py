"""Tuned constants of graphs, with the trade-off behind each constant."""

# Weight of the covering trees in every distribution over trees, so that every edge probability is positive.
# A larger weight makes bounds looser.
SHARE_OF_COVER = 1e-3

# Maximum number of trees in a distribution over trees.
# A tree needs one byte of memory per edge, and the search for a tree takes longer than a sweep of inference.
MAX_TREES = 100_000

# Maximum number of neighbour offsets: the number of all neighbours on ten axes.
# With more offsets, their computation would need minutes and gigabytes of memory.
MAX_OFFSETS = 3**10

# Maximum number of cached results per graph.
# A larger number saves time if several algorithms use the same graph in turn, but needs more memory.
MAX_KEPT = 8

# Trees count as even if the smallest edge probability is at least EVEN_RATIO times the largest.
# Trees also count as even if edge probabilities differ from the most even values by at most EVEN_TOL times the mean.
# MOST_EVEN_TREES trees always count as even: further trees hardly tighten bounds, and take longer to find and use.
EVEN_RATIO, EVEN_TOL, MOST_EVEN_TREES = 0.9, 0.1, 1000
