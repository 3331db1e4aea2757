"""Encoding: what users pass as X, y and sample_weight becomes batches of examples, and results go back."""

from sklearn_crf.encoding._batches import decode, make_batches, tie_constant_edges
from sklearn_crf.encoding._labels import EncodedLabels, encode_y
from sklearn_crf.encoding._lattices import Encoded, encode_X
from sklearn_crf.encoding._layout import object_array
from sklearn_crf.encoding._weights import validate_sample_weight

__all__ = [
    "Encoded",
    "EncodedLabels",
    "decode",
    "encode_X",
    "encode_y",
    "make_batches",
    "object_array",
    "tie_constant_edges",
    "validate_sample_weight",
]
