"""Upper bounds on the log-partition from two entropies, and its exact value, against the coupling."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import JunctionTree, NormProductBP
from sklearn_crf.models import PairwiseModel

rng = np.random.default_rng(0)
unary = rng.normal(size=(16, 2))
couplings = np.linspace(0.25, 2, 8)
methods = {
    "trivial": NormProductBP("trivial", max_iter=500),
    "tree-reweighted": NormProductBP("trw", max_iter=5000, tol=1e-4),
}
models = [PairwiseModel(lattice((4, 4)), unary, coupling * np.eye(2)[None]) for coupling in couplings]
exact = np.array([JunctionTree().marginals(model).log_z for model in models])
for name, method in methods.items():
    plt.plot(couplings, [method.marginals(model).log_z for model in models] - exact, "o-", label=name)
plt.yscale("log")
plt.xlabel("coupling")
plt.ylabel("bound minus log-partition")
plt.legend()
