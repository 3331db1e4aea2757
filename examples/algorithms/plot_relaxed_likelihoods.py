"""
Five ways to relax the likelihood
=================================

On graphs with cycles, a convex bound replaces the log-partition of the likelihood.
Three methods that minimise the resulting objective end at the same weights. Piecewise
training and pseudolikelihood have different objectives.
"""

# %%
# Two chains, two label spaces
# ----------------------------
#
# Each word has one of four parts of speech and one of two chunk tags. The label of a
# node is an index into the list of labels of its type, and ``n_states`` is the length
# of this list. Two neighbouring parts of speech determine the chunk tag.
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import TRWCRF, Example
from sklearn_crf.learning import Exact

rng = np.random.default_rng(0)
transition = np.array(
    [
        [0.1, 0.7, 0.1, 0.1],
        [0.1, 0.1, 0.7, 0.1],
        [0.2, 0.2, 0.1, 0.5],
        [0.7, 0.1, 0.1, 0.1],
    ]
)


def sentence(n_words=8):
    speech = [int(rng.integers(4))]
    for _ in range(n_words - 1):
        speech.append(int(rng.choice(4, p=transition[speech[-1]])))
    speech = np.array(speech)
    chunk = (speech != (np.append(-1, speech[:-1]) + 1) % 4).astype(int)
    nodes = np.arange(n_words)
    chain = np.stack([nodes[:-1], nodes[1:]], axis=1)
    words = np.eye(4)[speech] + rng.normal(scale=0.6, size=(n_words, 4))
    x = Example(
        np.concatenate([words, words]),
        np.concatenate(
            [chain, chain + n_words, np.stack([nodes, nodes + n_words], axis=1)]
        ),
        node_type=np.repeat([0, 1], n_words),
        edge_type=np.repeat([0, 1, 2], [n_words - 1, n_words - 1, n_words]),
        n_states=np.repeat([4, 2], n_words),
    )
    return x, np.concatenate([speech, chunk])


X, y = map(list, zip(*[sentence() for _ in range(60)], strict=True))
X_train, y_train, X_test, y_test = X[:20], y[:20], X[20:], y[20:]

# %%
# Objective by iteration
# ----------------------
#
# ``certify`` computes upper bounds on the scores of the best labelings. With
# ``inference="map"``, the gap is the largest possible difference between the best score
# and the score of the predicted labeling.
warnings.simplefilter("ignore", ConvergenceWarning)
models = {}
RELAXED = ("relaxation", "joint_relaxation", "dual_relaxation")
for learning in (*RELAXED, "piecewise", "pseudolikelihood"):
    model = TRWCRF(
        C=0.2, learning=learning, fit_intercept=False, max_iter=60, random_state=0
    )
    models[learning] = model.fit(X_train, y_train)
    gaps = model.set_params(inference="map").certify(X_test).gaps
    print(
        f"{learning:17s} objective {model.loss_curve_[-1]:7.3f}, "
        f"{100 * model.score(X_test, y_test):.1f} % right, "
        f"{np.sum(gaps < 1e-6)} of {len(X_test)} labelings proven best"
    )

_, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
least = min(models[name].loss_curve_.min() for name in RELAXED)
for name in RELAXED:
    axes.semilogy(np.maximum(models[name].loss_curve_ - least, 1e-6), label=name)
axes.set(xlabel="iterations", title="objective above its minimum")
axes.legend()

# %%
# Costs
# -----
#
# With ``cost``, the objective becomes softmax-margin instead of the likelihood. In this
# example, predicting 0 if the true label is 1 has a high cost for parts of speech and
# for chunk tags. The model then misses fewer beginnings of chunks.
probability = {}
for name, cost in (
    ("likelihood", None),
    ("missing 1 costs 3", [[0, 3, 0, 0], *np.zeros((3, 4))]),
):
    model = TRWCRF(C=0.2, learning=Exact(cost=cost), fit_intercept=False).fit(
        X_train, y_train
    )
    rows = [proba[len(proba) // 2 :, 1] for proba in model.predict_proba(X_test)]
    probability[name] = np.concatenate(rows)
_, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
begins = np.concatenate([labels[len(labels) // 2 :] for labels in y_test]) == 1
for name, values in probability.items():
    share = np.mean(values[begins] > 0.5)
    print(f"{name:18s} finds {100 * share:.0f} % of the chunks' first words")
    axes.hist(values[begins], np.linspace(0, 1, 21), histtype="step", label=name)
axes.set(xlabel="probability of true ones", title="costs in the likelihood")
axes.legend(loc="upper left")
plt.show()
