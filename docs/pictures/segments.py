"""Durations of true and of predicted activities, and a recording labelled with and without scores of durations."""

from itertools import groupby

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import TRWCRF
from sklearn_crf.potentials import PairwiseTables, Segments

rng = np.random.default_rng(0)


def recording(n_runs=12):
    """Draw the noisy features and the labels of activities of 8 to 20 steps."""
    labels = np.repeat(np.arange(n_runs) % 3, rng.integers(8, 21, size=n_runs))
    return np.eye(3)[labels] + rng.normal(scale=2.0, size=(len(labels), 3)), labels


X, y = zip(*[recording() for _ in range(60)], strict=True)
train, test = slice(0, 20), slice(20, 60)
kinds = {"plain chain": "full", "segments": PairwiseTables("full", segments=Segments(25))}
labels = {"truth": y[test]}
for name, pairwise in kinds.items():
    labels[name] = TRWCRF(pairwise=pairwise, inference="map").fit(X[train], y[train]).predict(X[test])
figure, (above, below) = plt.subplots(2, 1, figsize=(6, 4), layout="constrained", height_ratios=[1, 2])
above.imshow([own[0] for own in labels.values()], aspect="auto", interpolation="nearest")
above.set(yticks=range(3), yticklabels=labels, xlabel="step")
for name, sequences in labels.items():
    found = [len(list(run)) for own in sequences for _, run in groupby(own.tolist())]
    below.hist(found, np.arange(0.5, 41, 2), histtype="step", label=name)
below.set(xlabel="steps of an activity", ylabel="activities")
below.legend()
