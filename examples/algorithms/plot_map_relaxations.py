"""
Bounds and fractional solutions of MAP relaxations
==================================================

The best labeling of a graph with cycles is hard to find, but its linear relaxation is
easy to solve. In the relaxation, every node and every edge has a distribution over its
states, and the distribution of an edge must agree with the distributions of its two
nodes. The value of the relaxation is an upper bound on the best score. If the solution
is a labeling, this labeling is optimal. Otherwise, some nodes are undecided.

The field of this example is a grid of nodes with three states. With weak couplings, the
relaxation decides every node. Strong couplings favour equal states of some neighbours
and different states of other neighbours. If these couplings contradict each other,
nodes remain undecided.
"""

# %%
# Two fields
# ----------
# The fields have the same unary scores; their scores of edges differ by a factor.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import AD3, IncMP
from sklearn_crf.models import PairwiseModel

rng = np.random.default_rng(0)
graph = lattice((24, 24))
unary = rng.normal(size=(graph.n_nodes, 3))
coupling = rng.normal(size=graph.n_edges)


def field(strength):
    return PairwiseModel(graph, unary, np.eye(3)[None], edge_weight=strength * coupling)


# %%
# Fractional solutions
# --------------------
# AD3 returns the fractional solution, a labeling and a bound. The best score exceeds
# the score of the labeling by at most the gap.

figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
for axis, strength in zip(axes, (0.4, 1.2, 2.4), strict=True):
    found = AD3().map(field(strength))
    sure = found.fractional.max(axis=1).reshape(graph.shape)
    image = axis.imshow(sure, vmin=1 / 3, vmax=1, cmap="magma")
    share = 100 * np.mean(sure > 0.99)
    axis.set(
        title=f"coupling {strength}\n{share:.0f} % decided, gap {found.gap:.1f}",
        xticks=[],
        yticks=[],
    )
figure.colorbar(image, ax=axes, label="largest marginal", shrink=0.8)
plt.show()

# %%
# Bounds and labels by iteration
# ------------------------------
# AD3 and IncMP can be stopped at any time: the bound is valid after every iteration,
# and the labeling is the best of all iterations. IncMP begins with steps of the size of
# the scores. At first, these steps are too long to improve the bound, but they change
# many labels.

model = field(2.4)
figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
budgets = 2 ** np.arange(8)
for algorithm, colour in ((AD3(), "tab:blue"), (IncMP(), "tab:orange")):
    with warnings.catch_warnings():
        # With tol=0, a limited number of iterations always raises a warning.
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = [
            algorithm.set_params(max_iter=int(n), tol=0).map(model) for n in budgets
        ]
    name = type(algorithm).__name__
    bounds, scores = np.transpose([(r.bound, r.score) for r in results])
    axis.plot(budgets, bounds, ":", color=colour, label=f"{name}, bound")
    axis.plot(budgets, scores, "-", color=colour, label=f"{name}, score")
    print(
        f"{name:6} {budgets[-1]} iterations: score {scores[-1]:.1f} <= {bounds[-1]:.1f}"
    )
axis.set(xscale="log", xlabel="iterations", ylabel="score", title="coupling 2.4")
axis.legend(fontsize=8)
plt.show()
