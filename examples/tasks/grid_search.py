"""Search over learning methods, inference algorithms and the penalty of a field."""

import numpy as np
from sklearn.model_selection import GridSearchCV

from sklearn_crf import DRFClassifier
from sklearn_crf.model_selection import StratifiedLatticeKFold

rng = np.random.default_rng(0)
y = np.zeros((12, 12, 12), dtype=int)
y[:, 3:9, 4:10] = 1
X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1))

options = {"learning": ["pma", "pl"], "inference": ["mpm", "map"], "C": [0.1, 1.0]}
field = DRFClassifier(edge_features="constant")
search = GridSearchCV(field, options, cv=StratifiedLatticeKFold(3)).fit(X, y)
print(search.best_params_, f"{search.best_score_:.3f}")
