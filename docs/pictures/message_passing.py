"""Marginals of belief propagation and exact marginals against the strength of couplings."""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import JunctionTree, LoopyBP, MeanField, TRWMessagePassing
from sklearn_crf.models import PairwiseModel

warnings.simplefilter("ignore")  # belief propagation may not converge at strong couplings
rng = np.random.default_rng(0)
grid = lattice((8, 8))
unary, signs = rng.normal(size=(64, 2)), rng.normal(size=grid.n_edges)
couplings = np.linspace(0.1, 3, 12)
methods = {"LoopyBP": LoopyBP(), "TRWMessagePassing": TRWMessagePassing(), "MeanField": MeanField()}
errors = {name: [] for name in methods}
for coupling in couplings:
    model = PairwiseModel(grid, unary, coupling * np.eye(2)[None], edge_weight=signs)
    exact = JunctionTree().marginals(model).unary
    for name, method in methods.items():
        errors[name].append(np.abs(method.marginals(model).unary - exact).mean())
for name, values in errors.items():
    plt.plot(couplings, values, "o-", label=name)
plt.xlabel("strength of couplings of both signs")
plt.ylabel("mean error of marginals")
plt.legend()
