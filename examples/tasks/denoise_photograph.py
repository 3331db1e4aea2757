"""Learn to remove noise from photographs, from pairs of noisy and clean images."""

import numpy as np
from sklearn.datasets import load_sample_image

from sklearn_crf import RegressionTreeField

rng = np.random.default_rng(0)
photo = load_sample_image("china.jpg").mean(axis=-1)[::2, ::2] / 255.0
clean = photo[:192, :288].reshape(4, 48, 6, 48).swapaxes(1, 2).reshape(-1, 48, 48, 1)
noisy = clean + rng.normal(scale=0.1, size=clean.shape)

field = RegressionTreeField(max_depth=3, random_state=0).fit(noisy[:18], clean[:18])
restored = field.predict(noisy[18:])


def psnr(images):
    return -10 * np.log10(np.mean((images - clean[18:]) ** 2))


print(f"noisy {psnr(noisy[18:]):.1f} dB, restored {psnr(restored):.1f} dB")
