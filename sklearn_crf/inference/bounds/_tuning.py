"""Constants of bounds on the log-partition that were tuned, and what each trades.

``benchmarks/papers/trw_convergence.py`` shows how fast the bounds fall.
"""

# Sweeps of messages after which the bound that they give is looked at. More of them go on longer than needed, fewer
# look more often.
SWEEPS_AT_ONCE = 50

# Part of old messages that is kept from where the bound does not fall. Plain sweeps come to their end in a fifth of the
# time, but may not come to it.
DAMPING = 0.5

# Share of the linear decrease that a step of conditional gradients must reach, and how often the step is halved at most
# to reach it.
SUFFICIENT_DECREASE, MOST_HALVINGS = 0.1, 6

# Nodes of trees that are done in one go: many small trees at once save calls, few large ones can be shared by threads.
NODES_AT_ONCE = 20_000
