"""Compiled loops, all at one level of vector units: results are the same bits wherever that level is used."""

from sklearn_crf.kernels.vector_level import fix_vector_level

VECTOR_LEVEL = fix_vector_level()
