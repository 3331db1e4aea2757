"""Training of regression tree fields: parameters and trees in turn."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.estimators._rtf_growth import GrowthOptions, find_splits
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


def train(objective, types, whitening, data, n_values, options, rng, n_jobs):
    """Optimise all leaves, split them, and so on until the trees are as deep as allowed.

    Parameters
    ----------
    objective : GaussianPseudolikelihood or PredictionLoss
    types : list of FactorType
    whitening : list of ndarray
    data : tuple of (features, graphs, targets, weights)
        Lists, one entry for each image.
    n_values : int
    options : TrainingOptions
    rng : RandomState
    n_jobs : int or None

    Returns
    -------
    Trained
    """
    features, graphs, targets, weights = data
    trees = [RegressionTree.stump() for _ in types]
    potentials = RegressionTreePotentials(types, [1] * len(types), whitening, n_values)
    images = _images(features, graphs, types, trees, n_jobs)
    risk = FieldRisk(objective, potentials, images, targets, weights, n_jobs)
    coef = potentials.project(potentials.start(), options.growth.bounds)
    curve, rounds = [], []
    while True:
        found = _optimise(risk, coef, options)
        coef = found.x
        curve += list(found.loss_curve if not curve else found.loss_curve[1:])
        rounds.append(len(curve) - 1)
        options.report(rounds, found.fun, risk.potentials.n_leaves)
        splits = find_splits(risk, trees, coef, options.max_depths, options.growth, rng)
        if not any(splits):
            break
        grown = [tree.split(own) for tree, own in zip(trees, splits, strict=True)]
        trees = [tree for tree, _ in grown]
        potentials, coef = risk.potentials.grown(coef, [parent for _, parent in grown], [t.n_leaves for t in trees])
        risk = risk.replaced(potentials, _images(features, graphs, types, trees, n_jobs))
    return Trained(trees, risk.potentials, coef, np.array(curve), np.array(rounds), found.success, risk.converged)


def _images(features, graphs, types, trees, n_jobs):
    pairs = list(zip(features, graphs, strict=True))
    return map_tasks(lambda pair, n_threads: FieldImage.of(*pair, types, trees, n_threads), pairs, n_jobs)


def _optimise(risk, coef, options):
    """The best parameters of the present leaves.

    The curvature by the parameters of a leaf is in proportion to its share of the factors, so that they are multiplied
    by the root of it. One number for all of a precision, this keeps projections what they are.
    """
    risk.converged = True
    minimize = {"spg": minimize_spg, "pqn": minimize_pqn}[options.solver]
    scale = np.sqrt(risk.potentials.spread(risk.shares()))

    def value_grad(x):
        value, gradient = risk.value_grad(x / scale)
        return value, gradient / scale

    found = minimize(
        value_grad,
        coef * scale,
        project=lambda x: scale * risk.potentials.project(x / scale, options.growth.bounds),
        max_iter=options.max_iter,
        tol=options.tol,
        # Pixels are computed with in float32.
        precision=4 * np.finfo(np.float32).eps,
    )
    found.x = risk.potentials.project(found.x / scale, options.growth.bounds)
    return found
