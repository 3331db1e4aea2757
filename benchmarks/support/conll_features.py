"""Sentences of CoNLL-2000, and the features of CRFsuite's chunking example."""

import gzip
import os
from pathlib import Path

TEMPLATES = (
    *[(("w", i),) for i in (-2, -1, 0, 1, 2)],
    (("w", -1), ("w", 0)),
    (("w", 0), ("w", 1)),
    *[(("pos", i),) for i in (-2, -1, 0, 1, 2)],
    *[(("pos", i), ("pos", i + 1)) for i in (-2, -1, 0, 1)],
    *[(("pos", i), ("pos", i + 1), ("pos", i + 2)) for i in (-2, -1, 0)],
)
NAMES = ["|".join(f"{field}[{offset}]" for field, offset in template) for template in TEMPLATES]
FIELD = {"w": 0, "pos": 1}


def sentences(name):
    path = Path(os.environ["SKLEARN_CRF_DATA"]) / "conll2000" / f"{name}.txt.gz"
    with gzip.open(path, "rt") as file:
        for block in file.read().strip().split("\n\n"):
            yield [line.split() for line in block.split("\n")]


def token_features(sentence):
    """Return the names of the features of each token, as in CRFsuite's example."""
    tokens = []
    for t in range(len(sentence)):
        names = []
        for template, name in zip(TEMPLATES, NAMES, strict=True):
            if all(0 <= t + offset < len(sentence) for _, offset in template):
                values = "|".join(sentence[t + offset][FIELD[field]] for field, offset in template)
                names.append(f"{name}={values}")
        tokens.append(names)
    tokens[0].append("__BOS__")
    tokens[-1].append("__EOS__")
    return tokens
