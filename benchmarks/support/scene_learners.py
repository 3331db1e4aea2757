"""The learners of Table 1 of Vickrey et al. 2010, by name, for ``ccg_scenes.py``."""

import copy
from dataclasses import dataclass

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.inference import ICM, LoopyBP
from sklearn_crf.learning import SGD, ContrastiveDivergenceTraining, ContrastiveTraining
from sklearn_crf.objectives import GibbsGenerator, MapGenerator, MostViolated
from support.named_learning import watched

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

MESSAGES = LoopyBP(schedule="residual", max_iter=20)


@dataclass(frozen=True)
class Protocol:
    """What graphs are like, and how learners are trained on them."""

    n_regions: int | None  # of an image; None leaves the superpixels
    n_components: int | None  # features after the reduction; None keeps the square roots of all, scaled
    pairwise: str
    # Of the set of what is generated for an image, beside the pseudolikelihood of its regions.
    generated_weight: float | str
    n_new: int
    # Rounds, fewer where C is chosen, and iterations of each. The paper ran 20 to 85 rounds, to convergence.
    n_rounds: int
    n_rounds_tried: int
    n_iterations: int
    n_planes: int
    n_planes_tried: int
    n_epochs: dict  # of contrastive divergence by its sweeps; the paper ran for 10,000 seconds
    strengths: tuple  # among which C is chosen
    # Images that C is chosen on, and images that it is tried with: of the training part of the fold.
    n_held_out: int
    n_tried: int


SUPERPIXELS = Protocol(
    n_regions=None, n_components=30, pairwise="symmetric", generated_weight=1.0, n_new=1, n_rounds=12,
    n_rounds_tried=6, n_iterations=15, n_planes=20, n_planes_tried=8, n_epochs={1: 60, 10: 30, 100: 8},
    strengths=(1e-3, 1e-2, 1e-1), n_held_out=10, n_tried=20,
)  # fmt: skip
# Regions of the paper's size. ``ccg_scenes.py causes`` changes one of these at a time.
REGIONS = Protocol(
    n_regions=20, n_components=60, pairwise="potts", generated_weight="n_nodes", n_new=1, n_rounds=12,
    n_rounds_tried=12, n_iterations=25, n_planes=60, n_planes_tried=60, n_epochs={1: 100, 10: 60, 100: 30},
    strengths=(3e-3, 1e-2, 3e-2, 1e-1), n_held_out=30, n_tried=59,
)  # fmt: skip


class Recorder:
    """Mixin that keeps the weights of every round or epoch, with the processor time until then."""

    def record(self, X, y):
        """Pairs of seconds and the learner with the weights of then."""
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
    """Mixin whose errors cost by node: ``costs`` is set once the learner is made."""

    costs = None

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y, sample_weight, self.costs)


class CostedCCG(NodeCosts, ContrastiveCRF):
    """ContrastiveCRF that looks for labelings that violate costs of nodes."""


class CostedM3N(NodeCosts, M3NClassifier):
    """M3NClassifier with costs of nodes."""


class RecordedCCG(Recorder, CostedCCG):
    """ContrastiveCRF that keeps its weights."""


class RecordedCD(Recorder, DRFClassifier):
    """DRFClassifier that keeps its weights."""


class Independent(DRFClassifier):
    """Regions as training examples of their own; edges come in with weight zero."""

    def fit(self, X, y, sample_weight=None):
        return super().fit([Example(x.node_features, [], x.edge_features[:0]) for x in X], y, sample_weight)


class WithChosenC:
    """A learner whose C is chosen on images held out of the training part, after training on others.

    The error there counts areas, of labels by iterated conditional modes.

    Parameters
    ----------
    make : callable(C, costs, protocol, tried) -> estimator
        Tried is whether it is made to choose C.
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
    """Constraint generation; by epochs in the SGD form, which generates before every step."""

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
    return Independent(C, learning="pl", tol=1e-4, **shared(protocol))


def pseudolikelihood(C, costs, protocol, tried):
    return DRFClassifier(C, learning="pl", tol=1e-4, **shared(protocol))


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
    # Not in the paper: what there is to gain from neighbours at all.
    "Likelihood": WithChosenC(likelihood),
}
# Figure 2. Rounds to convergence, or nearly: for small regions the last rounds find hardly anything.
RECORDED = {
    "CCG(ICM+PL)": contrastive("icm", kind=RecordedCCG, n_rounds=60),
    "CCG(ICM-MV+PL)": contrastive("icm_mv", kind=RecordedCCG, n_rounds=60),
    "CCG(Gibbs-10+PL)": contrastive("gibbs", kind=RecordedCCG),
    "SGD-CCG(ICM+PL)": contrastive("icm", kind=RecordedCCG, by_epochs=True),
    "CD-1": divergence(1, RecordedCD),
    "CD-10": divergence(10, RecordedCD),
    "CD-100": divergence(100, RecordedCD),
}
#: The most telling first, so that a run that is cut off has shown the most.
ORDER = [
    "Independent", "PL", "MM(ICM-MV)", "CCG(ICM-MV)", "CCG(ICM-MV+PL)", "CCG(ICM+PL)", "CCG(Gibbs-10+PL)", "CD-1",
    "CCG(MP-MV+PL)", "CCG(MP-MV)", "CCG(ICM)", "CCG(MP)", "CCG(MP+PL)", "CCG(Gibbs-10)", "CD-10", "MM(MP-MV)",
    "CCG(Gibbs-1+PL)", "SGD-CCG(ICM+PL)", "CCG(Gibbs-100+PL)", "CD-100",
]  # fmt: skip


def make_learner(name, fold, recorded=False):
    """An unfitted learner, and what it chose on held-out images of the training part."""
    return (RECORDED if recorded else LEARNERS)[name](fold)
