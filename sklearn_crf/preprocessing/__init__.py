"""Transformers with scikit-learn's interface for images, sequences and other structured examples."""

from sklearn_crf.preprocessing._adaptive_filters import AdaptiveFilters
from sklearn_crf.preprocessing._classifier_scores import ClassifierScores
from sklearn_crf.preprocessing._filter_bank import ChannelUnion, FilterBank
from sklearn_crf.preprocessing._group_rows import group_rows, ungroup_rows
from sklearn_crf.preprocessing._local_image_features import LocalImageFeatures
from sklearn_crf.preprocessing._node_transformer import NodeTransformer
from sklearn_crf.preprocessing._node_weights import node_weights
from sklearn_crf.preprocessing._patch_denoisers import PatchAverages, PatchGroups, PatchShrinkage
from sklearn_crf.preprocessing._patch_overlays import PatchOverlays
from sklearn_crf.preprocessing._pixel_features import PixelFeatures
from sklearn_crf.preprocessing._sequence_vectorizer import SequenceVectorizer

__all__ = [
    "AdaptiveFilters",
    "ClassifierScores",
    "FilterBank",
    "LocalImageFeatures",
    "NodeTransformer",
    "PatchAverages",
    "PatchGroups",
    "PatchOverlays",
    "PatchShrinkage",
    "PixelFeatures",
    "SequenceVectorizer",
    "group_rows",
    "node_weights",
    "ungroup_rows",
]
