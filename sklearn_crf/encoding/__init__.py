"""Encoding: X, y and sample_weight become batches of examples, and results take the layout of X again."""

from sklearn_crf.encoding._batches import (
    are_pending,
    made_batch,
    make_batches,
    nodes_of,
    object_array,
    summable_weight,
    tie_constant_edges,
    validate_sample_weight,
)
from sklearn_crf.encoding._classes import (
    ENTITY_SCHEMES,
    class_weights,
    counts_of_nodes,
    in_class_order,
    invalid_transitions,
    labels_from_objects,
    named_classes,
    partial_fit_classes,
    sorted_classes,
)
from sklearn_crf.encoding._compact_lists import RowFields, RowsInPlace
from sklearn_crf.encoding._edge_features import EDGE_FEATURES, constant, difference, register_edge_features
from sklearn_crf.encoding._encoded import Encoded
from sklearn_crf.encoding._examples import (
    Batch,
    Example,
    require_complete,
    trusted_example,
    weighted_sums_of_edges,
    with_fields,
    with_scaled_edges,
)
from sklearn_crf.encoding._joined_batches import groups_to_join, joined_batches, union_of
from sklearn_crf.encoding._labels import (
    EncodedLabels,
    encode_y,
    found_labels,
    label_array,
    missing_label_of_field,
    missing_nodes,
    number_of_examples,
    require_one_label_each,
    require_same_kind,
)
from sklearn_crf.encoding._lattices import encode_X
from sklearn_crf.encoding._layouts import decode, require_rows
from sklearn_crf.encoding._operators import OperatorFeatures
from sklearn_crf.encoding._outlines import Outline
from sklearn_crf.encoding._shared_rows import SharedRows

__all__ = ["Example", "register_edge_features"]
