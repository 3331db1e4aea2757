"""Conversion of X, y and sample_weight to batches of examples, and of results to the layout of X."""

from sklearn_crf.encoding._added_features import (
    Filling,
    append_boundaries,
    attributes_of_filling,
    sum_known_features,
)
from sklearn_crf.encoding._batches import (
    chain_features,
    complete_batch,
    group_batches_to_join,
    make_batches,
    make_object_array,
    read_sample_weight,
    require_weight,
    scale_sample_weight,
    tie_constant_edges,
    unite_batches,
    validate_sample_weight,
)
from sklearn_crf.encoding._compact_lists import RowFields
from sklearn_crf.encoding._edge_features import SpacedEdges, register_edge_features
from sklearn_crf.encoding._encoded import Encoded, Outline, n_inputs, record_input, take_examples
from sklearn_crf.encoding._examples import (
    Batch,
    Example,
    copy_with_scaled_edges,
    make_trusted_example,
    replace_fields,
    require_complete,
    sum_edges_of_example,
)
from sklearn_crf.encoding._labels import (
    EncodedLabels,
    check_cost,
    check_named_classes,
    choose_partial_fit_classes,
    collect_distinct_labels,
    compute_class_weights,
    compute_node_counts,
    convert_object_labels,
    convert_to_label_array,
    count_examples,
    encode_y,
    mask_missing_nodes,
    missing_label_of_field,
    require_one_label_each,
    require_same_kind,
    sort_classes,
    sort_cost_by_class,
)
from sklearn_crf.encoding._lattices import encode_X
from sklearn_crf.encoding._layouts import decode, has_nodes, require_rows
from sklearn_crf.encoding._node_features import OperatorFeatures, SharedRows, multiply_rows

__all__ = ["Example", "register_edge_features"]
