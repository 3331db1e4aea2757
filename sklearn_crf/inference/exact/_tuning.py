"""Constants of exact inference that were tuned, and what each trades.

``benchmarks/quality/auto_limits.py`` shows which graphs are solved exactly, and in what time.
"""

# Table cells below which the search for a better order takes longer than it saves, and restarts of the search.
FEW_CELLS, N_RESTARTS = 2.0**14, 8

# Nodes of all other orders together, some 60 milliseconds. Where elimination takes longer, so may the search: an order
# takes as long for each node as so many cells do.
NODES_OF_ORDERS, CELLS_OF_A_NODE = 20_000, 150

# Lower bound on the width that is enough to refuse a graph whose order would take long to find.
HOPELESS_WIDTH = 200

# Multiplications of a product of tables that take as long as one of their cells, which are exponentiated.
PRODUCTS_OF_A_CELL = 20

# Plans of the latest structures, which many examples may share: sentences of one length, images of one shape. More
# plans take memory, fewer are made again.
MOST_PLANS = 64

# Binary digits of the largest cost of a linear program: costs go to the solver as they are up to the first number, and
# in a second try, where HiGHS fails, up to the other. Fewer digits are safer for the solver and less precise.
COST_BITS = (40, 10)

# Most random numbers drawn at once for samples (8 MB).
UNIFORM_BUDGET = 2**20

# Joint states of a graph whose copies are enumerated at most, and numbers of such states held for all copies at once.
# More take memory; fewer cost calls.
MOST_ENUMERATED = 2**20
