"""Data: generators of synthetic tasks, loaders of data sets and readers of model files that users have."""

from sklearn_crf.datasets._digits import make_noisy_digits
from sklearn_crf.datasets._files import (
    load_camvid,
    load_grabcut,
    load_ocr_letters,
    load_snakes,
    load_stanford_superpixels,
    load_weizmann_horses,
)
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
    "load_camvid",
    "load_grabcut",
    "load_ocr_letters",
    "load_snakes",
    "load_stanford_superpixels",
    "load_weizmann_horses",
    "make_binary_shapes",
    "make_noisy_digits",
    "make_noisy_shapes",
    "read_evidence",
    "read_fg",
    "read_labeling",
    "read_marginals",
    "read_uai",
    "write_evidence",
    "write_fg",
    "write_labeling",
    "write_marginals",
    "write_uai",
]
