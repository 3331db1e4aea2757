import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_sample_image

from sklearn_crf import refine

photo = load_sample_image("flower.jpg")[::3, ::3]
red = photo[..., 0].astype(float) - photo[..., 1] > 60
coarse = gaussian_filter(red.astype(float), 5)
proba = np.stack([1 - coarse, coarse], axis=-1)
refined = refine(np.clip(proba, 0.02, 0.98), photo)
plt.imshow(np.hstack([coarse, refined[..., 1]]))
plt.axis("off")
