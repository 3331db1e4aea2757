"""Constants that several families of inference share and that were tuned, and what each trades.

``benchmarks/speed/message_speed.py`` times the arrays of messages, ``benchmarks/quality/feasibility.py`` the search for
labels that nothing forbids, ``benchmarks/speed/local_methods_speed.py`` changes of one node at a time.
"""

# Most bytes for tables that differ from edge to edge; past it they are recomputed for each message.
FACTOR_BUDGET = 256 * 2**20

# Bytes of tables that a processor's second cache holds about. Larger ones are stored in the order of sending, which
# doubles the speed of a sweep and takes a sort.
LARGEST_CACHED = 2**19

# First edges that are looked at to tell whether weights recur: more make sure, and cost models whose weights do not.
TRIED_EDGES = 16

# Where a warm start says "impossible", it may have become possible: exp(-20) leaves the way open.
LEAST_INITIAL_SCORE = -20.0

# Most numbers held in all partial sums of pairwise beliefs together (16 MB), and fewest nodes with a partial sum of
# their own. More sums keep more threads busy and take longer to add up.
STATISTICS_BUDGET, SMALLEST_PART = 2**21, 1024

# Numbers of factors that are gathered at once, few enough to stay in a cache.
GATHERED = 2**15

# Entries of all arrays of a search for allowed labels together: a search in more takes gigabytes.
MOST_CONSTRAINT_ENTRIES = 2**26

# Sweeps of which each removes violations; a few are enough where that is easy.
REPAIR_SWEEPS = 100

# Steps of a search for allowed labels before it gives up, some two seconds, and between two looks at Ctrl-C.
MOST_STEPS, STEPS_OF_A_CALL = 4e8, 5_000_000

# Steps that a search by scores may take beyond those of the first one, some tenths of a second.
STEPS_OF_SCORES = 4e7

# Steps that may go into a shorter proof that there are no labels, and nodes of it that are left out one by one. More of
# them make the error shorter and later.
STEPS_OF_A_PROOF, NODES_LEFT_OUT = 2e7, 100

# Numbers in the buffers of partial sums of tables, and nodes of one buffer. Where tables are untied there are many
# numbers, and fewer ranges; with fewer nodes, calls cost more than threads save.
BUFFER_SIZE, SMALLEST_RANGE = 2**22, 1024

# Sweeps of changes of one node at a time: climbs mostly end after some ten.
MOST_CLIMBS = 100

# Nodes whose neighbours are listed together where a lattice has several times as many: more take memory.
NODES_AT_ONCE = 1 << 16

# Scores of edges with weights that a proof looks at together, and numbers that tell whether scores have a step before
# all are looked at.
PROVEN_AT_ONCE, TRIED_SCORES = 2**20, 256

# Numbers in the tables of the edges that are looked at together (16 MB).
TABLES_AT_ONCE = 2**21

# Iterations without a fall of the bound before it counts as converged, as messages have to cross the graph.
PATIENCE = 10

# Scores that lie so many times farther from zero than from each other lose half of their digits in sums: a smaller
# number takes offsets off where it need not, a larger one lets rounding hide what labelings differ by
# (benchmarks/quality/random_models.py).
FAR_FROM_ZERO = 1e6
