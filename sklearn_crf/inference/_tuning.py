"""Tuned constants that several families of inference share, with the trade-off that each of them makes.

``benchmarks/speed/message_speed.py`` measures arrays of messages, ``benchmarks/quality/feasibility.py`` the search for
allowed labelings, and ``benchmarks/speed/local_methods_speed.py`` changes of one node at a time.
"""

# Maximum memory in bytes for tables that differ from edge to edge. Larger tables are recomputed for each message.
FACTOR_BUDGET = 256 * 2**20

# Maximum size in bytes of tables that fit into a second-level cache. Larger tables are stored in the order of messages.
# This order doubles the speed of sweeps, but requires a sort.
LARGEST_CACHED = 2**19

# Number of initial edges whose weights are checked for equality.
# A larger number makes the check more reliable, but slower for models without equal weights.
TRIED_EDGES = 16

# Minimum score in the messages of a warm start.
# A state that was impossible before may be possible now, so its probability starts at exp(-20).
LEAST_INITIAL_SCORE = -20.0

# Maximum number of values in all partial sums of pairwise beliefs (16 MB); minimum number of nodes per partial sum.
# More partial sums keep more threads busy, but take longer to add up.
STATISTICS_BUDGET, SMALLEST_PART = 2**21, 1024

# Number of factor values gathered at once, small enough to stay in a cache.
GATHERED = 2**15

# Maximum total size of the arrays of a search for allowed labels. Larger arrays would take gigabytes.
MOST_CONSTRAINT_ENTRIES = 2**26

# Maximum number of sweeps that remove violations of constraints. Easy problems need only a few.
REPAIR_SWEEPS = 100

# Maximum number of steps of a search for allowed labels, about two seconds.
# The search checks for Ctrl-C after every STEPS_OF_A_CALL steps.
MOST_STEPS, STEPS_OF_A_CALL = 4e8, 5_000_000

# Maximum number of steps of a search guided by scores, after the first search; a few tenths of a second.
STEPS_OF_SCORES = 4e7

# Number of steps for shortening a proof of infeasibility; maximum number of nodes that are left out one by one.
# Larger values make the error message shorter, but delay it.
STEPS_OF_A_PROOF, NODES_LEFT_OUT = 2e7, 100

# Maximum number of values in all buffers for partial sums of tables; minimum number of nodes per buffer.
# More values take more memory. With fewer nodes, the overhead of calls exceeds the gain from threads.
BUFFER_SIZE, SMALLEST_RANGE = 2**22, 1024

# Maximum number of hill climbing sweeps. Most climbs end after about ten.
MOST_CLIMBS = 100

# Number of nodes whose neighbours are listed at once in large lattices. More nodes need more memory.
NODES_AT_ONCE = 1 << 16

# Number of weighted edge scores that a proof processes at once.
# Number of scores that are first tested for a common step.
PROVEN_AT_ONCE, TRIED_SCORES = 2**20, 256

# Number of values in the tables of edges that are processed at once (16 MB).
TABLES_AT_ONCE = 2**21

# Number of iterations without a decrease after which a bound counts as converged.
# Messages need time to cross the graph.
PATIENCE = 10

# Ratio of scores to their differences above which offsets are subtracted, because sums lose half of the digits.
# With a smaller ratio, offsets are subtracted needlessly.
# With a larger ratio, rounding errors hide differences between labelings (benchmarks/quality/random_models.py).
FAR_FROM_ZERO = 1e6

# Minimum number of sets of factors without cycles. With more sets, the probabilities of factors become more even.
FEWEST_FORESTS = 16

# Number of structures of factor graphs for which sets of factors and split counting numbers are cached.
# Maximum size of such a structure in bytes.
# On 14 x 14 nodes with 2 x 2 factors, computing sets and numbers anew takes half of an evaluation.
MOST_KEPT, LARGEST_KEY = 256, 2**20
