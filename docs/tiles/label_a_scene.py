import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from sklearn_crf import DRFClassifier

photo = load_sample_image("flower.jpg")[::5, ::5]
strokes = np.full(photo.shape[:2], -1)  # -1: not labelled
strokes[36:48, 58:68] = 1
strokes[4:16, 4:48] = strokes[70:80, 4:48] = 0
field = DRFClassifier(missing_label=-1)
field.fit(photo[np.newaxis], strokes[np.newaxis])
mask = field.predict(photo[np.newaxis], inference="map")[0]
plt.imshow(np.where(mask[..., np.newaxis], photo, 230))
plt.axis("off")
