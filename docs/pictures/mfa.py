"""One mixture of factor analysers per class, trained generatively and discriminatively."""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import MultiConditionalMFA

# the conditional likelihood has no maximum if the classes are separable
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
angle = rng.uniform(0, np.pi, size=300)
y = rng.integers(2, size=300)
X = np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.where(y, -1, 1)[:, np.newaxis]
X = X + np.where(y, 1, 0)[:, np.newaxis] * [1, 0.4] + rng.normal(scale=0.15, size=X.shape)
first, second = np.meshgrid(np.linspace(-1.6, 2.6, 120), np.linspace(-1.4, 1.6, 90))
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for ax, (title, options) in zip(
    axes, {"joint likelihood": {"objective": "joint"}, "alpha = 0": {"alpha": 0.0}}.items(), strict=True
):
    model = MultiConditionalMFA(n_components=2, n_factors=1, noise="tied", random_state=0, **options).fit(X, y)
    proba = model.predict_proba(np.stack([first.ravel(), second.ravel()], axis=1))[:, 1].reshape(first.shape)
    ax.contourf(first, second, proba, levels=10, cmap="coolwarm", alpha=0.5)
    ax.scatter(*X.T, c=y, cmap="coolwarm", s=8)
    ax.set_title(title)
