"""Joint part-of-speech tagging and chunking of CoNLL-2000 as a factorial field (Fig. 33 of Jancsary 2012).

    SKLEARN_CRF_DATA=folder python benchmarks/papers/conll2000.py  # all results that are not yet in --json
    SKLEARN_CRF_DATA=folder python benchmarks/papers/conll2000.py piecewise --strengths 1e-4
    SKLEARN_CRF_DATA=folder python benchmarks/papers/conll2000.py --sentences 1000 --edges words

Two chains over the words of a sentence are joined word by word. Windows of words are the features of both chains, and
edges have a weight for every pair of labels that occurs in training. MPLP predicts the labels. Accuracy is measured
over all labels of both chains.

Differences from the thesis: the split is the official split of 8,936 training and 2,012 test sentences; edges only have
a constant feature, whereas in the thesis they have the features of nodes (``--edges words``); only pairs of labels that
occur in training have weights; the default entropy is tree-reweighted, whereas the thesis uses the trivial entropy
(``--entropy trivial``).
"""

import argparse
import functools
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
from support.certified import certified_accuracy, run_missing
from support.factorial_conll import FactorialTask
from support.named_learning import named_learning

from sklearn_crf import TRWCRF

ESTIMATORS = ("relaxation", "piecewise", "shared_pieces", "pseudolikelihood", "exact")


def run(name, strength, task, options):
    start = time.process_time()
    # The thesis divides the loss by the number of variables.
    model = TRWCRF(
        C=1 / (strength * sum(map(len, task.y))),
        learning=named_learning(name, entropy=options.entropy, tol=1e-4),
        weights="seen",
        fit_intercept=False,
        classes=task.classes,
        max_iter=options.max_iter,
        tol=1e-5,
        n_jobs=options.jobs,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(task.X, task.y)
    seconds = time.process_time() - start
    some = slice(None, None, max(1, len(task.X) // 500))
    return {
        "seconds": seconds,
        "n_iter": model.n_iter_,
        "test": certified_accuracy(model, task.X_test, task.y_test),
        "train": certified_accuracy(model, task.X[some], task.y[some]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("estimators", nargs="*", help=f"of {', '.join(ESTIMATORS)}, or report")
    parser.add_argument(
        "--strengths", type=float, nargs="+", default=[1e-4, 1e-8], help="C, in the normalisation of the thesis"
    )
    parser.add_argument("--sentences", type=int, default=None, help="number of training sentences; default: all")
    parser.add_argument("--test", type=int, default=None, help="number of test sentences; default: all")
    parser.add_argument("--edges", choices=("constant", "words"), default="constant", help="edge features")
    parser.add_argument("--entropy", choices=("trw", "trivial"), default="trw")
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path("conll2000.json"), help="file for results")
    options = parser.parse_args()
    settings = {name: getattr(options, name) for name in ("sentences", "test", "edges", "entropy", "max_iter")}
    names = options.estimators or ESTIMATORS
    task = functools.cache(lambda: FactorialTask(options.sentences, options.test, options.edges == "words"))
    pairs = [(name, strength) for name in names for strength in options.strengths if name in ESTIMATORS]
    run_missing(lambda name, strength: run(name, strength, task(), options), pairs, settings, options.json)


if __name__ == "__main__":
    main()
