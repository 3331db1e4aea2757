"""All transformers of sklearn_crf.preprocessing, fitted to small data."""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from sklearn_crf import preprocessing
from sklearn_crf.preprocessing import (
    AdaptiveFilters,
    ClassifierScores,
    FilterBank,
    LocalImageFeatures,
    NodeTransformer,
    PatchAverages,
    PatchGroups,
    PatchOverlays,
    PatchShrinkage,
    PixelFeatures,
    SequenceVectorizer,
)
from sklearn_crf.preprocessing._filter_bank import ChannelUnion

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(4, 16, 18))
MASKS = np.kron(RNG.integers(2, size=(4, 4, 6)), np.ones((1, 4, 3), dtype=int))
COLOURS = RNG.random((2, 8, 9, 3))
CHAINS, LABELS = RNG.normal(size=(6, 5, 3)), RNG.integers(3, size=(6, 5))
TOKENS = [[{"word": "a", "n": 1.5}, {"word": "b"}], [["x", "y"], {"word": "a"}, ["x"]]]


def join_words(token, following):
    return [f"{sorted(token)[0]}-{sorted(following)[0]}"]


# Each transformer with the arguments of fit. Transformers of images are listed first.
IMAGE_TRANSFORMERS = {
    "AdaptiveFilters": (AdaptiveFilters(2, radius=1), (IMAGES, MASKS.astype(float))),
    "ChannelUnion": (ChannelUnion([FilterBank("haar"), PatchShrinkage(), PatchAverages()]), (IMAGES,)),
    "FilterBank": (FilterBank(("haar", "rfs")), (IMAGES,)),
    "FilterBank of arrays": (FilterBank(RNG.normal(size=(2, 3, 4)), include_input=False), (COLOURS,)),
    "LocalImageFeatures": (LocalImageFeatures(), (IMAGES,)),
    "PatchAverages": (PatchAverages(search_radius=3), (COLOURS,)),
    "PatchGroups": (PatchGroups(search_radius=4), (IMAGES,)),
    "PatchOverlays": (PatchOverlays([4, 6], n_patches=4, random_state=0), (IMAGES, MASKS)),
    "PatchShrinkage": (PatchShrinkage((1.0, 2.0)), (IMAGES,)),
}
TRANSFORMERS = IMAGE_TRANSFORMERS | {
    "ClassifierScores": (ClassifierScores(LogisticRegression(), cv=2), (CHAINS, LABELS)),
    "NodeTransformer": (NodeTransformer(StandardScaler()), (CHAINS,)),
    "PixelFeatures": (PixelFeatures(), (COLOURS,)),
    "SequenceVectorizer": (SequenceVectorizer(), (TOKENS,)),
    "SequenceVectorizer with edges": (SequenceVectorizer(edge_features=join_words), (TOKENS,)),
}


def all_are_listed():
    """Return whether every public transformer is listed."""
    public = {name for name in preprocessing.__all__ if hasattr(getattr(preprocessing, name), "transform")}
    return public <= {type(transformer).__name__ for transformer, _ in TRANSFORMERS.values()}


def arrays_of(found):
    """Return the results of a transformer as a list of dense arrays."""
    arrays = []
    for part in found:
        if hasattr(part, "node_features"):
            arrays += [part.node_features.toarray(), part.edge_features.toarray()]
        elif hasattr(part, "matmat"):
            arrays.append(part @ np.eye(part.shape[1]))
        else:
            arrays.append(part.toarray() if hasattr(part, "toarray") else np.asarray(part))
    return arrays


def are_equal(first, second):
    """Return whether two results of transformers contain equal numbers."""
    first, second = arrays_of(first), arrays_of(second)
    return len(first) == len(second) and all(map(np.array_equal, first, second))
