"""Conditional (discriminative) random fields with the scikit-learn interface."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sklearn_crf._energies import marginals, solve
    from sklearn_crf._versions import show_versions
    from sklearn_crf.dense import Bilateral, DenseCRF, DenseExample, Spatial, refine
    from sklearn_crf.distributed import Shards
    from sklearn_crf.encoding import Example
    from sklearn_crf.estimators.contrastive import ContrastiveCRF
    from sklearn_crf.estimators.drf import DRFClassifier
    from sklearn_crf.estimators.m3n import M3NClassifier
    from sklearn_crf.estimators.trw import TRWCRF
    from sklearn_crf.graphs import Graph
    from sklearn_crf.mfa import MultiConditionalMFA
    from sklearn_crf.multilabel import MultiLabelField
    from sklearn_crf.restoration import LearnedFilters, restore
    from sklearn_crf.rtf import RegressionTreeField, RegressionTreeFieldClassifier

__version__ = "0.1.0.dev0"

__all__ = [
    "TRWCRF",
    "Bilateral",
    "ContrastiveCRF",
    "DRFClassifier",
    "DenseCRF",
    "DenseExample",
    "Example",
    "Graph",
    "LearnedFilters",
    "M3NClassifier",
    "MultiConditionalMFA",
    "MultiLabelField",
    "RegressionTreeField",
    "RegressionTreeFieldClassifier",
    "Shards",
    "Spatial",
    "marginals",
    "refine",
    "restore",
    "show_versions",
    "solve",
]

# Import each name when it is first used, because importing all submodules takes half a second.
_MODULE_OF = {
    "TRWCRF": "estimators.trw",
    "Bilateral": "dense",
    "ContrastiveCRF": "estimators.contrastive",
    "DRFClassifier": "estimators.drf",
    "DenseCRF": "dense",
    "DenseExample": "dense",
    "Example": "encoding",
    "Graph": "graphs",
    "LearnedFilters": "restoration",
    "M3NClassifier": "estimators.m3n",
    "MultiConditionalMFA": "mfa",
    "MultiLabelField": "multilabel",
    "RegressionTreeField": "rtf",
    "RegressionTreeFieldClassifier": "rtf",
    "Shards": "distributed",
    "Spatial": "dense",
    "marginals": "_energies",
    "refine": "dense",
    "restore": "restoration",
    "show_versions": "_versions",
    "solve": "_energies",
}
_SUBMODULES = {
    "calibration",
    "datasets",
    "dense",
    "display",
    "distributed",
    "encoding",
    "estimators",
    "graphs",
    "inference",
    "inspection",
    "large_images",
    "learning",
    "metrics",
    "mfa",
    "model_selection",
    "models",
    "multilabel",
    "objectives",
    "optimize",
    "pipeline",
    "potentials",
    "preprocessing",
    "restoration",
    "rtf",
}


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
