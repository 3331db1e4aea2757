"""Save a fitted field to a file, and load it without executing code from the file."""

import tempfile
from pathlib import Path

import numpy as np
import skops.io

from sklearn_crf import TRWCRF

rng = np.random.default_rng(0)
y = np.repeat(rng.integers(3, size=(20, 4)), 3, axis=1)
X = np.eye(3)[y] + rng.normal(size=(20, 12, 3))
field = TRWCRF().fit(X, y)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "field.skops"
    skops.io.dump(field, path)
    # inspect the types in a file before trusting them
    types = skops.io.get_untrusted_types(file=path)
    again = skops.io.load(path, trusted=types)
    print(f"{path.stat().st_size / 1024:.0f} kB, trusted: {types}")
print(np.array_equal(again.predict(X), field.predict(X)))
