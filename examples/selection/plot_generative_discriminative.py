"""
From a generative to a discriminative classifier
================================================

This example trains one family of densities by three criteria. The joint likelihood
places components where samples are dense. The conditional likelihood places components
near the class boundaries. The multi-conditional likelihood interpolates between the two
criteria; ``alpha`` sets the balance. There are fewer components than clusters, so the
densities cannot fit all samples, and the criteria lead to different fits.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import MultiConditionalMFA

rng = np.random.default_rng(3)

# %%
# Class 0 has two long clusters that are far apart. Class 1 has four small clusters
# between and around the long clusters.


def draw(n):
    y = rng.integers(0, 2, n)
    side, place = rng.integers(0, 2, n), rng.integers(0, 4, n)
    long = np.column_stack(
        [2.2 * rng.normal(size=n), 0.35 * rng.normal(size=n) + 1.5 * (2 * side - 1)]
    )
    angle = np.pi * (place / 2)
    small = np.column_stack(
        [3.2 * np.cos(angle), 3.2 * np.sin(angle)]
    ) + 0.55 * rng.normal(size=(n, 2))
    return np.where(y[:, None] == 0, long, small), y


X, y = draw(150)
X_test, y_test = draw(20000)

# %%
# Each class has two components, with equal initial values for all criteria. The
# training samples are separable, so the conditional likelihood has no maximum. Training
# by the conditional likelihood ends at ``max_iter``, with components that do not fit
# the density of the samples.

warnings.simplefilter("ignore", ConvergenceWarning)

settings = {
    "joint likelihood": {"objective": "joint"},
    "alpha = 0.1": {"alpha": 0.1},
    "conditional likelihood": {"alpha": 0.0},
}
colours = np.array(["tab:blue", "tab:orange"])
grid = np.stack(np.meshgrid(np.linspace(-6, 6, 200), np.linspace(-6, 6, 200)), axis=-1)
figure, axes = plt.subplots(1, 3, figsize=(11, 4.2), layout="constrained")
for ax, (name, options) in zip(axes, settings.items(), strict=True):
    model = MultiConditionalMFA(2, 1, noise="tied", random_state=0, **options).fit(X, y)
    probability = model.predict_proba(grid.reshape(-1, 2))[:, 1].reshape(200, 200)
    ax.contourf(
        grid[..., 0],
        grid[..., 1],
        probability,
        levels=np.linspace(0, 1, 11),
        cmap="PuOr_r",
        alpha=0.45,
    )
    ax.contour(grid[..., 0], grid[..., 1], probability, levels=[0.5], colors="black")
    ax.scatter(*X.T, c=colours[y], s=8)
    for c in range(2):
        for mean, loadings in zip(model.means_[c], model.loadings_[c], strict=True):
            values, vectors = np.linalg.eigh(
                loadings @ loadings.T + np.diag(model.noise_variance_)
            )
            tilt = np.degrees(np.arctan2(*vectors[::-1, 1]))
            width, height = 4 * np.sqrt(values[::-1])
            ax.add_patch(
                Ellipse(
                    mean, width, height, angle=tilt, fill=False, lw=2, ec=colours[c]
                )
            )
    ax.set(xlim=(-6, 6), ylim=(-6, 6), aspect="equal", xticks=[], yticks=[])
    log_density = model.score_samples(X_test).mean()
    accuracy = model.score(X_test, y_test)
    print(f"{name}: accuracy {accuracy:.2f}, mean log p(x) {log_density:.1f}")
    ax.set_title(f"{name}\naccuracy {accuracy:.3f}, mean log p(x) {log_density:.2f}")
plt.show()
