"""
An object cut out by colour and texture
=======================================

A user marks pixels that certainly belong to the object or to the background. One
mixture of factor analysers per class is trained on marked pixels, and classifies the
pixels of the band between the two marked regions. Features are CIE Lab colour and the
eigenvalues of the structure tensor (:class:`~sklearn_crf.preprocessing.PixelFeatures`,
which needs scikit-image). One colour of the generated picture occurs in the object and
in the background; pixels of this colour only differ in texture.

On this picture, all three training criteria label the band equally well.
:doc:`/auto_examples/selection/plot_generative_discriminative` shows data on which the
criteria differ.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import distance_transform_edt, gaussian_filter

from sklearn_crf import MultiConditionalMFA
from sklearn_crf.preprocessing import PixelFeatures

rng = np.random.default_rng(0)

# %%
# The true object of the generated picture is known. The background has patches of
# smooth colours, and the object has two colours with texture.


def patches(shape, colours, size):
    """Return an image with the colour whose smooth random field is largest."""
    fields = [gaussian_filter(rng.normal(size=shape), size) for _ in colours]
    return np.array(colours)[np.argmax(fields, axis=0)]


shape = (180, 240)
rows, columns = np.mgrid[: shape[0], : shape[1]] - np.array(shape).reshape(2, 1, 1) / 2
angle, radius = np.arctan2(rows, columns), np.hypot(rows, columns)
truth = radius < 58 + 12 * np.cos(5 * angle)

background = patches(
    shape, [(0.25, 0.45, 0.30), (0.35, 0.55, 0.65), (0.60, 0.50, 0.35)], 9
)
background = background + 0.02 * rng.normal(size=(*shape, 3))
object_ = patches(
    shape, [(0.60, 0.50, 0.35), (0.65, 0.30, 0.30)], 7
) + 0.09 * rng.normal(size=(*shape, 1))
image = np.clip(
    np.where(truth[..., None], object_, background)
    + 0.02 * rng.normal(size=(*shape, 3)),
    0,
    1,
)

# %%
# The classifier is trained on 300 marked pixels on each side of the band around the
# boundary, and classifies the band.

distance = np.where(
    truth, distance_transform_edt(truth), distance_transform_edt(~truth)
)
band = distance < 14
features = PixelFeatures(texture_scale="log").fit_transform(image[np.newaxis])[0]
train = np.concatenate(
    [
        rng.choice(np.flatnonzero((truth == c) & ~band), 300, replace=False)
        for c in (False, True)
    ]
)
X, y = features.reshape(-1, 9), truth.ravel()

models = {
    "joint likelihood": MultiConditionalMFA(
        5, 3, objective="joint", noise="tied", random_state=0
    ),
    "multi-conditional, alpha = 0.01": MultiConditionalMFA(
        5, 3, alpha=0.01, noise="tied", random_state=0
    ),
    "conditional likelihood": MultiConditionalMFA(
        5, 3, alpha=0, noise="tied", random_state=0
    ),
}
probabilities, accuracies = {}, {}
for name, model in models.items():
    model.fit(X[train], y[train])
    probabilities[name] = model.predict_proba(X)[:, 1].reshape(shape)
    accuracies[name] = model.score(X[band.ravel()], y[band.ravel()])
    print(
        f"{name:32} training {model.score(X[train], y[train]):.3f}, "
        f"band {accuracies[name]:.3f}"
    )

# %%
# The picture shows the marks outside the band, and the probability of the object inside
# the band.

figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained")
marked = image.copy()
marked[band] = 0.5 * marked[band] + 0.5
marked.reshape(-1, 3)[train] = np.where(y[train, None], (1, 1, 0), (0, 0.2, 1))
segmented = (
    np.where(band, probabilities["multi-conditional, alpha = 0.01"], truth) > 0.5
)
for ax, picture, title in zip(
    axes[0],
    [image, marked, np.where(segmented[..., None], image, 1)],
    ["image", "training pixels, and the band", "cut out, alpha = 0.01"],
    strict=True,
):
    ax.imshow(picture)
    ax.set_title(title)
for ax, (name, probability) in zip(axes[1], probabilities.items(), strict=True):
    ax.imshow(np.where(band, probability, truth), cmap="gray", vmin=0, vmax=1)
    ax.set_title(f"{name}\n{100 * accuracies[name]:.1f}% of the band")
for ax in axes.flat:
    ax.set_axis_off()
plt.show()
