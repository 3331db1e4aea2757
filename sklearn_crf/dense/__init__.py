"""Fully connected fields with Gaussian edges: estimator, kernels, examples, losses."""

from sklearn_crf.dense.estimator import DenseCRF
from sklearn_crf.dense.examples import DenseExample
from sklearn_crf.dense.gaussian_kernels import Bilateral, Spatial
from sklearn_crf.dense.losses import ExpectedIoU, LogLoss
from sklearn_crf.dense.refinement import refine
from sklearn_crf.dense.report import GridField, RefinementReport, refinement_report

__all__ = [
    "Bilateral",
    "DenseCRF",
    "DenseExample",
    "ExpectedIoU",
    "GridField",
    "LogLoss",
    "RefinementReport",
    "Spatial",
    "refine",
    "refinement_report",
]
