"""The learners of Table 1 of Vickrey et al. 2010, by name, for ``ccg_scenes.py``."""

import copy
import time

from sklearn_crf import ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.inference import LoopyBP

#: The paper's errors on 715 images of larger regions.
PAPER = {
    "Independent": 0.225,
    "PL": 0.461,
    "CD-1": 0.225,
    "CD-10": 0.219,
    "CD-100": 0.225,
    "MM(ICM-MV)": 0.217,
    "MM(MP-MV)": 0.218,
    "CCG(Gibbs-1+PL)": 0.225,
    "CCG(Gibbs-10+PL)": 0.218,
    "CCG(Gibbs-100+PL)": 0.217,
    "CCG(ICM+PL)": 0.200,
    "CCG(MP+PL)": 0.198,
    "CCG(ICM-MV+PL)": 0.192,
    "CCG(MP-MV+PL)": 0.190,
}

SHARED = {"pairwise": "symmetric", "inference": "icm", "random_state": 0}
# Weights are few beside nodes, so the penalty does little.
C_LIKELIHOOD = 1.0
# The paper ran to convergence, 20 to 85 rounds, and CD for 10,000 seconds.
N_NEW, N_EPOCHS = 2, {1: 60, 10: 30, 100: 8}
# Rounds, and iterations of each; without pseudolikelihood an iteration takes a fifth of the time.
LIMITS = {"pl": (12, 15), "empty": (30, 25)}
MARGIN_CS = (1e-4, 1e-3, 1e-2)


class Recorder:
    """Mixin that keeps the weights of every round or epoch, with the processor time until then."""

    def _train(self, risk, start, options, rng, on_iteration):
        begin, visits = time.process_time(), []
        self._visits = visits

        def visit(coef):
            visits.append((time.process_time() - begin, coef.copy()))
            return on_iteration(coef)

        return super()._train(risk, start, options, rng, visit)

    def record(self, X, y):
        """Pairs of seconds and the learner with the weights of then."""
        self.fit(X, y)
        visits, self._visits = self._visits, None
        moments = []
        for seconds, coef in visits:
            then = copy.copy(self)
            for name, value in self._weight_attributes(self._fitted_potentials(), coef).items():
                setattr(then, name, value)
            moments.append((seconds, then))
        return moments


class RecordedCCG(Recorder, ContrastiveCRF):
    """ContrastiveCRF that keeps its weights."""


class RecordedCD(Recorder, DRFClassifier):
    """DRFClassifier that keeps its weights."""


class Independent(DRFClassifier):
    """Regions as training examples of their own; edges come in with weight zero."""

    def fit(self, X, y, sample_weight=None):
        return super().fit([Example(x.node_features, [], x.edge_features[:0]) for x in X], y, sample_weight)


def contrastive(generator, init="pl", sweeps=10, kind=ContrastiveCRF, **options):
    n_rounds, n_iterations = LIMITS[init]

    def make(fold):
        return kind(
            C_LIKELIHOOD,
            generator=generator,
            init=init,
            gibbs_sweeps=sweeps,
            n_new=N_NEW,
            max_rounds=n_rounds,
            max_iter=n_iterations,
            tol=1e-3,
            cost=fold.costs if generator and "mv" in generator else "hamming",
            generator_inference=LoopyBP(schedule="residual", max_iter=20),
            **SHARED,
            **options,
        ), {}

    return make


def divergence(n_sweeps, kind=DRFClassifier):
    def make(fold):
        return kind(
            learning="cd", cd_steps=n_sweeps, solver="sgd", batch_size=8, step_size=0.5, step_schedule="annealed",
            init="zeros", select="last", max_iter=N_EPOCHS[n_sweeps], **SHARED,
        ), {}  # fmt: skip

    return make


def margin(inference):
    """C is chosen on ten images held out of the training part, after training on thirty others."""

    def with_c(C, costs, max_iter):
        return M3NClassifier(
            C, solver="cutting_plane", cost=costs, tol=1e-2, max_iter=max_iter, **SHARED | {"inference": inference}
        )

    def make(fold):
        scores = {}
        for C in MARGIN_CS:
            model = with_c(C, fold.costs[10:40], 8).fit(fold.X[10:40], fold.y[10:40])
            labels = model.set_params(inference="icm").predict(fold.X[:10])
            parts = zip(labels, fold.y[:10], fold.costs[:10], strict=True)
            scores[C] = sum(float(cost[found != truth].sum()) for found, truth, cost in parts)
        best = min(scores, key=scores.get)
        return with_c(best, fold.costs, 20), {"C": best}

    return make


LEARNERS = {
    "Independent": lambda fold: (Independent(C_LIKELIHOOD, learning="pl", **SHARED), {}),
    "PL": lambda fold: (DRFClassifier(C_LIKELIHOOD, learning="pl", tol=1e-3, **SHARED), {}),
    "CD-1": divergence(1),
    "CD-10": divergence(10),
    "CD-100": divergence(100),
    "MM(ICM-MV)": margin("icm"),
    "MM(MP-MV)": margin(LoopyBP(schedule="residual", max_iter=20)),
    "CCG(Gibbs-1+PL)": contrastive("gibbs", sweeps=1),
    "CCG(Gibbs-10+PL)": contrastive("gibbs", sweeps=10),
    "CCG(Gibbs-100+PL)": contrastive("gibbs", sweeps=100),
    "CCG(ICM+PL)": contrastive("icm"),
    "CCG(MP+PL)": contrastive("map"),
    "CCG(ICM-MV+PL)": contrastive("icm_mv"),
    "CCG(MP-MV+PL)": contrastive("map_mv"),
    "CCG(ICM)": contrastive("icm", "empty"),
    "CCG(MP)": contrastive("map", "empty"),
    "CCG(ICM-MV)": contrastive("icm_mv", "empty"),
    "CCG(MP-MV)": contrastive("map_mv", "empty"),
    "CCG(Gibbs-10)": contrastive("gibbs", "empty"),
    "SGD-CCG(ICM+PL)": contrastive("icm", solver="sgd", step_size=0.5),
}
RECORDED = {
    "CCG(ICM+PL)": contrastive("icm", kind=RecordedCCG),
    "SGD-CCG(ICM+PL)": contrastive("icm", kind=RecordedCCG, solver="sgd", step_size=0.5),
    "CD-1": divergence(1, RecordedCD),
    "CD-10": divergence(10, RecordedCD),
    "CD-100": divergence(100, RecordedCD),
}
#: Quick ones first, so that a run that is cut off has shown the most.
ORDER = [
    "Independent", "PL", "CCG(ICM)", "CCG(ICM-MV)", "MM(ICM-MV)", "CCG(Gibbs-10)", "CCG(MP)", "CCG(MP-MV)",
    "CCG(ICM+PL)", "CCG(MP-MV+PL)", "CD-10", "CD-1", "CCG(ICM-MV+PL)", "CCG(MP+PL)", "CCG(Gibbs-10+PL)",
    "CCG(Gibbs-1+PL)", "MM(MP-MV)", "SGD-CCG(ICM+PL)", "CCG(Gibbs-100+PL)", "CD-100",
]  # fmt: skip


def make_learner(name, fold, recorded=False):
    """An unfitted learner, and what it chose on held-out images of the training part."""
    return (RECORDED if recorded else LEARNERS)[name](fold)
