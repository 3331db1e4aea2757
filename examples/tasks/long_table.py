"""Split a long table into sequences, and add predicted labels to its rows."""

import numpy as np
import pandas as pd

from sklearn_crf import TRWCRF
from sklearn_crf.preprocessing import group_rows, ungroup_rows

rng = np.random.default_rng(0)
active = np.repeat(rng.integers(2, size=60), 5)
table = pd.DataFrame({
    "patient": np.repeat(np.arange(15), 20),
    "pulse": 60 + 20 * active + rng.normal(scale=20, size=300),
    "steps": 5 * active + rng.normal(scale=5, size=300),
    "active": np.where(active, "yes", "no"),
})  # fmt: skip
table[["pulse", "steps"]] = (table[["pulse", "steps"]] - [70, 2]) / [20, 5]

X = group_rows(table[["patient", "pulse", "steps"]], "patient")
y = group_rows(table["active"], table["patient"])
field = TRWCRF().fit(X[:10], y[:10])
table["predicted"] = ungroup_rows(field.predict(X), table["patient"])
unseen = table.query("patient >= 10")
right = (unseen["predicted"] == unseen["active"]).mean()
print(f"{right:.0%} of unseen rows are right")
