"""Tuned constants of exact inference, with the trade-off behind each constant.

``benchmarks/quality/auto_limits.py`` shows which graphs are solved exactly, and how fast.
"""

# Number of table cells below which a search for a better order takes longer than it saves; number of restarts.
FEW_CELLS, N_RESTARTS = 2.0**14, 8

# Number of nodes in all further orders that are tried, about 60 milliseconds; long eliminations permit more orders.
# Number of cells of an elimination that permit one more node in these orders, because both take equally long.
NODES_OF_ORDERS, CELLS_OF_A_NODE = 20_000, 150

# Lower bound on the width above which a graph is rejected without a search for an order, which would take long.
HOPELESS_WIDTH = 200

# Number of multiplications in products of tables that take as long as the exponentiation of one cell.
PRODUCTS_OF_A_CELL = 20

# Maximum number of cached plans for recent structures. For example, all sentences of one length share a structure.
# More plans take more memory; with fewer plans, plans are recomputed more often.
MOST_PLANS = 64

# Number of binary digits of the largest cost of a linear program, for the first call of HiGHS.
# Number of digits for a second call if the first call fails.
# Fewer digits are safer for the solver but less precise.
COST_BITS = (40, 10)

# Maximum number of random numbers drawn at once for samples (8 MB).
UNIFORM_BUDGET = 2**20

# Maximum number of joint states of a graph that is enumerated; also of states in memory for all copies together.
# More states take more memory; fewer states require more calls.
MOST_ENUMERATED = 2**20

# Maximum number of nodes of the copies of a graph that are enumerated together for prediction.
# More nodes take more memory, and leave fewer batches for threads; fewer nodes take longer per node.
MOST_JOINED = 1024

# Number of nodes of a block of chains with segments, which is the unit of work of a thread.
# Smaller blocks take longer to start than to run; larger blocks leave threads without work (speed/segments.py).
NODES_OF_A_BLOCK = 1024
