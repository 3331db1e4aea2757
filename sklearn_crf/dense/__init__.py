"""Fully connected fields with Gaussian edge weights: estimator, kernels, examples and losses."""

from sklearn_crf.dense._bandwidth_search import BandwidthGradient, BandwidthSearch
from sklearn_crf.dense._estimator import DenseCRF
from sklearn_crf.dense._examples import DenseExample
from sklearn_crf.dense._gaussian_kernels import Bilateral, Spatial
from sklearn_crf.dense._losses import ExpectedIoU, LogLoss
from sklearn_crf.dense._refinement import refine
from sklearn_crf.dense._report import GridField, RefinementReport, refinement_report

__all__ = [
    "BandwidthGradient",
    "BandwidthSearch",
    "Bilateral",
    "DenseCRF",
    "DenseExample",
    "Spatial",
    "refine",
    "refinement_report",
]
