"""Calibration of entity probabilities, compared with products of token probabilities."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import TRWCRF
from sklearn_crf.metrics import entities
from sklearn_crf.potentials import PairwiseTables

CLASSES = np.array(["O", "B-PER", "I-PER"])
NEXT = np.array([[0.75, 0.25, 0.0], [0.4, 0.1, 0.5], [0.5, 0.1, 0.4]])


def draw(n_sentences, rng):
    """Draw sentences of twelve tokens, whose features predict the classes with errors."""
    y = np.zeros((n_sentences, 12), dtype=int)
    for t in range(1, y.shape[1]):
        y[:, t] = [rng.choice(3, p=NEXT[k]) for k in y[:, t - 1]]
    return np.eye(3)[y] + rng.normal(scale=0.8, size=(*y.shape, 3)), CLASSES[y]


rng = np.random.default_rng(0)
X, y = draw(400, rng)
tagger = TRWCRF(pairwise=PairwiseTables("full", forbidden="IOB2")).fit(*draw(200, rng))
tokens = tagger.predict_proba(X)
exact, product, right = [], [], []
for found, probability, true in zip(tagger.predict_entity_proba(X), tokens, y, strict=True):
    truth = set(entities(true, "IOB2"))
    for kind, first, last, own in found:
        names = [f"B-{kind}"] + [f"I-{kind}"] * (last - first - 1)
        columns = [tagger.classes_.tolist().index(name) for name in names]
        exact.append(own)
        product.append(probability[np.arange(first, last), columns].prod())
        right.append((kind, first, last) in truth)
figure, ax = plt.subplots(figsize=(4.6, 3.6), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.8")
for label, values in {"entity": exact, "product of tokens": product}.items():
    parts = np.array_split(np.argsort(values), 8)
    ax.plot(
        [np.mean(np.array(values)[part]) for part in parts],
        [np.mean(np.array(right)[part]) for part in parts],
        "o-",
        label=label,
    )
ax.set(xlabel="predicted probability", ylabel="share of entities that are right", xlim=(0, 1), ylim=(0, 1))
ax.legend()
