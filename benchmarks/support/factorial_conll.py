"""CoNLL-2000 as a factorial field: two chains of parts of speech and of chunk tags, connected at each word."""

import gzip
import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from sklearn_crf import Example
from sklearn_crf.preprocessing import SequenceVectorizer

# Types of nodes and of edges.
SPEECH, CHUNK, BETWEEN = 0, 1, 2
WINDOW = range(-2, 3)


def sentences(name):
    path = Path(os.environ["SKLEARN_CRF_DATA"]) / "conll2000" / f"{name}.txt.gz"
    with gzip.open(path, "rt") as file:
        return [[line.split() for line in block.split("\n")] for block in file.read().strip().split("\n\n")]


def token_features(words):
    """Return feature names of each word: the words of a window, and the shape, prefixes and suffixes of the word."""
    features = []
    for t, word in enumerate(words):
        names = [f"w[{k}]={words[t + k].lower() if 0 <= t + k < len(words) else '^'}" for k in WINDOW]
        names += [f"{side}{n}={part}" for n in (1, 2, 3) for side, part in (("-", word[-n:]), ("+", word[:n]))]
        names += [f"w[{k}]|w[{k + 1}]={a.lower()}|{b.lower()}" for k, a, b in _pairs(words, t)]
        names.append("first upper" if word[0].isupper() else "not upper")
        if any(letter.isdigit() for letter in word):
            names.append("digit")
        if "-" in word:
            names.append("hyphen")
        features.append(names)
    return features


def _pairs(words, t):
    return [(k, words[t + k], words[t + k + 1]) for k in (-1, 0) if t + k >= 0 and t + k + 1 < len(words)]


class FactorialTask:
    """Training and test examples, with the label spaces of the training part.

    Parameters
    ----------
    n_train, n_test : int or None
        Number of first sentences to use; None stands for all sentences.
    words_on_edges : bool
        Whether edges have the features of words in addition to a constant. Along chains, they are the features of the
        later word.
    """

    def __init__(self, n_train=None, n_test=None, words_on_edges=False):
        self.words_on_edges = words_on_edges
        train, test = sentences("train")[:n_train], sentences("test")[:n_test]
        self.spaces = [np.unique([token[1 + k] for sentence in train for token in sentence]) for k in (SPEECH, CHUNK)]
        self.vectorizer = SequenceVectorizer()
        rows = self.vectorizer.fit_transform([token_features([token[0] for token in s]) for s in train])
        self.X, self.y = self._examples(train, rows)
        rows = self.vectorizer.transform([token_features([token[0] for token in s]) for s in test])
        self.X_test, self.y_test = self._examples(test, rows)
        self.classes = np.arange(max(map(len, self.spaces)))

    def _examples(self, sentences, rows):
        X, y = [], []
        for sentence, features in zip(sentences, rows, strict=True):
            n = len(sentence)
            nodes = np.arange(n)
            chain = np.stack([nodes[:-1], nodes[1:]], axis=1)
            edges = np.concatenate([chain, chain + n, np.stack([nodes, nodes + n], axis=1)])
            X.append(
                Example(
                    sp.vstack([features, features], format="csr"),
                    edges,
                    self._edge_features(features),
                    node_type=np.repeat([SPEECH, CHUNK], n),
                    edge_type=np.repeat([SPEECH, CHUNK, BETWEEN], [n - 1, n - 1, n]),
                    n_states=np.repeat([len(space) for space in self.spaces], n),
                )
            )
            y.append(np.concatenate([_numbers(self.spaces[k], [token[1 + k] for token in sentence]) for k in (0, 1)]))
        return X, y

    def _edge_features(self, features):
        if not self.words_on_edges:
            return None
        rows = sp.vstack([features[1:], features[1:], features])
        return sp.hstack([np.ones((rows.shape[0], 1)), rows], format="csr")


def _numbers(space, labels):
    """Return the indices of labels in a sorted list of labels, or -1 for labels that are not in it."""
    labels = np.array(labels)
    places = np.minimum(np.searchsorted(space, labels), len(space) - 1)
    return np.where(space[places] == labels, places, -1)
