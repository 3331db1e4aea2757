"""Edge weights of one pixel under bilateral kernels of two bandwidths."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

photo = load_sample_image("flower.jpg")[20:400:3, 60:560:3].astype(float)
row, column = np.indices(photo.shape[:2])
centre = (55, 70)
apart = (row - centre[0]) ** 2 + (column - centre[1]) ** 2
differ = ((photo - photo[centre]) ** 2).sum(axis=-1)
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
axes[0].imshow(photo / 255)
axes[0].plot(*centre[::-1], "wo", markeredgecolor="black")
axes[0].set_title("image")
for ax, (position, colour) in zip(axes[1:], [(8, 40), (40, 80)], strict=True):
    ax.imshow(np.exp(-apart / (2 * position**2) - differ / (2 * colour**2)))
    ax.set_title(f"bandwidths {position} and {colour}")
for ax in axes:
    ax.set(xticks=[], yticks=[])
