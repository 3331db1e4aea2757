"""Constants of the automatic choices that were tuned, and what each trades.

``benchmarks/quality/auto_quality.py`` and ``benchmarks/quality/auto_limits.py`` measure what they are worth, and
``benchmarks/speed/auto_speed.py`` what they cost.
"""

# Cells of tables that elimination may always have beside messages, some 0.1 seconds. More cells make more results exact
# and single calls slower.
LEAST_CELLS = 2.0**21

# Bytes that elimination may always take, the most bytes, and those of a cell in between. More bytes make more results
# exact, and may not be there.
LEAST_BYTES, MOST_BYTES, BYTES_OF_A_CELL = 1e9, 8e9, 20

# Steps that looking for an order may take: in any case some 50 ms, and for each edge about what a hundred sweeps of
# messages over two states take. Graphs of eight rows take 100 steps an edge. With fewer steps narrow graphs count as
# wide ones.
LEAST_STEPS, STEPS_OF_AN_EDGE = 2e6, 200

# Sweeps of messages that a single call takes: the work that elimination may take instead.
SWEEPS_OF_A_CALL = 100

# Nodes that the estimate of errors looks at, and nodes around each of them: as many as elimination affords in so many
# cells, and in any case so few that they have no more joint states than these. More of each make the estimate surer
# and slower.
N_PROBED_NODES, NEIGHBORHOOD_SIZES, MOST_PROBED_CELLS = 16, (60, 30, 15), 2.0**16

# Parts of models that the estimate sends messages on have at most so many factors and joint states, since messages take
# their tables one by one: some second. More of them make the estimates of large models surer and slower.
MOST_FACTORS, MOST_JOINT_STATES = 6000, 2**20

# Damping and the parts of the average where plain messages go round in circles. They were fixed on random grids of
# mixed couplings; more damping and more parts take longer.
DAMPING, N_AVERAGED_PARTS, SWEEPS_OF_A_PART = 0.5, 20, 5

# Estimated error of marginals above which users are warned. A smaller one warns of results that are good enough.
MOST_ERROR = 0.05

# Nodes, and entries of the tables of all edges, of the largest model whose phases are looked for. Phases of larger
# models outweigh each other by so much that one remains, and take long to find.
MOST_NODES_WITH_PHASES, MOST_ENTRIES_WITH_PHASES = 2000, 2**22

# Labelings that are favoured one after the other: one state everywhere, those of a search that reads as much as so many
# sweeps over the edges, and those that single changes of random labels end with. More labelings find more phases and
# take longer.
N_FAVOURED_STATES, N_SEARCHES, SWEEPS_OF_A_SEARCH, N_CLIMBS = 5, 2, 100, 4

# After so many labelings that lead to one fixed point, one of them from a search, no others are tried. More of them
# find more phases, and cost most models that have none.
N_ALIKE_LABELINGS = 3

# Sweeps that favour a labeling, and by how much of the strongest influence of an edge. With less of both, messages do
# not leave the nearest fixed point.
FAVOURING_SWEEPS, FAVOUR = 20, 1.0

# Fixed points are alike up to this difference of a probability. A smaller one counts one phase twice.
ALIKE = 0.01

# With fewer iterations an algorithm of the portfolio adds nothing.
FEWEST_ITERATIONS = 10

# Looks at the labels of messages on their way: each costs a climb, and may find better labels than the last.
N_LOOKS = 10

# Sweeps over the nodes that the searches in large neighbourhoods may read as much as, one after the other, the fewest
# with which one gains enough, and the most table entries of each, some four seconds. Planted grids, triangular grids of
# spins and grids of 64 states lack a sixth of a per cent after 20,000 sweeps. The second search starts where the first
# did, since restarts that exchange what they find come to agree.
SEARCH_SWEEPS, FEWEST_SEARCH_SWEEPS, SEARCH_WORK = (20_000, 30_000), 500, 1.5e9

# Elimination over the likeliest states of each node: the most cells of its tables, the fewest states that are worth it,
# temperatures at which states are likely, sweeps of messages, and what is then left of the budget of the search. Fixed
# on grids and planar graphs of 24 to 64 states.
NARROW_CELLS, FEWEST_STATES, TEMPERATURES, NARROW_SWEEPS, LEFT_TO_SEARCH = 2**22, 5, (1.0, 0.5, 0.25), 50, 0.75

# The search has all of its budget where the bound exceeds the best score by this part of what changing every label
# would cost, node by node, and less where it exceeds it by less. With two states and no scores of nodes that cost is
# four times the score.
LOOSE = 0.001

# Table entries that branch and bound may read before anything without a bound is tried, and after the fusion on models
# of so few nodes. It has as many again after the search, if that found better labels. More entries prove more optima
# and take longer: four times as many prove one more of the 36 of benchmarks/quality/auto_limits.py, score the same, and
# take planted colourings 2.8 s in place of 1.0 s (benchmarks/quality/feasibility.py).
FIRST_BRANCHES, BRANCHES, FEW_NODES = 3e7, 5e8, 500

# The relaxation over cycles is tried on models of two states with so many nodes and edges together. It takes less time
# than the search, and mostly ends with a proof. Of models above a number of nodes and edges, a linear program takes up
# to two seconds, and the first few prove most of the optima that are proven at all. Fixed on grids, planar and regular
# graphs of other seeds than those of the benchmark.
MOST_OF_CYCLES, LARGE, ROUNDS_OF_LARGE = 12_000, 6000, 4

# On graphs of longer cycles programs are larger: nodes and edges together, and programs.
MOST_OF_LONG_CYCLES, ROUNDS_OF_LONG = 900, 100

# In training, labelings of minimum cuts alone will do where they come as near to the bound as this part. A smaller part
# calls other algorithms, which take longer, for labels that hardly change the weights.
LOOSE_CUTS = 0.004

# Table entries that tightening by clusters may read for each default budget beyond the first, a second or two. It
# lowers the bounds that are left, and seldom closes those of models that branch and bound leaves open.
TIGHTENING = 5e7
