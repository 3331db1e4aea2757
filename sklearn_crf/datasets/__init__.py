"""Generators of synthetic tasks; readers and writers of model files and of sentences in columns."""

from sklearn_crf.datasets._conll import read_conll, write_conll
from sklearn_crf.datasets._digits import make_noisy_digits
from sklearn_crf.datasets._libdai import read_fg, write_fg
from sklearn_crf.datasets._shapes import make_binary_shapes, make_noisy_shapes
from sklearn_crf.datasets._uai import (
    read_evidence,
    read_labeling,
    read_marginals,
    read_uai,
    write_evidence,
    write_labeling,
    write_marginals,
    write_uai,
)

__all__ = [
    "make_binary_shapes",
    "make_noisy_digits",
    "make_noisy_shapes",
    "read_conll",
    "read_evidence",
    "read_fg",
    "read_labeling",
    "read_marginals",
    "read_uai",
    "write_conll",
    "write_evidence",
    "write_fg",
    "write_labeling",
    "write_marginals",
    "write_uai",
]
