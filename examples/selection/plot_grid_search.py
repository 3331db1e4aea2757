"""
Choosing a field by cross-validation
====================================

A field is a scikit-learn classifier whose samples are images. In this example, a field
is the last step of a pipeline. A grid search selects the strength of the penalty and
the learning method together.
"""

# %%
# Data
# ----
#
# The data are binary images of handwritten digits of 8 x 8 pixels, with noise. There
# are few training images, so the penalty matters.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_crf import DRFClassifier
from sklearn_crf.display import FieldDisplay
from sklearn_crf.preprocessing import NodeTransformer

rng = np.random.default_rng(0)
y = (load_digits().images > 7).astype(int)[rng.permutation(1797)]
X = (y + rng.normal(scale=0.5, size=y.shape))[..., np.newaxis]
X_train, y_train, X_test, y_test = X[:24], y[:24], X[24:324], y[24:324]

# %%
# The search
# ----------
#
# ``NodeTransformer`` applies a transformer to the features of all nodes. The grid has
# three parameters of a field: the inverse strength ``C`` of the penalty, the learning
# method, and the inference that predicts.
pipeline = Pipeline(
    [
        ("scale", NodeTransformer(StandardScaler())),
        ("field", DRFClassifier(random_state=0)),
    ]
)
penalties = np.logspace(-3, 1, 5)
grid = [
    {
        "field__learning": ["pma", "pl"],
        "field__inference": ["mpm"],
        "field__C": penalties,
    },
    {"field__learning": ["spa"], "field__inference": ["map"]},
]
search = GridSearchCV(pipeline, grid, cv=3, n_jobs=2).fit(X_train, y_train)
for name, value in search.best_params_.items():
    print(f"best {name}: {value}")
print(f"right on new images: {100 * search.score(X_test, y_test):.2f} %")

# %%
# Learning by the best labeling (SPA) has no penalty, so its error is a horizontal line.
results = search.cv_results_
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ways = np.asarray(results["param_field__learning"])
for way, colour in (("pma", "#1d3557"), ("pl", "#2a9d8f")):
    chosen = ways == way
    errors = 100 * (1 - results["mean_test_score"][chosen])
    ax.semilogx(penalties, errors, "o-", color=colour, label=f"{way.upper()}, MPM")
spa = 100 * (1 - results["mean_test_score"][ways == "spa"][0])
ax.axhline(spa, color="#d1362f", linestyle="--", label="SPA, MAP")
ax.set_xlabel("C (inverse strength of the penalty)")
ax.set_ylabel("wrong pixels in validation, %")
ax.legend()
plt.show()

# %%
# Predictions of the best field
# -----------------------------
#
# Displays accept the fitted search; its pipeline prepares the features.
figure, axes = plt.subplots(3, 5, figsize=(10, 6), layout="constrained")
for row, i in zip(axes, (0, 7, 12), strict=True):
    FieldDisplay.from_estimator(
        search, X_test[i], y_test[i], image=-X_test[i], axes=row
    )
plt.show()
