"""Conversion of X, y and sample_weight to batches of examples, and of results to the layout of X."""

from sklearn_crf.encoding._batches import (
    chain_features,
    groups_to_join,
    made_batch,
    make_batches,
    object_array,
    summable_weight,
    tie_constant_edges,
    union_of,
    validate_sample_weight,
)
from sklearn_crf.encoding._boundaries import with_boundaries
from sklearn_crf.encoding._compact_lists import RowFields
from sklearn_crf.encoding._edge_features import register_edge_features
from sklearn_crf.encoding._encoded import Encoded, Outline, n_inputs, record_input, take_examples
from sklearn_crf.encoding._examples import (
    Batch,
    Example,
    require_complete,
    trusted_example,
    weighted_sums_of_edges,
    with_fields,
    with_scaled_edges,
)
from sklearn_crf.encoding._labels import (
    EncodedLabels,
    class_weights,
    counts_of_nodes,
    encode_y,
    found_labels,
    in_class_order,
    label_array,
    labels_from_objects,
    missing_label_of_field,
    missing_nodes,
    named_classes,
    number_of_examples,
    partial_fit_classes,
    require_one_label_each,
    require_same_kind,
    sorted_classes,
)
from sklearn_crf.encoding._lattices import encode_X
from sklearn_crf.encoding._layouts import decode, require_rows
from sklearn_crf.encoding._node_features import OperatorFeatures, SharedRows

__all__ = ["Example", "register_edge_features"]
