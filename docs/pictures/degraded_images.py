"""A tile of a photograph: blurred by motion, and restored by a field that is given the blur kernel."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import Blur, FieldSolver

luma = load_sample_image("china.jpg").mean(axis=2).astype(np.float32)
# Training tiles have no pixels of the test tile.
corners = [(top, left) for top in (150, 250) for left in (20, 120, 220, 450, 550)]
train, test = [luma[top : top + 64, left : left + 64] for top, left in corners], luma[180:308, 300:428]
blur = Blur(np.eye(7) / 7, noise=2.0)
solver = FieldSolver(early_stopping=False, shrinkage=0.0)
field = RegressionTreeField(degradation=blur, max_depth=2, filter_bank=None, solver=solver, random_state=0).fit(train)
blurred = blur(test, np.random.default_rng(0))
figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
shown = {"blurred": blurred, "restored": field.predict([blurred])[0], "truth": test}
for ax, (title, image) in zip(axes, shown.items(), strict=True):
    error = "" if title == "truth" else f", error {np.sqrt(np.mean((image - test)[8:-8, 8:-8] ** 2)):.1f}"
    ax.imshow(image, cmap="gray", vmin=0, vmax=255)
    ax.set(xticks=[], yticks=[], title=title + error)
