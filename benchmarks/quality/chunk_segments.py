"""Compare chunkers with segments, with and without features of whole chunks, with plain chains on CoNLL-2000.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/chunk_segments.py --record chunks.json

The plain chain has IOB2 labels. Segments need one label for each chunk: the type of the chunk, with "+" appended if the
chunk directly follows another chunk of its type, so that every chunk is a run of one label. All chunkers have the node
features of CRFsuite's example and C=1. Features of chunks are patterns of parts of speech: all tags of the chunk, the
first and last tag with the length, and the tags around the chunk with its first and last tag, hashed into ``--bins``.
"ends" adds weights of the node features of the first and of the last token of a chunk.
Printed are the F1 of chunks of the first ``--test`` test sentences, the processor time and the iterations of the fit.
An interrupted run resumes from its record.
"""

import argparse
import time
from functools import partial
from itertools import groupby, islice
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction import DictVectorizer
from support.conll_features import sentences, token_features
from support.record import recorded

from sklearn_crf import TRWCRF
from sklearn_crf.metrics import entities, entity_f1_score
from sklearn_crf.potentials import PairwiseTables, Segments

NAMES = "plain chain", "plain chain, labels of runs", "durations", "patterns", "ends", "ends and patterns"
LONGEST = 10  # runs of at least this number of tokens share one score and have no patterns


class ChunkPatterns:
    """Hashed patterns of the parts of speech of runs of tokens, for ``features`` of segments."""

    def __init__(self, names, n_bins):
        self.columns = np.array([i for i, name in enumerate(names) if name.startswith("pos[0]=")])
        self.n_bins = n_bins

    def __call__(self, x, first, last):
        # Tag 0 stands for the outside of the sentence.
        tags = np.asarray(x[:, self.columns].argmax(axis=1)).ravel() + 1
        around = np.concatenate(([0], tags, [0])).astype(np.int64)
        length = last - first + 1
        whole = length.copy()
        for k in range(length.max(initial=0)):
            whole = np.where(k < length, whole * 1_000_003 + around[np.minimum(first + k, last) + 1], whole)
        before, begin, end, after = around[first], around[first + 1], around[last + 1], around[last + 2]
        patterns = [whole, (begin * 64 + end) * 64 + length, before * 64 + begin, end * 64 + after]
        patterns += [(before * 64 + begin) * 4096 + end * 64 + after]
        bins = [(p * 2_654_435_761 + 97 * k) % 2**31 % self.n_bins for k, p in enumerate(patterns)]
        columns = np.stack([own + k * self.n_bins for k, own in enumerate(bins)], axis=1).ravel()
        indptr = np.arange(0, len(columns) + 1, len(patterns))
        return sp.csr_matrix((np.ones(len(columns)), columns, indptr), (len(first), len(patterns) * self.n_bins))


def read(name, n_sentences):
    """Return the features of tokens by name, and the IOB2 labels."""
    found = list(islice(sentences(name), n_sentences))
    return [[dict.fromkeys(own, 1) for own in token_features(s)] for s in found], [[t[2] for t in s] for s in found]


def labels_of_runs(tags):
    """Return one label for each token, so that every chunk is a run of one label."""
    labels, end, former = np.full(len(tags), "O", dtype=object), -1, ""
    for kind, first, stop in entities(tags):
        former = kind + "+" if first == end and former == kind else kind
        labels[first:stop], end = former, stop
    return labels


def tags_of_runs(labels):
    """Return IOB2 labels, the inverse of :func:`labels_of_runs`."""
    tags = []
    for label, run in groupby(labels):
        kind, n = label.rstrip("+"), len(list(run))
        tags += ["O"] * n if kind == "O" else [f"B-{kind}"] + [f"I-{kind}"] * (n - 1)
    return tags


def compared(name, n_train, n_test, n_bins):
    """Return F1 of chunks, processor seconds and iterations of one chunker."""
    (train, y), (test, truth) = read("train", n_train), read("test", n_test)
    vectorizer = DictVectorizer().fit([token for sentence in train for token in sentence])
    X, X_test = ([vectorizer.transform(sentence) for sentence in part] for part in (train, test))
    patterns = ChunkPatterns(vectorizer.get_feature_names_out(), n_bins)
    features = {"durations": None, "ends": "ends", "patterns": patterns, "ends and patterns": ["ends", patterns]}
    segments = {
        kind: PairwiseTables("full", segments=Segments(LONGEST, features=own)) for kind, own in features.items()
    }
    has_runs = name != "plain chain"
    field = TRWCRF(pairwise=segments.get(name, "full"), weights="seen")
    start = time.process_time()
    field.fit(X, [labels_of_runs(tags) if has_runs else np.array(tags, dtype=object) for tags in y])
    seconds = time.process_time() - start
    found = [tags_of_runs(own) if has_runs else list(own) for own in field.predict(X_test)]
    return {
        "F1, %": 100 * entity_f1_score(truth, found),
        "seconds": seconds,
        "iterations": int(field.n_iter_),
        "labels": len(field.classes_),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=1000, help="number of training sentences")
    parser.add_argument("--test", type=int, default=1000, help="number of test sentences")
    parser.add_argument("--bins", type=int, default=4096, help="number of hashed patterns of each kind")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    for name in NAMES:
        key = f"{name}, {arguments.train} sentences"
        run = partial(compared, name, arguments.train, arguments.test, arguments.bins)
        print(key, recorded(arguments.record, key, run), flush=True)


if __name__ == "__main__":
    main()
