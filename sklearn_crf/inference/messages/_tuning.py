"""Constants of message passing that were tuned, and what each trades.

``benchmarks/speed/message_speed.py`` times messages.
"""

# Nodes of graphs with cycles whose messages are worked out together. More make calls long enough for threads; the
# arrays of this many still fit the second cache of a core.
MOST_JOINED = 2048

# Share of an entropy that counts as zero, as messages would stop changing before anything is solved, and forests that
# the shares of factors are counted from: with more of them shares are more alike.
LEAST_SHARE, FEWEST_FORESTS = 1e-7, 16

# Sweeps whose changes are combined, and those from one extrapolation to the next: more combinations save fewer sweeps
# than they take. Fixed on grids of two to five states with even and mixed couplings, and on a photograph.
SWEEPS_COMBINED, SWEEPS_BETWEEN = 4, 2

# Sweeps before the first extrapolation: they are long, and not alike.
FIRST_SWEEPS = 4

# Fewest nodes of a graph whose sweeps are extrapolated. Smaller graphs take few sweeps, which are quick, and share
# batches with others.
FEWEST_NODES = 4097

# Most bytes for the sweeps that are kept: models that need more take all of their sweeps.
MOST_BYTES = 2**28

# Share of the squared changes that is added to them, since changes that are nearly alike have no single combination,
# and growth of the squared change at which former sweeps say nothing about the next.
RIDGE, LARGEST_GROWTH = 1e-8, 4.0

# Iterations of the bounds of errors, and the change of the largest one at which they end. More make bounds closer.
MOST_STEPS, LEAST_CHANGE = 200, 1e-3

# Nodes of the largest graph whose sweeps are sequential. On smaller graphs threads gain less than the sweeps that the
# sequential schedule saves.
LARGEST_SEQUENTIAL = 20_000

# Blocks of nodes that a large graph is cut into, whatever the number of threads, and the fewest that are enough for
# threads. More blocks would need more sweeps.
N_BLOCKS, FEWEST_BLOCKS = 16, 8

# Fewest nodes of the components that one thread lets send: fewer cost more calls than threads save.
SMALLEST_SHARE = 4096

# Parts that labelled graphs are cut into, whatever the number of threads, whose sums are apart: sixteen threads have
# eight each. More of them take longer to add up (benchmarks/speed/threads.py).
N_PARTS = 128
