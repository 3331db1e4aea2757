"""Tuned constants of message passing, with the trade-off behind each constant.

``benchmarks/speed/message_speed.py`` measures the speed of messages.
"""

# Total number of nodes of the graphs with cycles that one call processes. A call must have enough work for threads.
# The arrays for this number of nodes still fit in the second-level cache of a core.
MOST_JOINED = 2048

# Fraction of an entropy that counts as zero, because messages would otherwise stop changing before convergence.
LEAST_SHARE = 1e-7

# Number of sweeps whose changes are combined; number of sweeps between extrapolations.
# Combining more sweeps takes more time than it saves. Tuned on a photograph and on grids with two to five states.
SWEEPS_COMBINED, SWEEPS_BETWEEN = 4, 2

# Number of sweeps before the first extrapolation, because the first sweeps make large and dissimilar changes.
FIRST_SWEEPS = 4

# Minimum number of nodes of a graph whose sweeps are extrapolated.
# Smaller graphs take few and fast sweeps, and share batches with other graphs.
FEWEST_NODES = 4097

# Maximum size in bytes of the stored sweeps. Models that need more are not extrapolated.
MOST_BYTES = 2**28

# Fraction of the squared changes that is added as a ridge, because nearly equal changes have no unique combination.
# Growth of the squared change after which earlier sweeps are discarded.
RIDGE, LARGEST_GROWTH = 1e-8, 4.0

# Error bounds: maximum number of iterations; largest change of a bound at which the iterations end.
# More iterations make bounds tighter.
MOST_STEPS, LEAST_CHANGE = 200, 1e-3

# Maximum number of nodes for sequential sweeps in "auto".
# On smaller graphs, threads save less time than the sequential schedule saves by needing fewer sweeps.
LARGEST_SEQUENTIAL = 20_000

# Number of blocks of a large graph, whatever the number of threads; minimum number for the schedule "blocks".
# More blocks would need more sweeps.
N_BLOCKS, FEWEST_BLOCKS = 16, 8

# Minimum number of nodes in the components that a thread processes. For fewer nodes, calls cost more than threads save.
SMALLEST_SHARE = 4096

# Number of parts into which labelled graphs are divided for separate sums, whatever the number of threads.
# With sixteen threads, each thread sums eight parts.
# More parts take longer to add up (benchmarks/speed/threads.py).
N_PARTS = 128

# Maximum total number of nodes of the graphs that one call predicts. The arrays of these graphs are all in memory.
# With this number, sixteen threads have two images of 90 x 90 pixels each.
MOST_SWEPT = 2**18
