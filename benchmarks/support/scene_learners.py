"""Learners of Table 1 of Vickrey et al. 2010, by name, for ``ccg_scenes.py``."""

import copy
from dataclasses import dataclass

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.inference import ICM, LoopyBP
from sklearn_crf.learning import SGD, ContrastiveDivergenceTraining, ContrastiveTraining, PseudolikelihoodTraining
from sklearn_crf.objectives import GibbsGenerator, MapGenerator, MostViolated
from support.named_learning import watched

#: Errors in the paper, on 715 images with larger regions.
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

MESSAGES = LoopyBP(schedule="residual", max_iter=20)


@dataclass(frozen=True)
class Protocol:
    """Properties of graphs, and options of training."""

    n_regions: int | None  # number of regions of an image; None keeps the superpixels
    n_components: int | None  # number of reduced features; None uses scaled square roots of all features
    pairwise: str
    # Weight of the set of generated labelings of an image, relative to the pseudolikelihood of its regions
    generated_weight: float | str
    n_new: int
    # Numbers of rounds, of rounds for choosing C, and of iterations of a round. The paper ran 20 to 85 rounds, to
    # convergence.
    n_rounds: int
    n_rounds_tried: int
    n_iterations: int
    n_planes: int
    n_planes_tried: int
    n_epochs: dict  # epochs of contrastive divergence by number of sweeps; the paper ran for 10,000 seconds
    strengths: tuple  # values from which C is chosen
    # Numbers of training images for evaluating values of C, and for training with values of C
    n_held_out: int
    n_tried: int


SUPERPIXELS = Protocol(
    n_regions=None, n_components=30, pairwise="symmetric", generated_weight=1.0, n_new=1, n_rounds=12,
    n_rounds_tried=6, n_iterations=15, n_planes=20, n_planes_tried=8, n_epochs={1: 60, 10: 30, 100: 8},
    strengths=(1e-3, 1e-2, 1e-1), n_held_out=10, n_tried=20,
)  # fmt: skip
# Regions of the size in the paper. ``ccg_scenes.py causes`` changes one option at a time.
REGIONS = Protocol(
    n_regions=20, n_components=60, pairwise="potts", generated_weight="n_nodes", n_new=1, n_rounds=12,
    n_rounds_tried=12, n_iterations=25, n_planes=60, n_planes_tried=60, n_epochs={1: 100, 10: 60, 100: 30},
    strengths=(3e-3, 1e-2, 3e-2, 1e-1), n_held_out=30, n_tried=59,
)  # fmt: skip


class Recorder:
    """Mixin that records the weights after each round or epoch, with the processor time until then."""

    def record(self, X, y):
        """Fit, and return pairs of processor seconds and a copy of the learner with the weights at that time."""
        visits, moments = [], []
        self.set_params(learning=watched(self.learning, lambda *visit: visits.append(visit)))
        self.fit(X, y)
        for seconds, coef in visits:
            then = copy.copy(self)
            fitted = FittedField.of(self)
            for name, value in fitted.layout.attributes(fitted.potentials(), coef).items():
                setattr(then, name, value)
            moments.append((seconds, then))
        return moments


class NodeCosts:
    """Mixin that passes ``costs``, an attribute set after construction, as weights of nodes to ``fit``."""

    costs = None

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y, sample_weight, self.costs)


class CostedCCG(NodeCosts, ContrastiveCRF):
    """ContrastiveCRF that searches for labelings that violate margins, with costs of nodes."""


class CostedM3N(NodeCosts, M3NClassifier):
    """M3NClassifier with costs of nodes."""


class RecordedCCG(Recorder, CostedCCG):
    """CostedCCG that records its weights."""


class RecordedCD(Recorder, DRFClassifier):
    """DRFClassifier that records its weights."""


class Independent(DRFClassifier):
    """DRFClassifier trained without edges, so that edge weights are zero."""

    def fit(self, X, y, sample_weight=None):
        return super().fit([Example(x.node_features, [], x.edge_features[:0]) for x in X], y, sample_weight)


class WithChosenC:
    """A learner whose C is chosen on held-out images of the training part.

    The criterion is the area of wrong labels by iterated conditional modes.

    Parameters
    ----------
    make : callable(C, costs, protocol, tried) -> estimator
        ``tried`` is True for estimators that are made to choose C.
    """

    def __init__(self, make):
        self.make = make

    def __call__(self, fold):
        protocol = fold.protocol
        held_out = slice(protocol.n_held_out)
        tried = slice(protocol.n_held_out, protocol.n_held_out + protocol.n_tried)
        errors = {}
        for C in protocol.strengths:
            model = self.make(C, fold.costs[tried], protocol, True).fit(fold.X[tried], fold.y[tried])
            labels = model.set_params(inference="icm").predict(fold.X[held_out])
            parts = zip(labels, fold.y[held_out], fold.costs[held_out], strict=True)
            errors[C] = sum(float(cost[found != truth].sum()) for found, truth, cost in parts)
        best = min(errors, key=errors.get)
        return self.make(best, fold.costs, protocol, False), {"C": best}


