"""Tag words from dictionaries of features, and show the learned weights."""

from sklearn_crf import TRWCRF
from sklearn_crf.inspection import top_features, top_transitions
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.preprocessing import SequenceVectorizer

sentences = ["Anna met Paul in Rome", "Paul likes Oslo", "In May Anna left Oslo"]
tags = [
    ["B-PER", "O", "B-PER", "O", "B-LOC"],
    ["B-PER", "O", "B-LOC"],
    ["O", "O", "B-PER", "O", "B-LOC"],
]


def features(words):
    return [{"word": w.lower(), "title": w.istitle(), "end": w[-2:]} for w in words]


X = [features(sentence.split()) for sentence in sentences]
tagger = make_pipeline(SequenceVectorizer(), TRWCRF(pairwise="full")).fit(X, tags)
print(tagger.predict([features(["Paul", "left", "Rome"])])[0])
print(*top_features(tagger, 3), *top_transitions(tagger, 3), sep="\n")
