"""Tuned constants of the automatic choices, with the trade-off that each of them makes.

``benchmarks/quality/auto_quality.py`` and ``benchmarks/quality/auto_limits.py`` measure the effect of these constants
on the quality of results, and ``benchmarks/speed/auto_speed.py`` measures their effect on time.
"""

# Minimum budget of table cells for elimination, about 0.1 seconds, even if messages take less time.
# With more cells, more results are exact, but single calls take longer.
LEAST_CELLS = 2.0**21

# Memory for elimination: minimum and maximum number of bytes; number of bytes per cell of the budget in between.
# More memory makes more results exact, but may not be available.
LEAST_BYTES, MOST_BYTES, BYTES_OF_A_CELL = 1e9, 8e9, 12.5

# Number of steps for the search of an elimination order: a minimum, about 50 ms, and a number per edge.
# A search with this number per edge takes about as long as a hundred message sweeps over two states.
# Graphs of eight rows need 100 steps per edge. With fewer steps, narrow graphs would be treated as too wide.
LEAST_STEPS, STEPS_OF_AN_EDGE = 2e6, 200

# Number of message sweeps in a single call. Elimination may take as much work as these sweeps.
SWEEPS_OF_A_CALL = 100

# Error estimate: number of probed nodes; sizes of neighbourhoods to try, largest first.
# Maximum number of table cells for elimination in a neighbourhood, and of joint states of the smallest neighbourhood.
# Larger values make the estimate more reliable and slower.
N_PROBED_NODES, NEIGHBORHOOD_SIZES, MOST_PROBED_CELLS = 32, (60, 30, 15), 2.0**16

# Margin of the error estimate for the choice of nodes, in standard deviations (one-sided confidence of 95 %).
# Margin for cycles outside of neighbourhoods, as a multiple of the change from neighbourhoods of half the size.
# With smaller margins, fewer estimates are above the true error (benchmarks/quality/auto_limits.py).
DEVIATIONS, CHANGES = 1.645, 2.0

# Maximum number of factors, and of joint states, in the part of a large model on which the estimate computes messages.
# Messages on this part take about a second.
# With larger values, estimates of large models are more reliable, but slower.
MOST_FACTORS, MOST_JOINT_STATES = 6000, 2**20

# Damping if plain messages do not converge.
# Number and length of averaged runs if damped messages do not converge either.
# Tuned on random grids with mixed couplings. More damping and more runs take longer.
DAMPING, N_AVERAGED_PARTS, SWEEPS_OF_A_PART = 0.5, 20, 5

# Maximum attraction of a pair for the Bethe bound; the exponential of larger numbers would overflow.
LARGEST_GAIN = 300.0

# Fraction of the budget that tempering uses, by default about two seconds. Elimination is also limited by memory.
# Longer tempering lowers the error with the square root of its time.
TEMPERED_SHARE = 0.8

# Estimated error of marginals above which to warn. A smaller value would warn of results that are good enough.
MOST_ERROR = 0.05

# Maximum number of nodes, and of entries in the tables of all edges, for a search for several fixed points.
# In larger models, a single fixed point dominates and the search takes long, so only one further start is tried.
MOST_NODES_WITH_PHASES, MOST_ENTRIES_WITH_PHASES = 2000, 2**22

# Search for several fixed points: number of favoured constant labelings; number of favoured results of searches.
# Number of sweeps of a search; number of favoured local optima.
# More labelings find more fixed points, but take longer.
N_FAVOURED_STATES, N_SEARCHES, SWEEPS_OF_A_SEARCH, N_CLIMBS = 5, 2, 100, 4

# Number of labelings, one of them from a search, after which no more are tried if all led to the same fixed point.
# A larger number finds more fixed points, but takes more time for most models, which have only one.
N_ALIKE_LABELINGS = 3

# Number of sweeps that favour a labeling; bonus for its scores, relative to the strongest influence of an edge.
# With smaller values, messages do not leave the nearest fixed point.
FAVOURING_SWEEPS, FAVOUR = 20, 1.0

# Maximum difference of probabilities for which fixed points count as equal.
# With a smaller value, a fixed point could count twice.
ALIKE = 0.01

# Minimum number of iterations for an algorithm of the portfolio to be useful.
FEWEST_ITERATIONS = 10

# Number of times that labels are decoded during message passing.
# Each decoding is followed by hill climbing, which takes time and may find better labels.
N_LOOKS = 10

# Effort of the first round of searches, relative to the default budget: the effort of "step" and "fast".
# The second round uses the rest of the default budget.
# Both rounds start neighbourhood searches from the same labels, because restarts that exchange results become alike.
FIRST_EFFORT = 2.0**24 / 8e7

# Large neighbourhood searches: number of sweeps over the nodes in the default budget; minimum number of sweeps for
# which a search is run; maximum number of table entries read in the default budget, which take about eight seconds.
# With 20,000 sweeps, scores were 0.17 % below the best known (planted, triangular and 64-state grids).
SEARCH_SWEEPS, FEWEST_SEARCH_SWEEPS, SEARCH_WORK = 50_000, 500, 3e9

# Elimination over the most probable states of each node: maximum number of cells; minimum number of states per node.
# Temperatures for computing probabilities; number of message sweeps; fraction of the search budget left for later.
# Tuned on grids and planar graphs with 24 to 64 states.
NARROW_CELLS, FEWEST_STATES, TEMPERATURES, NARROW_SWEEPS, LEFT_TO_SEARCH = 2**22, 5, (1.0, 0.5, 0.25), 50, 0.75

# Relative gap at which the search gets its whole budget. For smaller gaps, the budget is proportional to the gap.
# The gap is relative to the summed costs of changing each label.
# With two states and no node scores, this sum is four times the score.
LOOSE = 0.001

# Branch and bound with the default budget: number of table entries that the first run reads.
# Number of entries that all runs after neighbourhood searches read; the run before them reads a third of this number.
# Maximum number of nodes of a model for these runs. The first run precedes algorithms without a bound.
# With more entries, more optima are proven, and labels of models with zeros are better, but runs take longer
# (benchmarks/quality/auto_limits.py).
FIRST_BRANCHES, BRANCHES, FEW_NODES = 1e8, 1.2e9, 500

# Cycle relaxation for models of two states: maximum number of nodes and edges together.
# The relaxation takes less time than the search and usually ends with a proof.
# For larger models, the first linear program takes more than two seconds.
MOST_OF_CYCLES = 12_000

# Maximum relative gap of labelings of minimum cuts that is accepted in training.
# With a smaller value, slower algorithms are run for labels that hardly change the learned weights.
LOOSE_CUTS = 0.004

# Number of table entries (a second or two) that cluster tightening reads per default budget in excess of the first.
# Cluster tightening reduces the remaining gaps, but rarely closes gaps that branch and bound leaves open.
TIGHTENING = 5e7