def shared(protocol):
    return {"pairwise": protocol.pairwise, "inference": "icm", "random_state": 0}


def contrastive(generator, init="pl", sweeps=10, kind=CostedCCG, n_rounds=None, by_epochs=False):
    """Return a maker of contrastive learners; with ``by_epochs`` they use SGD and generate before each step."""

    def make(C, costs, protocol, tried):
        rounds = n_rounds or (protocol.n_rounds_tried if tried else protocol.n_rounds)
        epochs = {"solver": SGD(step_size=0.5), "max_iter": 2 * protocol.n_rounds} if by_epochs else {}
        kinds = {"gibbs": GibbsGenerator(sweeps), "icm": MapGenerator(ICM()), "map": MapGenerator(MESSAGES)}
        violated = "mv" in generator
        found = kinds[generator.partition("_")[0]]
        learning = ContrastiveTraining(
            init=init,
            generator=MostViolated(found, "hamming") if violated else found,
            n_new=protocol.n_new,
            generated_weight=protocol.generated_weight,
            max_rounds=rounds,
            max_round_iter=None,
        )
        learner = kind(
            C,
            learning=learning,
            **{"max_iter": protocol.n_iterations, "tol": 1e-4, **epochs},
            **shared(protocol),
        )
        learner.costs = costs if violated else None
        return learner

    return WithChosenC(make)


def divergence(n_sweeps, kind=DRFClassifier):
    def make(fold):
        learning = ContrastiveDivergenceTraining(
            n_sweeps=n_sweeps, step_size=0.5, step_schedule="annealed", batch_size=8, select="last", init="zeros"
        )
        return kind(learning=learning, max_iter=fold.protocol.n_epochs[n_sweeps], **shared(fold.protocol)), {}

    return make


def margin(inference):
    def make(C, costs, protocol, tried):
        n_planes = protocol.n_planes_tried if tried else protocol.n_planes
        options = shared(protocol) | {"inference": inference}
        learner = CostedM3N(C, solver="cutting_plane", tol=1e-2, max_iter=n_planes, **options)
        learner.costs = costs
        return learner

    return WithChosenC(make)


def independent(C, costs, protocol, tried):
    return Independent(C, learning=PseudolikelihoodTraining(edge_scale=1), tol=1e-4, **shared(protocol))


def pseudolikelihood(C, costs, protocol, tried):
    return DRFClassifier(C, learning=PseudolikelihoodTraining(edge_scale=1), tol=1e-4, **shared(protocol))


def likelihood(C, costs, protocol, tried):
    return TRWCRF(C, learning="loopy", max_iter=30, tol=1e-3, **shared(protocol))


LEARNERS = {
    "Independent": WithChosenC(independent),
    "PL": WithChosenC(pseudolikelihood),
    "CD-1": divergence(1),
    "CD-10": divergence(10),
    "CD-100": divergence(100),
    "MM(ICM-MV)": margin("icm"),
    "MM(MP-MV)": margin(MESSAGES),
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
    "SGD-CCG(ICM+PL)": contrastive("icm", by_epochs=True),
    # Not in the paper; shows how much neighbours can help
    "Likelihood": WithChosenC(likelihood),
}
# Learners of Figure 2, with rounds almost to convergence. For small regions the last rounds find few labelings.
RECORDED = {
    "CCG(ICM+PL)": contrastive("icm", kind=RecordedCCG, n_rounds=60),
    "CCG(ICM-MV+PL)": contrastive("icm_mv", kind=RecordedCCG, n_rounds=60),
    "CCG(Gibbs-10+PL)": contrastive("gibbs", kind=RecordedCCG),
    "SGD-CCG(ICM+PL)": contrastive("icm", kind=RecordedCCG, by_epochs=True),
    "CD-1": divergence(1, RecordedCD),
    "CD-10": divergence(10, RecordedCD),
    "CD-100": divergence(100, RecordedCD),
}
#: Order of runs, with the most informative learners first, in case a run is stopped.
ORDER = [
    "Independent", "PL", "MM(ICM-MV)", "CCG(ICM-MV)", "CCG(ICM-MV+PL)", "CCG(ICM+PL)", "CCG(Gibbs-10+PL)", "CD-1",
    "CCG(MP-MV+PL)", "CCG(MP-MV)", "CCG(ICM)", "CCG(MP)", "CCG(MP+PL)", "CCG(Gibbs-10)", "CD-10", "MM(MP-MV)",
    "CCG(Gibbs-1+PL)", "SGD-CCG(ICM+PL)", "CCG(Gibbs-100+PL)", "CD-100",
]  # fmt: skip


def make_learner(name, fold, recorded=False):
    """Return an unfitted learner, and the options chosen on held-out images of the training part."""
    return (RECORDED if recorded else LEARNERS)[name](fold)
