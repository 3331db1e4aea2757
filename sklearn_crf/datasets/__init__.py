"""Models and data: readers and writers of files that users have."""

from sklearn_crf.datasets._libdai import read_fg, write_fg
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
