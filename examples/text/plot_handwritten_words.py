"""
Handwritten words: letters read together
========================================

Handwritten digits are hard to classify one by one. In a word, only some pairs of digits
follow each other, which makes classification easier. A chain learns these pairs from
words. With edge features, the pairs may also depend on the position in the word.
"""

# %%
# Words of digits
# ---------------
#
# The words are twelve codes of six digits. Each digit is an image from the digits data
# set of scikit-learn, with noise. Test words have the same codes as training words,
# with other images.
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits

from sklearn_crf import TRWCRF, Example

rng = np.random.default_rng(0)
digits = load_digits()


codes = rng.integers(10, size=(12, 6))


def written(words, part):
    chosen = [
        [rng.choice(np.flatnonzero(digits.target[part] == c)) for c in word]
        for word in words
    ]
    images = digits.data[part][np.array(chosen)] / 16
    return np.clip(images + 0.35 * rng.normal(size=images.shape), 0, 1)


y, y_test = codes[rng.integers(12, size=150)], codes[rng.integers(12, size=300)]
X, X_test = written(y, slice(None, 900)), written(y_test, slice(900, None))

# %%
# Digits alone, chains, and chains with positions
# -----------------------------------------------
#
# On rows of pixels, the model is logistic regression. An array of words is read as
# chains, with a weight for each pair of digits. In the third field, a sparse feature of
# each edge encodes its position among the five edges of a word. By default, each
# position has weights only for pairs of digits that occur at this position in training.
chain = [[t, t + 1] for t in range(5)]


def counted(words):
    return [Example(word, chain, sp.identity(5, format="csr")) for word in words]


alone = TRWCRF(C=1).fit(X.reshape(-1, 64), y.ravel())
tied = TRWCRF(C=1).fit(X, y)
places = TRWCRF(C=1).fit(counted(X), list(y))
found = {
    "alone": alone.predict(X_test.reshape(-1, 64)).reshape(y_test.shape),
    "chain": tied.predict(X_test),
    "chain, by place": np.stack(places.predict(counted(X_test))),
}
print(f"{'':17s}{'digits':>8s}{'words':>8s}   wrong, %")
for name, labels in found.items():
    wrong = labels != y_test
    print(f"{name:17s}{100 * wrong.mean():8.1f}{100 * wrong.any(axis=1).mean():8.1f}")
print(
    "weights of edges by place:",
    places.edge_coef_.nnz,
    "of",
    places.edge_coef_.shape[0] * places.edge_coef_.shape[1],
)

# %%
# The picture shows words that the field without edges misreads, with all predictions.
wrong = np.flatnonzero((found["alone"] != y_test).any(axis=1))[:4]
figure, axes = plt.subplots(len(wrong), 1, figsize=(5.6, 5.4), layout="constrained")
for ax, i in zip(axes, wrong, strict=True):
    ax.imshow(np.concatenate(list(X_test[i].reshape(-1, 8, 8)), axis=1), cmap="gray_r")
    ax.set_axis_off()
    read = "    ".join(
        f"{name}: {''.join(map(str, labels[i]))}" for name, labels in found.items()
    )
    ax.set_title(
        f"truth: {''.join(map(str, y_test[i]))}    {read}",
        fontsize=8,
        family="monospace",
    )
plt.show()
