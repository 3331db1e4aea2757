import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import GaussianNoise

photo = load_sample_image("china.jpg").mean(axis=-1)[::2, ::2]
clean = [photo[r : r + 48, :120] for r in range(0, 192, 48)]
noise = 25 * np.random.default_rng(0).normal(size=(96, 64))
noisy = photo[60:156, 250:314] + noise
field = RegressionTreeField(corruption=GaussianNoise(25))
restored = field.fit(clean).predict([noisy])[0]
plt.imshow(np.hstack([noisy, restored]), cmap="gray")
plt.axis("off")
