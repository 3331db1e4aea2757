"""
Activities that last: scores of durations
=========================================

In a chain, each label depends only on the previous label. The probabilities of
durations therefore decrease geometrically, and one step is the most probable duration.
Activities of people, machines and animals, however, have a minimum duration.
:class:`~sklearn_crf.potentials.Segments` adds a score for the duration of each run of a
label (a semi-Markov model), and may forbid runs that are too short.
"""

# %%
# Noisy recordings
# ----------------
#
# The recordings contain three activities, each of 8 to 20 steps. A single step says
# little about its activity.
from itertools import groupby

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import TRWCRF
from sklearn_crf.potentials import PairwiseTables, Segments

rng = np.random.default_rng(0)


def recording(n_steps=150):
    activities = []
    activity = rng.integers(3)
    while len(activities) < n_steps:
        activities += [activity] * rng.integers(8, 21)
        activity = (activity + rng.integers(1, 3)) % 3
    activities = np.array(activities[:n_steps])
    return np.eye(3)[activities] + rng.normal(scale=2.0, size=(n_steps, 3)), activities


X, y = zip(*[recording() for _ in range(40)], strict=True)
X_test, y_test = zip(*[recording() for _ in range(40)], strict=True)

# %%
# Three fields
# ------------
#
# Three fields with the same features are trained by exact maximum likelihood. The first
# field has no scores of durations. The second field has a score for each duration, and
# the third field also has a minimum duration.
fields = {
    "plain chain": "full",
    "durations": PairwiseTables("full", segments=Segments(25)),
    "least duration": PairwiseTables("full", segments=Segments(25, min_duration=8)),
}
for name, pairwise in fields.items():
    fields[name] = TRWCRF(pairwise=pairwise, inference="map").fit(X, y)
    print(f"{name:15} {fields[name].score(X_test, y_test):.3f} right")

# %%
# The plain chain splits activities into short runs. With scores of durations, predicted
# activities last as long as the true activities.


def durations(sequences):
    return np.array(
        [len(list(run)) for labels in sequences for _, run in groupby(labels)]
    )


fig, axes = plt.subplots(2, 1, figsize=(7, 5), layout="constrained")
shown = {
    "truth": y_test[0],
    **{name: field.predict(X_test[:1])[0] for name, field in fields.items()},
}
axes[0].imshow(
    list(shown.values()), aspect="auto", interpolation="nearest", cmap="viridis"
)
axes[0].set(yticks=range(len(shown)), yticklabels=shown, xlabel="step")
bins = np.arange(0.5, 41, 2)
kinds = {
    "truth": y_test,
    **{name: field.predict(X_test) for name, field in fields.items()},
}
for name, sequences in kinds.items():
    axes[1].hist(durations(sequences), bins, histtype="step", label=name, linewidth=1.5)
axes[1].set(xlabel="steps of an activity", ylabel="activities")
axes[1].legend()

# %%
# The learned scores are high for durations from 8 to 20 steps.
fig, ax = plt.subplots(figsize=(7, 2.5), layout="constrained")
ax.plot(np.arange(1, 26), fields["durations"].duration_coef_.T, marker=".")
ax.set(xlabel="duration", ylabel="score")
plt.show()
