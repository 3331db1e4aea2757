"""Calls of public functions and methods that take labels of a model, as functions of the labels only."""

import numpy as np

from sklearn_crf import Graph, models, objectives
from sklearn_crf.inference import (
    ICM,
    AlphaBetaSwap,
    AlphaExpansion,
    DenseMeanField,
    GibbsSampler,
    JunctionTree,
    LargeNeighborhoodSearch,
    LinearProgram,
    LoopyBP,
    MeanField,
    TreeInference,
    TRWMessagePassing,
    compute_conditional_scores,
    fuse_labelings,
    gibbs_sweeps,
)
from sklearn_crf.inference.messages._fixed_sweeps import FixedSweeps

GRAPH = Graph(4, [[0, 1], [1, 2], [2, 3]])
MODEL = models.PairwiseModel(GRAPH, np.arange(8.0).reshape(4, 2) / 7, np.eye(2)[np.newaxis])
FACTORS = models.factor_graph_of(MODEL)
DENSE = models.DenseModel(MODEL.unary, [models.PermutohedralFilter(np.arange(4.0)[:, np.newaxis])], [1.0])
RIGHT = np.array([0, 1, 1, 0], dtype=np.int32)
COST = 1.0 - np.eye(2)

MARGINALS = TreeInference().marginals(MODEL)


def excess(labels):
    found = models.compute_label_excess(MODEL, labels, MARGINALS.statistics, MARGINALS.log_z_terms)
    if found is None:
        raise ValueError("a label is not a state")
    return found


def sets():
    return objectives.AssignmentSets(MODEL, RIGHT)


# Invalid labels
WRONG = {
    "short": np.zeros(2, dtype=np.int32),
    "empty": np.zeros(0, dtype=np.int32),
    "an empty list": [],
    "long": np.zeros(5000, dtype=np.int32),
    "one": np.zeros(1, dtype=np.int32),
    "a number": 0,
    "of two axes": np.zeros((4, 1), dtype=int),
    "huge": np.full(4, 2**31 - 1),
    "beyond": np.full(4, 2),
    "of 64 bits": np.full(4, 2**40),
    "unsigned": np.full(4, 2**64 - 1, dtype=np.uint64),
    "real": np.zeros(4),
    "NaN": np.full(4, np.nan),
    "text": "ab",
    "objects": np.array(["a"] * 4, dtype=object),
}
# Labels that are invalid if no label may be missing
NEGATIVE = {"negative": np.full(4, -1), "very negative": np.full(4, -(2**31))}

