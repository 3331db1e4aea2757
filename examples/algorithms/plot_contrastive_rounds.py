"""
Contrastive learning, round by round
====================================

Pseudolikelihood learns to label every pixel given the true labels of its neighbours. If
neighbours nearly always agree, pseudolikelihood relies on neighbours too much. At
prediction, the labels of neighbours are unknown, and all pixels get the same label.
Contrastive constraint generation searches for labelings with high scores under the
model, and learns that the true labeling should have a higher score.
"""

# %%
# Data
# ----
#
# The images have smooth regions of three classes. The standard deviation of the noise
# is twice the distance between neighbouring classes.
import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import ContrastiveCRF
from sklearn_crf.inference import LoopyBP
from sklearn_crf.learning import ContrastiveTraining

rng = np.random.default_rng(0)
fields = gaussian_filter(rng.normal(size=(3, 16, 24, 24)), (0, 0, 3, 3))
y = fields.argmax(axis=0)
X = np.eye(3)[y] + rng.normal(scale=1.5, size=(*y.shape, 3))
X_train, y_train, X_test, y_test = X[:10], y[:10], X[10:], y[10:]

# %%
# Rounds
# ------
#
# ``ContrastiveTraining(generator=None)`` is pseudolikelihood without generated
# labelings. With a generator, each training round adds labelings that max-product finds
# from random messages. The first rounds add labelings of a single class, because these
# labelings have the highest scores under the weights of pseudolikelihood.
inference = LoopyBP(max_iter=500, damping=0.3)
options = {
    "edge_features": "constant",
    "pairwise": "potts",
    "inference": inference,
    "random_state": 0,
}
alone, growing = ContrastiveTraining(generator=None), ContrastiveTraining(max_rounds=15)
local = ContrastiveCRF(learning=alone, **options).fit(X_train, y_train)
field = ContrastiveCRF(learning=growing, **options).fit(X_train, y_train)
for name, model in (("pseudolikelihood", local), ("with generated labelings", field)):
    print(
        f"{name:25s} {100 * model.score(X_test, y_test):.1f} % right, "
        "weight of equal neighbours "
        f"{model.edge_coef_.item():.2f}"
    )

# %%
# Probability of the true labeling
# --------------------------------
#
# Ratios of the probabilities of two labelings need no partition function. With the
# weights of pseudolikelihood, the true labeling is far less probable than a labeling of
# a single class.
flat = np.zeros_like(y_test)
for name, model in (("pseudolikelihood", local), ("with generated labelings", field)):
    log_odds = model.log_likelihood_ratio(X_test, y_test, flat)
    print(f"{name:25s} log-odds of the truth {log_odds.round()}")

# %%
figure, axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
pictures = {
    "truth": y_test[0],
    "pseudolikelihood": local.predict(X_test[:1])[0],
    "with generated labelings": field.predict(X_test[:1])[0],
}
for axis, (title, picture) in zip(axes, pictures.items(), strict=False):
    axis.imshow(picture, cmap="viridis", vmin=0, vmax=2)
    axis.set(title=title, xticks=[], yticks=[])
axes[3].plot(field.loss_curve_)
axes[3].plot(
    field.round_starts_,
    field.loss_curve_[field.round_starts_],
    "o",
    markersize=4,
    label="start of a round",
)
axes[3].set(xlabel="iteration", title="objective")
axes[3].legend()
plt.show()
