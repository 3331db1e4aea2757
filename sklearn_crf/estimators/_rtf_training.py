"""Training of regression tree fields: parameters and trees in turn."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.estimators._rtf_growth import GrowthOptions, find_splits
from sklearn_crf.estimators._rtf_scaling import LeafScaling
from sklearn_crf.estimators._rtf_shrinkage import Shrinkage
from sklearn_crf.objectives._gaussian_field import FieldRisk
from sklearn_crf.optimize import minimize_pqn, minimize_spg
from sklearn_crf.potentials._regression_tree_field import FieldImage, RegressionTreePotentials
from sklearn_crf.regression_trees._tree import RegressionTree


class Trained(NamedTuple):
    """What training found.

    Attributes
    ----------
    trees : list of RegressionTree
    potentials : RegressionTreePotentials
    coef : ndarray of shape (n_coef,)
    loss_curve : ndarray
        The loss at the start, and after every iteration of all rounds.
    rounds : ndarray of int
        Iterations made by the end of each round.
    validation_curve : ndarray
        Loss of what was held out at the end of each round; empty if nothing was.
    success : bool
        Whether the last round reached the tolerance.
    solved : bool
        Whether every solve did.
    """

    trees: list
    potentials: RegressionTreePotentials
    coef: np.ndarray
    loss_curve: np.ndarray
    rounds: np.ndarray
    validation_curve: np.ndarray
    success: bool
    solved: bool


class TrainingOptions(NamedTuple):
    """Constructor parameters that govern training."""

    solver: str
    max_depths: list
    max_iter: int
    tol: float
    growth: GrowthOptions
    report: object
    shrinkage: float = 0.0


class Field(NamedTuple):
    """Trees, and parameters of their leaves."""

    trees: list
    potentials: RegressionTreePotentials
    coef: np.ndarray

    @classmethod
    def stumps(cls, types, whitening, n_values, bounds):
        """Trees of one leaf, identity precisions, zero weights and slopes."""
        potentials = RegressionTreePotentials(types, [1] * len(types), whitening, n_values)
        return cls([RegressionTree.stump() for _ in types], potentials, potentials.project(potentials.start(), bounds))

    @classmethod
    def restored(cls, types, whitening, n_values, trees, precisions, weights, slopes):
        """A field as estimators keep it, its linear models brought back to whitened inputs."""
        potentials = RegressionTreePotentials(types, [tree.n_leaves for tree in trees], whitening, n_values)
        white = [weight @ np.linalg.pinv(v) for weight, v in zip(weights, whitening, strict=True)]
        return cls(trees, potentials, potentials.pack(precisions, white, slopes))

    def split(self, splits):
        """The field with some leaves split, parameters being those of the leaves they come from."""
        grown = [tree.split(own) for tree, own in zip(self.trees, splits, strict=True)]
        trees = [tree for tree, _ in grown]
        parents = [parent for _, parent in grown]
        return Field(trees, *self.potentials.grown(self.coef, parents, [tree.n_leaves for tree in trees]))

    def images(self, data, n_jobs):
        """The images of a set with the leaves that their factors fall into."""
        pairs = list(zip(data.features, data.graphs, strict=True))
        types = self.potentials.types
        return map_tasks(lambda pair, n_threads: FieldImage.of(*pair, types, self.trees, n_threads), pairs, n_jobs)

    def risk(self, objective, data, n_jobs):
        """Mean loss over a set."""
        return FieldRisk(objective, self.potentials, self.images(data, n_jobs), data.targets, data.weights, n_jobs)


def train(objective, field, data, options, rng, n_jobs, validation=None, is_trained=False):
    """Optimise all leaves, split them, and so on until the trees are as deep as allowed.

    Parameters
    ----------
    objective : GaussianPseudolikelihood, GaussianLikelihood or PredictionLoss
    field : Field
        Where to start.
    data : TrainingData
    options : TrainingOptions
    rng : RandomState
    n_jobs : int or None
    validation : TrainingData, optional
        Training ends with the first round that does not improve the loss of it, and gives back the field of the round
        before.
    is_trained : bool, default=False
        Whether the parameters of ``field`` are the best of its leaves already, so that these are split first.

    Returns
    -------
    Trained
    """
    risk = field.risk(objective, data, n_jobs)
    if is_trained:
        splits = find_splits(risk, field.trees, field.coef, options.max_depths, options.growth, rng)
        field = field.split(splits)
        risk = risk.replaced(field.potentials, field.images(data, n_jobs))
    if options.growth.criterion == "residual":
        while any(splits := find_splits(risk, field.trees, field.coef, options.max_depths, options.growth, rng)):
            field = field.split(splits)
            risk = risk.replaced(field.potentials, field.images(data, n_jobs))
    curve, rounds, held_out, former = [], [], [], None
    while True:
        found = _optimise(risk, field.coef, options, rng)
        field = field._replace(coef=found.x)
        curve += list(found.loss_curve if not curve else found.loss_curve[1:])
        rounds.append(len(curve) - 1)
        options.report(rounds, found.fun, risk.potentials.n_leaves)
        if validation is not None:
            held_out.append(field.risk(objective, validation, n_jobs).value(field.coef))
            if len(held_out) > 1 and held_out[-1] >= held_out[-2]:
                field = former
                break
            former = field
        splits = find_splits(risk, field.trees, field.coef, options.max_depths, options.growth, rng)
        if not any(splits):
            break
        field = field.split(splits)
        risk = risk.replaced(field.potentials, field.images(data, n_jobs))
    return Trained(*field, np.array(curve), np.array(rounds), np.array(held_out), found.success, risk.converged)


def _optimise(risk, coef, options, rng):
    """The best parameters of the present leaves."""
    risk.converged = True
    minimize = {"spg": minimize_spg, "pqn": minimize_pqn}[options.solver]
    scaling = LeafScaling(risk, rng)

    # The first leaves have none that they come from.
    is_split = max(risk.potentials.n_leaves) > 1
    pull = Shrinkage(risk, coef, options.shrinkage, rng) if options.shrinkage and is_split else None

    def value_grad(x):
        own = scaling.unscaled(x)
        value, gradient = risk.value_grad(own)
        if pull is not None:
            more, slope = pull.value_grad(own)
            value, gradient = value + more, gradient + slope
        return value, scaling.gradient(gradient)

    found = minimize(
        value_grad,
        scaling.scaled(coef),
        project=lambda x: scaling.project(x, options.growth.bounds),
        max_iter=options.max_iter,
        tol=options.tol,
        # Pixels are computed with in float32.
        precision=4 * np.finfo(np.float32).eps,
    )
    found.x = risk.potentials.project(scaling.unscaled(found.x), options.growth.bounds)
    return found
