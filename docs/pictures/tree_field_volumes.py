"""A slice of a volume: clean, noisy, smoothed by a Gaussian filter, and restored by a field."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import RegressionTreeField


def spheres(rng, side=20):
    """Draw a volume of balls with random grey values."""
    place = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), axis=-1)
    volume = np.zeros((side, side, side))
    for _ in range(8):
        distance = np.linalg.norm(place - rng.uniform(0, side, 3), axis=-1)
        volume[distance < rng.uniform(3, 6)] = rng.uniform(0.2, 1)
    return volume


rng = np.random.default_rng(0)
clean = [spheres(rng) for _ in range(6)]
noisy = [volume + 0.3 * rng.normal(size=volume.shape) for volume in clean]
field = RegressionTreeField(random_state=0).fit([v[..., None] for v in noisy[:5]], clean[:5])
restored = field.predict([noisy[5][..., None]])[0]
smoothed = min(
    (gaussian_filter(noisy[5], sigma) for sigma in (0.5, 0.7, 0.9, 1.1)),
    key=lambda volume: np.mean((volume - clean[5]) ** 2),
)
figure, axes = plt.subplots(1, 4, figsize=(9, 2.6), layout="constrained")
parts = {"clean": clean[5], "noisy": noisy[5], "Gaussian filter": smoothed, "tree field": restored}
for ax, (title, volume) in zip(axes, parts.items(), strict=True):
    error = np.mean((volume - clean[5]) ** 2)
    title = title if title == "clean" else f"{title}, {-10 * np.log10(error):.1f} dB"
    ax.imshow(volume[10], cmap="gray", vmin=-0.2, vmax=1.2)
    ax.set(title=title, xticks=[], yticks=[])
