"""Mutations of valid files: they are read, or rejected with a ValueError that names the file."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
from factor_strategies import random_factor_graph
from fuzzing import call, seeds

from sklearn_crf.datasets import (
    read_conll,
    read_evidence,
    read_fg,
    read_labeling,
    read_marginals,
    read_uai,
    write_conll,
    write_evidence,
    write_fg,
    write_labeling,
    write_marginals,
    write_uai,
)

# The largest array that a result of these small files may have.
MOST_NUMBERS = 2**27

WORDS = [
    b"-1",
    b"0",
    b"nan",
    b"inf",
    b"1e400",
    b"-0.0",
    b"2.5",
    b"4294967297",
    b"99999999999999999999",
    b"1e9",
    b"x",
    b"#",
]
WORDS += [b"1_0", b"0x1", b"MARKOV", b"MAR", b"2147483647", b"1000000", b"\x00", b"\xff\xfe", b"1" * 500, b"\n" * 50]


def valid_uai(path, rng):
    write_uai(path, random_factor_graph(4, 4, seed=rng))


def valid_logarithms(path, rng):
    write_uai(path, random_factor_graph(4, 4, seed=rng), logarithms=True)


def valid_fg(path, rng):
    write_fg(path, random_factor_graph(4, 4, seed=rng))


def valid_evidence(path, rng):
    write_evidence(path, rng.integers(-1, 3, size=5))


def valid_samples(path, rng):
    """Write samples of evidence, one on each line."""
    lines = [str(n := int(rng.integers(3)))]
    for _ in range(n):
        nodes = rng.permutation(5)[: rng.integers(4)]
        lines.append(
            " ".join(map(str, [len(nodes), *np.ravel([(node, rng.integers(3)) for node in nodes]).astype(int)]))
        )
    path.write_text("\n".join(lines))


def valid_marginals(path, rng):
    write_marginals(path, rng.dirichlet(np.ones(3), size=5))


def valid_labeling(path, rng):
    write_labeling(path, rng.integers(3, size=5))


def valid_columns(path, rng):
    tokens = [[["a", "#", "\u00e9"][k] for k in rng.integers(3, size=rng.integers(1, 4))] for _ in range(4)]
    write_conll(path, [tokens, tokens], documents=np.sort(rng.integers(3, size=4)))


def check_columns(found):
    lengths = [[len(sentence) for sentence in column] for column in found.columns]
    assert all(own == lengths[0] and min(own) > 0 for own in lengths)
    assert len(found.documents) == len(found.comments) == len(lengths[0] if lengths else ())


def check_model(model):
    assert not np.isnan(model.log_table).any()
    assert not np.isposinf(model.log_table).any()
    assert model.n_states.min(initial=1) >= 1


def check_labels(labels):
    assert labels.dtype == np.int32
    assert labels.min(initial=0) >= -1


def check_marginals(unary):
    assert unary.size <= MOST_NUMBERS
    assert np.all((unary >= 0) & (unary < 1.1))


FORMATS = {
    "uai": (valid_uai, read_uai, check_model),
    "logarithms": (valid_logarithms, lambda path: read_uai(path, logarithms=True), check_model),
    "fg": (valid_fg, read_fg, check_model),
    "evidence": (valid_evidence, lambda path: read_evidence(path, 5), check_labels),
    "samples": (valid_samples, lambda path: read_evidence(path, 5, sample=0), check_labels),
    "marginals": (valid_marginals, read_marginals, check_marginals),
    "columns": (valid_columns, lambda path: read_conll(path, comment="#"), check_columns),
    "labeling": (valid_labeling, read_labeling, check_labels),
}


COMPRESSED = [(".gz", gzip), (".bz2", bz2), (".xz", lzma)]


def mutated(content, rng):
    """Return a file with some bytes or words replaced, dropped, repeated or swapped, or with its end cut off."""
    for _ in range(rng.integers(1, 4)):
        kind = rng.integers(6)
        words = content.split(b" ")
        place = int(rng.integers(len(words)))
        if kind == 0:
            words[place] = WORDS[rng.integers(len(WORDS))]
        elif kind == 1:
            words.insert(place, WORDS[rng.integers(len(WORDS))])
        elif kind == 2:
            del words[place]
        elif kind == 3:
            words[place:place] = words[place : place + int(rng.integers(1, 5))]
        content = b" ".join(words)
        if kind == 4:
            content = content[: rng.integers(len(content) + 1)]
        elif kind == 5 and content:
            at = int(rng.integers(len(content)))
            content = content[:at] + bytes([rng.integers(256)]) + content[at + 1 :]
    return content


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files(tmp_path, name):
    write, read, check = FORMATS[name]
    for seed in seeds(f"files: {name}"):
        rng = np.random.default_rng(seed)
        path = tmp_path / "plain"
        write(path, rng)
        compressed = rng.random() < 0.3
        content = path.read_bytes()
        if compressed:
            suffix, module = COMPRESSED[rng.integers(len(COMPRESSED))]
            path = tmp_path / f"file{suffix}"
            content = module.compress(mutated(content, rng) if rng.random() < 0.7 else content)
        if not compressed or rng.random() < 0.5:
            content = mutated(content, rng)
        path.write_bytes(content)
        found = call(read, path, clear=ValueError)
        if isinstance(found, ValueError):
            assert str(path) in str(found)
        else:
            check(found)