CALLS = {
    **{
        f"{function.__name__} of {name}": lambda labels, function=function, model=model: function(model, labels)
        for function in (models.score, models.compute_score_terms, models.check_labels)
        for name, model in (("pairwise", MODEL), ("factors", FACTORS), ("dense", DENSE))
    },
    **{
        f"{function.__name__} of {name}": lambda labels, function=function, model=model: function(model, labels)
        for function in (models.compute_labeling_statistics, models.clamped)
        for name, model in (("pairwise", MODEL), ("factors", FACTORS))
    },
    "compute_labeling_difference": lambda labels: models.compute_labeling_difference(MODEL, labels, RIGHT),
    "compute_labeling_difference, others": lambda labels: models.compute_labeling_difference(MODEL, RIGHT, labels),
    "compute_label_excess": excess,
    "count_pair_states": lambda labels: models.count_pair_states(MODEL, labels, [0, 1, 1], 2),
    "loss_augmented": lambda labels: objectives.loss_augmented(MODEL, labels, COST),
    "loss_augmented of factors": lambda labels: objectives.loss_augmented(FACTORS, labels, COST),
    "compute_conditional_scores": lambda labels: compute_conditional_scores(MODEL, labels),
    "gibbs_sweeps": lambda labels: gibbs_sweeps(MODEL, labels, 2, 0),
    "fuse_labelings": lambda labels: fuse_labelings(MODEL, [RIGHT, labels]),
    "AssignmentSets": lambda labels: objectives.AssignmentSets(MODEL, labels),
    "AssignmentSets.extend": lambda labels: sets().extend(MODEL, labels),
    "AssignmentSets.add_set": lambda labels: sets().add_set(MODEL, [RIGHT, labels]),
    "MapGenerator": lambda labels: objectives.MostViolated(objectives.MapGenerator(TreeInference()), COST)(
        MODEL, labels, np.random.RandomState(0)
    ),
    "GibbsGenerator": lambda labels: objectives.GibbsGenerator(2)(MODEL, labels, np.random.RandomState(0)),
    "GibbsGenerator, start": lambda labels: objectives.GibbsGenerator(2, persistent=True)(
        MODEL, RIGHT, np.random.RandomState(0), start=labels
    ),
    "most_violated": lambda labels: objectives.StructuredHinge(TreeInference(), COST).most_violated(MODEL, labels),
    "slack most_violated": lambda labels: objectives.SlackRescaledHinge(TreeInference(), COST).most_violated(
        MODEL, labels
    ),
    "worst_statistics": lambda labels: objectives.RelaxedHinge(LinearProgram(), COST).worst_statistics(MODEL, labels),
}
OBJECTIVES = [
    objectives.Likelihood(TreeInference()),
    objectives.Likelihood(JunctionTree()),
    objectives.Likelihood(LoopyBP()),
    objectives.RelaxedLikelihood(TRWMessagePassing()),
    objectives.SaddlePoint(TreeInference()),
    objectives.MaximumMarginal(TreeInference()),
    objectives.ContrastiveDivergence(),
    objectives.Pseudolikelihood(),
    objectives.Piecewise(),
    objectives.SharedPieces(),
    objectives.TruncatedLoss(FixedSweeps()),
    objectives.BlockLikelihood(GRAPH, [[0, 1], [2, 3]]),
    objectives.StructuredHinge(TreeInference(), COST),
    objectives.SlackRescaledHinge(TreeInference(), COST),
    objectives.RelaxedHinge(LinearProgram(), COST),
    objectives.SoftmaxMargin(objectives.Likelihood(TreeInference()), COST, 0.5),
    objectives.ContrastiveSets(sets()),
]
for objective in OBJECTIVES:
    inner = getattr(objective, "inference", None) or getattr(objective, "likelihood", None)
    key = f"{type(objective).__name__} {type(inner).__name__ if inner is not None else ''}".strip()
    CALLS[key] = lambda labels, objective=objective: objective.loss_statistics(MODEL, labels)
FACTOR_OBJECTIVES = [
    objectives.Likelihood(JunctionTree()),
    objectives.SaddlePoint(JunctionTree()),
    objectives.MaximumMarginal(JunctionTree()),
    objectives.Pseudolikelihood(),
    objectives.Piecewise(),
    objectives.StructuredHinge(JunctionTree(), COST),
]
for objective in FACTOR_OBJECTIVES:
    CALLS[f"{type(objective).__name__} of factors"] = lambda labels, objective=objective: objective.loss_statistics(
        FACTORS, labels
    )
for algorithm in (ICM(), AlphaExpansion(), AlphaBetaSwap(), LargeNeighborhoodSearch()):
    CALLS[f"{type(algorithm).__name__}.map, init"] = lambda labels, algorithm=algorithm: algorithm.map(
        MODEL, init=labels
    )
for algorithm, model in ((MeanField(), MODEL), (GibbsSampler(n_sweeps=10), MODEL), (DenseMeanField(), DENSE)):
    CALLS[f"{type(algorithm).__name__}.marginals, init"] = lambda labels, algorithm=algorithm, model=model: (
        algorithm.marginals(model, init=labels)
    )

# Calls that accept negative labels for unlabelled nodes
MAY_MISS = {
    name
    for name in CALLS
    if name.startswith(
        (
            "clamped",
            "loss_augmented",
            "most_violated",
            "MapGenerator",
            "Likelihood",
            "RelaxedLikelihood",
            "SaddlePoint",
            "MaximumMarginal",
            "ContrastiveDivergence",
            "SoftmaxMargin",
            "Piecewise",
            "SharedPieces",
            "Pseudolikelihood",
            "TruncatedLoss",
            "StructuredHinge",
            "SlackRescaledHinge",
            "RelaxedHinge",
            "ContrastiveSets",
        )
    )
}
