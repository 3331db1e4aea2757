"""
The same features, alone and in a field
=======================================

Any classifier can use context: with features of a window around each node, its
predictions become smoother. This example measures how much a field adds. Logistic
regression and a field are trained on the same features, including windows, of signals,
activities and textures. Errors are measured on new examples.
"""

# %%
# Two models, the same features
# -----------------------------
import matplotlib.pyplot as plt
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.ndimage import gaussian_filter, uniform_filter1d
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from sklearn_crf import TRWCRF
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.preprocessing import LocalImageFeatures, NodeTransformer

rng = np.random.default_rng(0)
errors = {}


def rows(X):
    return np.concatenate([x.reshape(-1, x.shape[-1]) for x in X])


def compare(name, X, y, n_train):
    """Train both models on n_train examples, and return predictions for the rest."""
    labels = np.concatenate([np.ravel(part) for part in y[:n_train]])
    truth = np.concatenate([np.ravel(part) for part in y[n_train:]])
    alone = LogisticRegression(max_iter=1000).fit(rows(X[:n_train]), labels)
    field = TRWCRF(edge_features="constant").fit(X[:n_train], y[:n_train])
    found = field.predict(X[n_train:])
    together = np.concatenate([np.ravel(part) for part in found])
    alone = alone.predict(rows(X[n_train:]))
    errors[name] = [np.mean(part != truth) for part in (alone, together)]
    print(f"{name:22} alone {errors[name][0]:.1%}, in a field {errors[name][1]:.1%}")
    return alone, together


# %%
# Phases of a signal
# ------------------
# Three phases follow each other in a fixed order, each for 3 to 7 steps. The field
# learns the order of the phases.
y = np.empty((200, 30), dtype=int)
for labels in y:
    phases = (rng.integers(3) + np.arange(10)) % 3
    labels[:] = np.repeat(phases, rng.integers(3, 8, size=10))[:30]
signals = y + rng.normal(size=y.shape)
for reach in (0, 2, 4):
    padded = np.pad(signals, [(0, 0), (reach, reach)], "edge")
    X = sliding_window_view(padded, 2 * reach + 1, axis=1)
    compare(f"phases, window of {2 * reach + 1}", X, y, 50)


# %%
# Activities from an accelerometer
# --------------------------------
# Some activities never follow each other: in these data, nobody runs directly after
# resting. The series have different lengths.
def series(n_steps):
    states = np.zeros(n_steps, dtype=int)
    for t in range(1, n_steps):
        change = rng.random() < 0.1
        states[t] = states[t - 1]
        if change:
            states[t] = rng.choice([0, 2] if states[t - 1] == 1 else [1])
    return rng.normal(scale=1 + states[:, np.newaxis], size=(n_steps, 3)), states


measured, y = zip(*[series(int(rng.integers(80, 160))) for _ in range(40)], strict=True)
for width in (1, 5, 15):
    X = [uniform_filter1d(x**2, width, axis=0) for x in measured]
    compare(f"activity, window of {width}", X, y, 20)

# %%
# Textures
# --------
# The images are mosaics of three textures. Features are contrast and edges at two
# scales.
smooth = gaussian_filter(rng.normal(size=(24, 24, 24, 3)), (0, 4, 4, 0))
grains = [
    gaussian_filter(rng.normal(size=(24, 24, 24)), (0, s, s)) for s in (0.5, 1, 1.5)
]
grains = np.stack([grain / grain.std() for grain in grains], axis=-1)
y = smooth.argmax(axis=-1)
images = np.take_along_axis(grains, y[..., np.newaxis], axis=-1)[..., 0]
features = make_pipeline(
    LocalImageFeatures(("intensity", "gradient", "deviation"), scales=(1.0, 2.0)),
    NodeTransformer(StandardScaler()),
)
found = compare("textures", features.fit_transform(images), y, 12)
figure, axes = plt.subplots(1, 4, figsize=(9, 2.6), layout="constrained")
labels = [part.reshape(12, 24, 24)[0] for part in found]
titles = ["seen", "alone", "in a field", "truth"]
for ax, title, image in zip(axes, titles, [images[12], *labels, y[12]], strict=True):
    ax.imshow(image, cmap="gray" if title == "seen" else "viridis")
    ax.set(title=title, xticks=[], yticks=[])
plt.show()

# %%
# All results
# -----------
# With larger windows, the field adds less, and windows that are too large increase the
# errors of both models. The field makes the fewest errors, because it models the labels
# of neighbours, not only their features.
figure, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
for place, (alone, together) in enumerate(errors.values()):
    ax.plot([100 * alone, 100 * together], [place, place], color="0.7", zorder=1)
    ax.scatter(100 * alone, place, color="tab:orange", zorder=2)
    ax.scatter(100 * together, place, color="tab:blue", zorder=2)
ax.set_yticks(range(len(errors)), errors)
ax.invert_yaxis()
ax.set(xlabel="wrong nodes, per cent", xlim=(0, None))
ax.legend(ax.collections[:2], ["logistic regression", "field"])
plt.show()
