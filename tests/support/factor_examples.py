"""Small random examples with factors of several types."""

import numpy as np
import scipy.sparse as sp

from sklearn_crf import Example
from sklearn_crf.models import CountTable


def factor_examples(n=6, *, sparse=False, fixed=False, n_classes=3, longest=5, seed=0):
    """Return chains with factors of three nodes, a factor with features over both ends, and optional fixed factors.

    Returns
    -------
    X : list of Example
    y : list of ndarray
    """
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        length = int(rng.integers(3, longest + 1))
        labels = rng.integers(n_classes, size=length)
        features = np.eye(n_classes)[labels] + rng.normal(size=(length, n_classes))
        factors = {
            "triple": [[t, t + 1, t + 2] for t in range(length - 2)],
            "ends": ([[length - 1, 0]], rng.normal(size=(1, 2))),
        }
        X.append(
            Example(
                sp.csr_matrix(features) if sparse else features,
                [[t, t + 1] for t in range(length - 1)],
                factors=factors,
                fixed_factors=[(range(length), CountTable([0.3, -0.2], 0.5, 1))] if fixed else None,
            )
        )
        y.append(labels)
    return X, y
