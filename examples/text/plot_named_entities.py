"""
Names in sentences: features as dictionaries
============================================

A tagger marks the words that name a person or a place. Features of a word are a
dictionary of whatever one can think of;
:class:`~sklearn_crf.preprocessing.SequenceVectorizer` makes sparse chains of them.
Labels follow the scheme IOB2: ``B-PER`` begins a person, ``I-PER`` goes on, ``O`` is no
name, and ``forbidden="IOB2"`` keeps predictions inside it.
"""

# %%
# Sentences
# ---------
#
# They are made from a few patterns. Most names of the test sentences do not occur in
# training, and in some sentences nobody took care of capitals.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF
from sklearn_crf.display import PairwiseTablesDisplay
from sklearn_crf.inspection import top_features
from sklearn_crf.metrics import sequence_classification_report
from sklearn_crf.potentials import PairwiseTables
from sklearn_crf.preprocessing import SequenceVectorizer

rng = np.random.default_rng(0)
PATTERNS = [
    "PER met PER in LOC",
    "yesterday PER left LOC",
    "the road to LOC is long",
    "PER and PER like LOC",
]
PEOPLE = {
    "train": ["Anna Berg", "Paul", "Mary Ann Lee", "Omar"],
    "test": ["Ines Roth", "Paul", "Kofi", "Mary Lee"],
}
PLACES = {
    "train": ["Oslo", "New York", "Rome", "San Marino"],
    "test": ["Lima", "New Delhi", "Rome", "San Remo"],
}


def sentence(part):
    words, tags = [], []
    for word in rng.choice(PATTERNS).split():
        names = {"PER": PEOPLE, "LOC": PLACES}.get(word)
        found = rng.choice(names[part]).split() if names else [word]
        words += found
        tags += [f"B-{word}", *[f"I-{word}"] * (len(found) - 1)] if names else ["O"]
    return [word.lower() for word in words] if rng.random() < 0.4 else words, tags


def features(words):
    return [
        {
            "word": word.lower(),
            "capital": word.istitle(),
            "before": before.lower(),
            "after": after.lower(),
        }
        for before, word, after in zip(
            ["^", *words], words, [*words[1:], "$"], strict=False
        )
    ]


data = {
    part: [sentence(part) for _ in range(n)]
    for part, n in {"train": 60, "test": 30}.items()
}
X, y = (
    {part: [pair[k] for pair in pairs] for part, pairs in data.items()} for k in (0, 1)
)
X = {part: [features(words) for words in sentences] for part, sentences in X.items()}

# %%
# Training
# --------
#
# The pipeline takes lists of dictionaries and lists of tags. Entities count as right if
# all of their words are.
field = TRWCRF(
    pairwise=PairwiseTables("full", forbidden="IOB2"), edge_features="constant"
)
tagger = make_pipeline(SequenceVectorizer(), field).fit(X["train"], y["train"])
print(sequence_classification_report(y["test"], tagger.predict(X["test"])))

# %%
# What was learned
# ----------------
#
# Weights have the names of features and labels, and tables show which label follows
# which. What is forbidden is white.
for weight in top_features(tagger, 6):
    print(weight)
PairwiseTablesDisplay.from_estimator(tagger)
plt.show()
