"""
Fully connected field: sharp borders from coarse probabilities
==============================================================

Networks for segmentation predict probabilities on a coarse grid: borders are blurred,
and thin parts are lost. A fully connected field restores the borders. The field joins
every pair of pixels by an edge whose weight depends on the distance of the pixels and
on the similarity of their colours. One line of code refines the probabilities of an
image. The weights of the field can be learned from a few labelled images, by
differentiating the updates of the prediction.
"""

# %%
# Images and coarse probabilities
# -------------------------------
#
# Discs with thin arms lie in front of a shaded background of two colours. The generated
# probabilities resemble the output of a network: the true classes are averaged over
# squares of eight pixels, spatially correlated noise is added, and the result is
# interpolated to the size of the image.
import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter, zoom

from sklearn_crf import Bilateral, DenseCRF, DenseExample, Spatial, refine
from sklearn_crf.dense import refinement_report
from sklearn_crf.inference import DenseMeanField

rng = np.random.default_rng(0)
SIDE, STRIDE, N_CLASSES = 80, 8, 3
COLOURS = np.array([[80.0, 100, 130], [150, 125, 90], [115, 135, 95]])


def draw_labels():
    rows, columns = np.mgrid[:SIDE, :SIDE]
    labels = (
        rows > rng.uniform(42, 62) + 6 * np.sin(columns / rng.uniform(6, 14))
    ).astype(int)
    for _ in range(2):
        row, column = rng.uniform(15, 65, size=2)
        angle, radius = (
            np.arctan2(rows - row, columns - column),
            np.hypot(rows - row, columns - column),
        )
        labels[
            radius
            < 11 + 16 * (np.cos(rng.integers(3, 6) * angle + rng.uniform(0, 6)) > 0.92)
        ] = 2
    return labels


def draw_image(labels):
    shade = gaussian_filter(rng.normal(size=labels.shape), 12)
    noise = rng.normal(scale=12, size=(*labels.shape, 3))
    return COLOURS[labels] + 15 * (shade / shade.std())[..., np.newaxis] + noise


def coarse_probabilities(labels):
    squares = (
        np.eye(N_CLASSES)[labels]
        .reshape(SIDE // STRIDE, STRIDE, SIDE // STRIDE, STRIDE, -1)
        .mean(axis=(1, 3))
    )
    noise = gaussian_filter(rng.normal(size=squares.shape), (1, 1, 0))
    scores = zoom(
        2.5 * squares + 0.8 * noise / noise.std(), (STRIDE, STRIDE, 1), order=1
    )
    return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)


labels = [draw_labels() for _ in range(14)]
images = [draw_image(each) for each in labels]
probabilities = [coarse_probabilities(each) for each in labels]

# %%
# Refining one image
# ------------------
#
# The default kernels have the published bandwidths, for colours from 0 to 255, and
# lower weights than the published kernels. The probabilities of a real network, for
# example from ``np.load("softmax.npz")``, are refined in the same way. The last axis of
# the probabilities is the axis of classes.

refined = refine(probabilities[-1], images[-1])
wrong = [np.mean(p.argmax(axis=-1) != labels[-1]) for p in (probabilities[-1], refined)]
print(f"pixels wrong: {100 * wrong[0]:.1f} % before, {100 * wrong[1]:.1f} % after")

# %%
# Learned weights
# ---------------
#
# Unary scores are logarithms of probabilities times a factor. Training learns this
# factor and the weight of each kernel. With ``bandwidths="held_out"``, training also
# chooses the bandwidths with the lowest loss on held-out images.

X = [
    DenseExample(np.log(p), image)
    for p, image in zip(probabilities, images, strict=True)
]
X_train, y_train, X_test, y_test = X[:6], labels[:6], X[6:], labels[6:]
learned = DenseCRF(
    [Spatial(3.0), Bilateral(15.0, 13.0)],
    inference=DenseMeanField(max_iter=5),
    tol=2e-3,
).fit(X_train, y_train)
for kernel, weight in zip(learned.kernels_, learned.compatibility_, strict=True):
    print(f"{kernel}: learned weight {weight:.2f}")

# %%
# Comparison of the fields
# ------------------------
#
# If the unary scores are very good, a field may not improve them. The report compares
# fields on new images, with confidence intervals of the differences over images.

report = refinement_report(
    X_train,
    y_train,
    X_test,
    y_test,
    fields={"dense, fixed": DenseCRF(learning="fixed"), "dense, learned": learned},
)
print(report)

# %%
# Pictures
# --------

palette = COLOURS / 255
fields = {
    "no field": probabilities[-1],
    "fixed weights": refined,
    "learned": learned.predict_proba(X[-1:])[0],
}
fig, axes = plt.subplots(2, 3, figsize=(9, 6), layout="constrained")
axes[0, 0].imshow(np.clip(images[-1], 0, 255).astype(np.uint8))
axes[0, 0].set_title("image")
axes[0, 1].imshow(palette[labels[-1]])
axes[0, 1].set_title("truth")
axes[0, 2].imshow(learned.predict_proba(X[-1:])[0][..., 2], cmap="gray", vmin=0, vmax=1)
axes[0, 2].set_title("probability of an object, learned")
for ax, (name, found) in zip(axes[1], fields.items(), strict=True):
    predicted = found.argmax(axis=-1)
    ax.imshow(palette[predicted])
    ax.set_title(f"{name}: {100 * np.mean(predicted != labels[-1]):.1f} % wrong")
for ax in axes.ravel():
    ax.set_axis_off()

plt.show()
