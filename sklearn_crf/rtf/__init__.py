"""Regression tree fields: estimators, trees, Gaussian potentials and objectives, image losses."""

from sklearn_crf.rtf._classifier import RegressionTreeFieldClassifier
from sklearn_crf.rtf._options import Cascade, FieldSolver, Splits, Window
from sklearn_crf.rtf._regressor import RegressionTreeField
from sklearn_crf.rtf.images._corruption import JPEG, GaussianNoise, MissingPixels
from sklearn_crf.rtf.images._degradation import Blur, Downsampling

__all__ = [
    "JPEG",
    "Blur",
    "Cascade",
    "Downsampling",
    "FieldSolver",
    "GaussianNoise",
    "MissingPixels",
    "RegressionTreeField",
    "RegressionTreeFieldClassifier",
    "Splits",
    "Window",
]
