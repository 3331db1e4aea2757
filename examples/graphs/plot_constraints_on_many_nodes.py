"""
Constraints on more than two nodes
==================================

In the sequences of this example, every label is the parity of two earlier labels, which
are two and three positions before it. Neighbouring labels are independent, so the
pairwise tables of a chain learn nothing. Factors of three nodes learn the rule from the
joint states that occur in training. Fixed factors add knowledge about test examples: in
this example, the number of labels that are one.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import TRWCRF, Example
from sklearn_crf.inference import JunctionTree
from sklearn_crf.learning import Relaxation
from sklearn_crf.models import CountTable

LENGTH = 14


def sequences(n, seed):
    """Draw labels by the rule; return noisy features and labels."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = np.zeros(LENGTH, dtype=int)
        while not labels[:3].any():
            labels[:3] = rng.integers(2, size=3)
        for t in range(3, LENGTH):
            labels[t] = (
                (labels[t - 2] + labels[t - 3]) % 2
                if rng.random() < 0.95
                else rng.integers(2)
            )
        X.append((2 * labels - 1 + rng.normal(scale=1.3, size=LENGTH))[:, None])
        y.append(labels)
    return X, y


chain = [[t, t + 1] for t in range(LENGTH - 1)]
triples = [[t, t + 1, t + 3] for t in range(LENGTH - 3)]


def with_factors(X):
    return [Example(x, chain, factors={"parity": triples}) for x in X]


X, y = sequences(20, seed=0)
X_test, y_test = sequences(20, seed=1)

# %%
# Weights of joint states
# -----------------------
#
# For each type of factors, ``factor_states_`` lists the joint states that occur in
# training. ``factor_coef_`` has a weight for each of these joint states, and a last
# weight for all other joint states.

models = {
    "chain": TRWCRF(),
    "pseudolikelihood": TRWCRF(learning="pseudolikelihood"),
    "piecewise": TRWCRF(learning="piecewise"),
    "relaxation": TRWCRF(learning=Relaxation(entropy="trivial")),
    "exact": TRWCRF(learning="exact"),
}
for name, model in models.items():
    model.set_params(tol=3e-3, inference=JunctionTree())
    model.fit([Example(x, chain) for x in X] if name == "chain" else with_factors(X), y)

exact = models["exact"]
states, weights = exact.factor_states_["parity"], exact.factor_coef_["parity"][0]

# %%
# Constraints at prediction only
# ------------------------------
#
# ``with_fixed_factors`` adds factors whose tables are not learned. A count table
# contains a score for every number of ones. In this example, the score is -inf for all
# numbers except the true number.

constrained = [
    x.with_fixed_factors(
        [(range(LENGTH), CountTable([-np.inf] * labels.sum() + [0.0]))]
    )
    for x, labels in zip(with_factors(X_test), y_test, strict=True)
]

print(f"{'':18s}{'accuracy':>10s}{'counted':>10s}")
for name, model in models.items():
    score = model.score(
        [Example(x, chain) for x in X_test]
        if name == "chain"
        else with_factors(X_test),
        y_test,
    )
    counted = "" if name == "chain" else f"{model.score(constrained, y_test):10.3f}"
    print(f"{name:18s}{score:10.3f}{counted}")

# %%
# Joint states with an even number of ones, which the rule requires, have other weights
# than joint states with an odd number of ones.

order = np.lexsort((np.arange(len(states)), states.sum(axis=1) % 2))
names = ["".join(map(str, states[k])) for k in order] + ["others"]
colors = [f"C{states[k].sum() % 2}" for k in order] + ["0.6"]

figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=(3, 2)
)
left.bar(names, np.append(weights[order], weights[-1]), color=colors)
left.tick_params(axis="x", rotation=90)
left.set(title="weights of joint states of three nodes", ylabel="score")

by_chain = models["chain"].predict([Example(x, chain) for x in X_test])
by_factors, by_counts = exact.predict(with_factors(X_test)), exact.predict(constrained)
gained = [
    np.sum(a != truth) - np.sum(b != truth)
    for a, b, truth in zip(by_chain, by_counts, y_test, strict=True)
]
i = int(np.argmax(gained))
rows = {
    "seen": X_test[i][:, 0] > 0,
    "chain": by_chain[i],
    "factors": by_factors[i],
    "counted": by_counts[i],
    "truth": y_test[i],
}
right.imshow(np.array(list(rows.values()), dtype=float), cmap="gray_r", aspect="auto")
for r, labels in enumerate(rows.values()):
    wrong = np.flatnonzero(np.asarray(labels) != y_test[i])
    right.plot(wrong, np.full(len(wrong), r), "x", color="C3")
right.set(title="one test sequence, errors crossed", xlabel="position")
right.set_yticks(range(len(rows)), rows)
plt.show()
