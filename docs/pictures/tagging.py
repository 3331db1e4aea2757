"""Learned weights of pairs of neighbouring tags."""

import numpy as np
from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF
from sklearn_crf.display import PairwiseTablesDisplay
from sklearn_crf.potentials import PairwiseTables
from sklearn_crf.preprocessing import SequenceVectorizer

rng = np.random.default_rng(0)
patterns = ["PER met PER in LOC", "yesterday PER left LOC", "the road to LOC is long", "PER and PER like LOC"]
names = {"PER": ["Anna Berg", "Paul", "Mary Ann Lee"], "LOC": ["Oslo", "New York", "San Marino"]}
X, y = [], []
for _ in range(60):
    words, tags = [], []
    for word in rng.choice(patterns).split():
        found = rng.choice(names[word]).split() if word in names else [word]
        words += found
        tags += [f"B-{word}"] + [f"I-{word}"] * (len(found) - 1) if word in names else ["O"]
    X.append([{"word": word} for word in words])
    y.append(tags)
tagger = make_pipeline(SequenceVectorizer(), TRWCRF(pairwise=PairwiseTables("full", forbidden="IOB2"))).fit(X, y)
PairwiseTablesDisplay.from_estimator(tagger)
