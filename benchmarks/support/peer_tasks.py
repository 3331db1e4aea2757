"""Tasks of ``peers.py``: the same work by this package and by a peer, on the same data.

Each side of a comparison is a function ``run(size, n_jobs)``. It makes its data and returns the times of its steps,
as pairs (elapsed, processor), and the quality of its result. It runs in a separate process.
"""

import importlib.util
from importlib import import_module

from support import peer_inference as inference
from support import peer_learning as learning
from support import peer_tagging as tagging
from support.peer_timing import timed

CLASSIFIERS = ("TRWCRF", "DRFClassifier", "M3NClassifier", "ContrastiveCRF")


def our_import(size, n_jobs):
    """Return the time to import some classifiers after scikit-learn's linear models."""
    import sklearn.linear_model  # noqa: F401

    import sklearn_crf

    return {"import": timed(lambda: [getattr(sklearn_crf, name) for name in CLASSIFIERS[:size]])[0]}, {}


def sklearn_import(size, n_jobs):
    return {"import": timed(lambda: import_module("sklearn.linear_model"))[0]}, {}


# Tasks that read the folder SKLEARN_CRF_DATA
NEED_DATA = {"CoNLL-2000", "words, Frank-Wolfe", "words, one slack"}

# (run of this package, sizes, runs of peers by name of their package)
TASKS = {
    "classifiers": (our_import, (1, len(CLASSIFIERS)), {"sklearn": sklearn_import}),
    "dict features": (tagging.our_conversion, (1000, 3000), {"pycrfsuite": tagging.crfsuite_conversion}),
    "tagging from dicts": tagging.tagging_task(tagging.artificial(9), (500, 1500, 4000)),
    "60 tags": tagging.tagging_task(tagging.artificial(60), (300,)),
    "CoNLL-2000": tagging.tagging_task(tagging.chunks, (3000,)),
    "rows": learning.rows_task(learning.our_classifier, learning.logistic_regression),
    "rows, margins": learning.rows_task(learning.our_margins, learning.linear_svc),
    "words, Frank-Wolfe": learning.words_task("frank_wolfe", 12, "FrankWolfeSSVM"),
    "words, one slack": learning.words_task("one_slack", 100, "OneSlackSSVM"),
    "mixtures": learning.density_task(learning.our_mixture, learning.gaussian_mixture, (9, 40)),
    "factor analysis": learning.density_task(learning.our_analyser, learning.factor_analysis, (9, 40)),
    "cut of a volume": (inference.our_cut(1), (64,), {"maxflow": inference.maxflow_cut(1)}),
    "cut, 26 neighbours": (inference.our_cut(3), (64,), {"maxflow": inference.maxflow_cut(3)}),
    "cut, noise": inference.image_cut("noise", 2.0),
    "cut, regions": inference.image_cut("field", 1.0),
    "cut, photograph": inference.image_cut("photograph", 5.0),
    "moves, Potts": inference.expansion("Potts", 512, 8, 0.5),
    "moves, contrast": inference.expansion("contrast", 512, 8, 2.0),
    "moves, weak Potts": inference.expansion("Potts", 256, 5, 0.1),
    "moves, weak contrast": inference.expansion("contrast", 256, 5, 0.1),
    "moves, neighbours": inference.expansion("neighbours", 50_000, 5, 0.3),
    "messages, 2 states": inference.propagation("binary_grid", 50),
    "messages, 16 states": inference.propagation("regular_graph_of_16_states", 1000),
    "proofs": (inference.our_proof, (20, 30), {"pytoulbar2": inference.toulbar2_proof}),
}

# Functions that return whether peers that are not Python packages are installed
ELSEWHERE = {"libdai": inference.has_libdai, "pystruct": learning.has_pystruct}


def is_installed(peer):
    return ELSEWHERE[peer]() if peer in ELSEWHERE else importlib.util.find_spec(peer) is not None
