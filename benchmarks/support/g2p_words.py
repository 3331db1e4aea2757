"""NETtalk as a field: two chains of the phonemes and of the stress marks of a word, with factors over both."""

import gzip
import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from sklearn_crf import Example
from sklearn_crf.models import exactly_one
from sklearn_crf.preprocessing import SequenceVectorizer

SILENCE, PRIMARY = "-", "1"

# Types of nodes and of edges.
PHONEME, STRESS = 0, 1

# Starts and ends, relative to the letter of a node, of the letter n-grams that are features of the node
_WINDOWS = [(k, k + n) for n in (1, 2, 3, 4) for k in range(-4, 6 - n)]


def read_words():
    """Return all entries (word, phonemes, stress), in the order of the file."""
    path = Path(os.environ["SKLEARN_CRF_DATA"]) / "g2p" / "nettalk.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t")[:3]) for line in file]


def split_words(rows, n_train, n_test, seed=0):
    """Return entries for training and for testing, without common words."""
    words = np.unique([row[0] for row in rows])
    words = np.random.default_rng(seed).permutation(words)[: n_train + n_test].tolist()
    place = {word: i for i, word in enumerate(words)}
    parts = [], []
    for row in rows:
        if row[0] in place:
            parts[place[row[0]] >= n_train].append(row)
    return parts


def letter_features(word):
    """Return feature names of each letter: all letter n-grams up to length four within four letters of it."""
    padded = f"####{word}####"
    return [[f"{a}{b}{padded[t + 4 + a : t + 4 + b]}" for a, b in _WINDOWS] for t in range(len(word))]


class PronunciationTask:
    """Training and test examples, with the error rates of predictions.

    A word has chains of phonemes and of stress marks, factors over a phoneme, its stress mark and the next stress mark,
    and factors over three to ``order`` consecutive phonemes. With ``letters_on_edges``, edges of both chains have the
    features of their later letter in addition to a constant. Without ``letters_on_nodes``, nodes only have a constant.
    """

    def __init__(self, n_train, n_test, order=6, letters_on_edges=False, letters_on_nodes=True):
        rows = read_words()
        # Label spaces of the whole corpus
        self.phonemes = np.unique([symbol for row in rows for symbol in row[1]])
        self.stresses = np.unique([symbol for row in rows for symbol in row[2]])
        self.classes = np.arange(max(len(self.phonemes), len(self.stresses)))
        self.order, self.letters_on_edges, self.letters_on_nodes = order, letters_on_edges, letters_on_nodes
        self.train, self.test = split_words(rows, n_train, n_test)
        vectorizer = SequenceVectorizer()
        vectorizer.fit([letter_features(row[0]) for row in self.train])
        self.X, self.y = self._examples(self.train, vectorizer)
        self.X_test, self.y_test = self._examples(self.test, vectorizer)

    def _examples(self, rows, vectorizer):
        features = vectorizer.transform([letter_features(row[0]) for row in rows])
        X = [self._example(letters) for letters in features]
        y = [
            np.concatenate(
                (np.searchsorted(self.phonemes, list(phonemes)), np.searchsorted(self.stresses, list(marks)))
            )
            for _, phonemes, marks in rows
        ]
        return X, y

    def _example(self, letters):
        n = letters.shape[0]
        place = np.arange(n)
        chain = np.stack((place[:-1], place[1:]), axis=1)
        factors = {"phoneme and stress": np.column_stack((place[:-1], n + place[:-1], n + place[1:]))}
        for order in range(3, self.order + 1):
            starts = np.arange(max(n - order + 1, 0))
            factors[f"{order} phonemes"] = starts[:, None] + np.arange(order)
        seen = letters if self.letters_on_nodes else sp.csr_matrix(np.ones((n, 1)))
        return Example(
            sp.vstack((seen, seen), format="csr"),
            np.concatenate((chain, n + chain)),
            self._edge_features(letters),
            node_type=np.repeat([PHONEME, STRESS], n),
            edge_type=np.repeat([PHONEME, STRESS], n - 1),
            n_states=np.repeat([len(self.phonemes), len(self.stresses)], n),
            factors=factors,
        )

    def _edge_features(self, letters):
        if not self.letters_on_edges:
            return None
        rows = sp.vstack((letters[1:], letters[1:]), format="csr")
        return sp.hstack((np.ones((rows.shape[0], 1)), rows), format="csr")

    def with_one_primary_stress(self, X):
        """Return the examples with the constraint that exactly one letter of a word has the primary stress."""
        counted = exactly_one(int(np.searchsorted(self.stresses, PRIMARY)))
        return [x.with_fixed_factors([(np.arange(x.n_nodes // 2, x.n_nodes), counted)]) for x in X]

    def errors(self, predicted):
        """Return the error rates of predictions of the test part.

        The rate of phonemes is the number of edits between sequences without silent letters, divided by the length of
        the true sequences. The rates of words are the shares of words with a wrong phoneme, and with a wrong phoneme or
        stress mark.
        """
        edits = length = wrong = wrong_with_stress = 0
        for labels, (_, phonemes, marks) in zip(predicted, self.test, strict=True):
            half = len(labels) // 2
            found = "".join(self.phonemes[labels[:half]]).replace(SILENCE, "")
            truth = phonemes.replace(SILENCE, "")
            edits += n_edits(found, truth)
            length += len(truth)
            wrong += found != truth
            wrong_with_stress += found != truth or "".join(self.stresses[labels[half:]]) != marks
        n = len(self.test)
        return {"phonemes": edits / length, "words": wrong / n, "words with stress": wrong_with_stress / n}


def n_edits(a, b):
    """Return the edit distance: the least number of symbols to insert, delete or replace."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, z in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != z))
    return row[-1]
