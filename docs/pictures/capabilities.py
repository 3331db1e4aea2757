"""Number of estimators that offer each method."""

import inspect

import matplotlib.pyplot as plt

import sklearn_crf

kinds = [getattr(sklearn_crf, name) for name in sklearn_crf.__all__]
kinds = [kind for kind in kinds if inspect.isclass(kind) and hasattr(kind, "fit")]
methods = ["predict_proba", "predict_edge_proba", "predict_topk", "log_likelihood", "sample", "certify", "models"]
counts = [sum(hasattr(kind(), method) for kind in kinds) for method in methods]
figure, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
ax.barh(methods[::-1], counts[::-1])
ax.set(xlabel=f"estimators, of {len(kinds)}", xlim=(0, len(kinds)))
