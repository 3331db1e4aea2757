"""
Denoising: learning matched to inference
========================================

This example restores binary images from noise. A field can be trained with best
labelings (the saddle point approximation, SPA) or with marginals (the pseudo-marginal
approximation, PMA). Labels can be predicted as the best labeling (MAP) or by the
largest marginals (MPM). Kumar, August and Hebert (2005) found that learning and
prediction should use the same inference. This example confirms the result: MAP has few
errors with the weights of SPA, and MPM has few errors with the weights of PMA. Other
combinations have more errors.
"""

# %%
# Data
# ----
#
# There are four shapes with fine structure. Training uses eight noisy copies of the
# first shape, and prediction restores all four shapes. The noise is *bimodal*: the grey
# values of each class are a mixture of two Gaussians, so a single pixel says little
# about its class.
import copy
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import DRFClassifier
from sklearn_crf.datasets import make_binary_shapes, make_noisy_shapes
from sklearn_crf.display import FieldDisplay

names = make_binary_shapes().names
X_train, y_train, _ = make_noisy_shapes("bimodal", 8, shapes=names[:1], random_state=0)
X_test, y_test, _ = make_noisy_shapes("bimodal", 1, random_state=1)
print("images, rows, columns, features:", X_train.shape)

# %%
# Two ways to learn
# -----------------
#
# An estimator combines a learning method with an inference. The default,
# ``learning="coupled"``, chooses the learning method that matches the inference. The
# node feature is the grey value, and the edge features are
# ``[1, |difference of grey values|]``, as in the paper.
matched_map = DRFClassifier(learning="spa", inference="map", random_state=0)
matched_mpm = DRFClassifier(learning="pma", inference="mpm")
with warnings.catch_warnings():  # messages do not converge for some weights
    warnings.simplefilter("ignore", ConvergenceWarning)
    matched_map.fit(X_train, y_train)
    matched_mpm.fit(X_train, y_train)
for name, field in {"SPA": matched_map, "PMA": matched_mpm}.items():
    print(
        f"{name}: pixel weight {field.coef_.ravel()}, "
        f"edge weights {field.edge_coef_.ravel()}"
    )

# %%
# Without edges, the model is a logistic regression that labels each pixel by itself.
alone = DRFClassifier().fit(X_train.reshape(-1, 1), y_train.ravel())
y_alone = alone.predict(X_test.reshape(-1, 1)).reshape(y_test.shape)
print(f"pixel by pixel: {100 * np.mean(y_alone != y_test):.1f} % wrong")

# %%
# Four ways to predict
# --------------------
#
# A fitted estimator can predict with another inference than in training.
inferences = ("map", "mpm")
ways = {"SPA": matched_map, "PMA": matched_mpm}
predicted = {
    (way, inference): copy.copy(field).set_params(inference=inference).predict(X_test)
    for way, field in ways.items()
    for inference in inferences
}
for (way, inference), labels in predicted.items():
    print(f"{way} + {inference.upper()}: {100 * np.mean(labels != y_test):.2f} % wrong")

# %%
# Each column is a pair of learning and inference; matching pairs are in bold.
columns = {"input": X_test[..., 0], "truth": y_test, "pixel by pixel": y_alone}
for (way, inference), labels in predicted.items():
    columns[f"{way} + {inference.upper()}"] = labels
figure, axes = plt.subplots(
    4, len(columns), figsize=(2 * len(columns), 8.6), layout="constrained"
)
for i, row in enumerate(axes):
    for ax, (title, pictures) in zip(row, columns.items(), strict=True):
        ax.imshow(pictures[i], cmap="gray_r", interpolation="nearest")
        ax.set_xticks([])
        ax.set_yticks([])
        if i == 0:
            matched = title in ("SPA + MAP", "PMA + MPM")
            ax.set_title(title, weight="bold" if matched else "normal")
        if title not in ("input", "truth"):
            ax.set_xlabel(f"{100 * np.mean(pictures[i] != y_test[i]):.1f} % wrong")
plt.show()

# %%
# A closer look at one image
# --------------------------
#
# The marginals show where the field is uncertain: along the outlines, and where a
# stroke is one pixel wide.
FieldDisplay.from_estimator(matched_mpm, X_test[1], y_test[1])
plt.show()
