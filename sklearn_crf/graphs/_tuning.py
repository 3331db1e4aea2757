"""Constants of graphs that were tuned, and what each trades."""

# Share of covering trees in every distribution over trees, so that each edge keeps a positive probability. A larger
# share makes bounds looser.
SHARE_OF_COVER = 1e-3

# Most trees of a distribution: a tree takes a byte for each edge, and more time to find than a sweep of inference.
MAX_TREES = 100_000

# Most offsets of neighbours, those of all neighbours on ten axes: with more, the offsets alone would take minutes and
# gigabytes.
MAX_OFFSETS = 3**10

# Most results of algorithms that a graph keeps: more save time where algorithms take turns on a graph, and take memory.
MAX_KEPT = 8

# Trees are even once the least edge probability is this part of the largest, or once probabilities are as near to the
# most even ones as this part of their mean, or there are so many trees. More trees make bounds a little closer, and
# take longer to find and to use.
EVEN_RATIO, EVEN_TOL, MOST_EVEN_TREES = 0.9, 0.1, 1000
