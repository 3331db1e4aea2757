"""
Names in sentences: features as dictionaries
============================================

A tagger marks the words that name a person or a place. The features of a word are a
dictionary with any keys. :class:`~sklearn_crf.preprocessing.SequenceVectorizer`
converts lists of dictionaries to sparse chains. Labels follow the IOB2 scheme:
``B-PER`` is the first word of a person's name, ``I-PER`` is a further word of this
name, and ``O`` is a word outside of names. ``forbidden="IOB2"`` excludes label
sequences that are not valid in this scheme.
"""

# %%
# Sentences
# ---------
#
# Sentences are generated from a few patterns. Most names of the test sentences do not
# occur in training, and some sentences have no capital letters.
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
# The pipeline is trained on lists of dictionaries and lists of tags. The report counts
# an entity as correct only if all of its words are correct.
field = TRWCRF(
    pairwise=PairwiseTables("full", forbidden="IOB2"), edge_features="constant"
)
tagger = make_pipeline(SequenceVectorizer(), field).fit(X["train"], y["train"])
print(sequence_classification_report(y["test"], tagger.predict(X["test"])))

# %%
# Learned weights
# ---------------
#
# The printed lines are the largest weights of pairs of a feature and a label. The
# picture shows the score of each pair of successive labels; forbidden pairs are white.
for weight in top_features(tagger, 6):
    print(f"{weight.feature:12}{weight.label:8}{weight.weight:+.2f}")
PairwiseTablesDisplay.from_estimator(tagger)
plt.show()
