"""Valid arguments of public functions and methods, by name of the call, and the functions that are left out."""

import numpy as np
from labelled_calls import CALLS as LABELLED
from labelled_calls import DENSE, MODEL, RIGHT

from sklearn_crf import (
    TRWCRF,
    DenseCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    RegressionTreeField,
    Spatial,
    calibration,
    inference,
    inspection,
    large_images,
    marginals,
    metrics,
    mfa,
    model_selection,
    models,
    multilabel,
    objectives,
    refine,
    restore,
    rtf,
    solve,
)
from sklearn_crf.display import FieldDisplay
from sklearn_crf.inference import GaussianInference, Inference
from sklearn_crf.learning import MaxMargin
from sklearn_crf.preprocessing import group_rows, node_weights, ungroup_rows

RNG = np.random.default_rng(0)
GAUSSIAN = models.GaussianModel(MODEL.graph, np.zeros((4, 1)), np.full((4, 1, 1), 4.0), np.ones((1, 1, 1)))
Y = RNG.integers(2, size=(6, 3, 3))
X = Y[..., np.newaxis] + 0.3 * RNG.normal(size=(6, 3, 3, 1))
ROWS, CLASSES = RNG.normal(size=(20, 2)), np.arange(20) % 2
FIELD = DRFClassifier(learning="pl", tol=1.0).fit(X, Y)
CHAINS = TRWCRF(tol=1.0).fit(X[:, 0], Y[:, 0])
TAGS = [["B-A", "I-A", "O"], ["O", "B-A"]]
PREDICTION, TARGET = RNG.random((12, 12)), RNG.random((12, 12))


def few(n_samples):
    """Return the number of samples, at most 1000. More samples are valid but take long."""
    return min(n_samples, 1000) if isinstance(n_samples, int) else n_samples


# Functions, and their valid arguments, which fuzzers alter
CALLS = {
    "solve": (solve, {"unary": np.zeros((3, 3, 2)), "pairwise": np.eye(2), "edge_weight": np.ones(12)}),
    "marginals": (marginals, {"unary": np.zeros((3, 3, 2)), "pairwise": np.eye(2), "edge_weight": np.ones(12)}),
    "solve on edges": (solve, {"unary": MODEL.unary, "pairwise": np.eye(2), "edges": MODEL.graph.edges}),
    "restore": (restore, {"image": np.zeros((8, 8, 3), dtype=np.uint8), "mask": np.eye(8, dtype=bool)}),
    "refine": (refine, {"probabilities": np.full((4, 4, 2), 0.5), "image": np.zeros((4, 4, 3), dtype=np.uint8)}),
    "node_weights": (node_weights, {"y": Y, "boundary": 1.0, "distance": 2, "f1": 0.5, "positive": 1}),
    "numbers_of_states": (models.numbers_of_states, {"states": np.array([[0, 2], [1, 0]]), "shape": (2, 3)}),
    "PermutohedralFilter": (models.PermutohedralFilter, {"features": RNG.normal(size=(6, 2))}),
    "DenseModel": (models.DenseModel, {"unary": DENSE.unary, "filters": DENSE.filters, "compatibility": [1.0]}),
    "BlockLikelihood": (
        lambda blocks: objectives.BlockLikelihood(MODEL.graph, blocks).loss_statistics(MODEL, RIGHT),
        {"blocks": [np.array([0, 1]), np.array([2, 3])]},
    ),
    "AssignmentSets": (
        objectives.AssignmentSets,
        {"model": MODEL, "labels": RIGHT, "node_ptr": np.array([0, 2, 4]), "generated_weight": np.ones(2)},
    ),
    "AssignmentSets.add_set": (
        lambda **options: objectives.AssignmentSets(MODEL, RIGHT).add_set(MODEL, **options),
        {"labelings": np.array([RIGHT, 1 - RIGHT]), "member": 0, "weight": 1.0, "log_proposal": np.zeros(2)},
    ),
    "loss_and_gradient": (objectives.loss_and_gradient, {"model": MODEL, "labels": RIGHT}),
    "node_f1_score": (metrics.node_f1_score, {"y_true": Y, "y_pred": Y, "sample_weight": np.ones(6)}),
    "node_jaccard_score": (metrics.node_jaccard_score, {"y_true": Y, "y_pred": Y}),
    "node_log_likelihood_score": (
        metrics.node_log_likelihood_score,
        {"y_true": Y, "y_proba": np.full((6, 3, 3, 2), 0.5), "labels": np.arange(2)},
    ),
    "node_classification_report": (metrics.node_classification_report, {"y_true": Y, "y_pred": Y}),
    "entities": (metrics.entities, {"labels": TAGS[0]}),
    "entity_labels": (metrics.entity_labels, {"found": metrics.entities(TAGS[0]), "n_tokens": 3}),
    "entity_scores": (metrics.entity_scores, {"y_true": TAGS, "y_pred": TAGS}),
    "entity_f1_score": (metrics.entity_f1_score, {"y_true": TAGS, "y_pred": TAGS}),
    "sequence_classification_report": (metrics.sequence_classification_report, {"y_true": TAGS, "y_pred": TAGS}),
    "chow_liu_edges": (multilabel.chow_liu_edges, {"Y": RNG.integers(2, size=(8, 3))}),
    "group_rows": (group_rows, {"rows": ROWS, "groups": np.repeat(np.arange(5), 4)}),
    "ungroup_rows": (ungroup_rows, {"parts": [ROWS[:4], ROWS[4:]], "groups": np.repeat([0, 1], [4, 16])}),
    "top_features": (lambda k: inspection.top_features(CHAINS, k), {"k": 2}),
    "top_transitions": (lambda k: inspection.top_transitions(CHAINS, k), {"k": 2}),
    "predict_in_tiles": (
        lambda image: large_images.predict_in_tiles(FIELD, image, tile=8, margin=2, max_margin=4),
        {"image": np.zeros((20, 20, 1))},
    ),
    "FieldDisplay": (FieldDisplay, {"y_pred": Y[0], "y_true": Y[0], "proba": np.full((3, 3, 2), 0.5)}),
    "alpha_path": (
        lambda **data: mfa.alpha_path(MultiConditionalMFA(1, 1, max_iter=2, random_state=0), alphas=[0.1], **data),
        {"X": ROWS, "y": CLASSES},
    ),
    "StratifiedLatticeKFold": (
        lambda **data: list(model_selection.StratifiedLatticeKFold(2).split(**data)),
        {"X": X, "y": Y},
    ),
    "cross_val_predict": (
        lambda **data: model_selection.cross_val_predict(DRFClassifier(learning="pl", max_iter=2), cv=2, **data),
        {"X": X, "y": Y},
    ),
    "TemperatureScaling": (
        lambda **data: calibration.TemperatureScaling(DRFClassifier(learning="pl", max_iter=2), cv=2).fit(**data),
        {"X": X, "y": Y},
    ),
    "evidence": (FIELD.predict, {"X": X, "evidence": np.where(Y == 1, 1.0, np.nan)}),
    "evidence of probabilities": (FIELD.predict_proba, {"X": X, "evidence": np.where(Y == 1, 1.0, np.nan)}),
    "predict_topk": (CHAINS.predict_topk, {"X": X[:, 0], "k": 2}),
    "log_likelihood": (CHAINS.log_likelihood, {"X": X[:, 0], "y": Y[:, 0]}),
    "sample": (FIELD.sample, {"X": X, "n_samples": 2}),
    "score": (FIELD.score, {"X": X, "y": Y, "sample_weight": np.ones(6)}),
    "fit": (
        lambda **data: DRFClassifier(learning="pl", max_iter=2).fit(**data),
        {"X": X, "y": Y, "sample_weight": np.ones(6), "node_weight": np.ones((6, 3, 3))},
    ),
    "fit with costs": (
        lambda cost: M3NClassifier(learning=MaxMargin(cost=cost), max_iter=2).fit(X, Y),
        {"cost": 1.0 - np.eye(2)},
    ),
    "fit of a dense field": (
        lambda **data: DenseCRF((Spatial(1.0),), image_channels=0, max_iter=2).fit(**data),
        {"X": np.concatenate([X, -X], axis=-1), "y": Y},
    ),
    "fit of a tree field": (
        lambda **data: RegressionTreeField(max_depth=0, max_iter=2, filter_bank=None).fit(**data),
        {"X": X, "y": Y.astype(float)},
    ),
    **{
        name: (getattr(rtf.losses, name), {"prediction": PREDICTION, "target": TARGET})
        for name in ("mse", "mae", "psnr", "ssim", "iw_ssim")
    },
    "logistic": (rtf.losses.logistic, {"prediction": PREDICTION, "target": np.sign(TARGET - 0.5)}),
    "multinomial": (
        rtf.losses.multinomial,
        {"prediction": PREDICTION, "target": np.zeros(12, dtype=int), "weight": np.ones(12)},
    ),
    "fuse_labelings": (inference.fuse_labelings, {"model": MODEL, "labelings": [RIGHT, 1 - RIGHT]}),
}
for algorithm in (getattr(inference, name) for name in inference.__all__):
    if not (isinstance(algorithm, type) and issubclass(algorithm, Inference) and algorithm.tasks):
        continue
    model = {models.GaussianModel: GAUSSIAN, models.DenseModel: DENSE}.get(algorithm.takes[0], MODEL)
    for task in sorted(algorithm.tasks & {"map", "marginals"}):
        run = getattr(algorithm(), task)
        CALLS[f"{algorithm.__name__}.{task}"] = (
            lambda run=run, model=model, **options: run(model, **options),
            {"init": run(model).state},
        )
    if "sample" in algorithm.tasks:
        CALLS[f"{algorithm.__name__}.sample"] = (
            lambda n_samples, algorithm=algorithm, model=model: algorithm().sample(model, n_samples=few(n_samples)),
            {"n_samples": 2},
        )
    if issubclass(algorithm, GaussianInference) and algorithm is not inference.GaussianGibbs:
        CALLS[f"{algorithm.__name__}.solve"] = (
            lambda algorithm=algorithm, **options: algorithm().solve(GAUSSIAN, **options),
            {"right_hand_side": np.zeros((4, 1)), "init": np.zeros((4, 1))},
        )
for name, labelled in LABELLED.items():
    CALLS[f"labels of {name}"] = (lambda labels, labelled=labelled: labelled(labels), {"labels": RIGHT})

# Functions that are left out: the test that alters their arguments, or the type of their arguments
ELSEWHERE = {
    "read_conll": "test_fuzz_files",
    "read_evidence": "test_fuzz_files",
    "read_fg": "test_fuzz_files",
    "read_labeling": "test_fuzz_files",
    "read_marginals": "test_fuzz_files",
    "read_uai": "test_fuzz_files",
    "write_conll": "takes texts",
    "write_fg": "takes models",
    "write_uai": "takes models",
    "make_binary_shapes": "takes nothing",
    "make_noisy_digits": "takes names and numbers",
    "show_versions": "takes nothing",
    "convergence_left_to_caller": "takes nothing",
    "exact_inference": "takes models",
    "factor_graph_of": "takes models",
    "pairwise_model_of": "takes models",
    "snakes": "takes graphs",
    "resolve_inference": "takes names",
    "register_edge_features": "takes functions",
    "make_pipeline": "takes estimators",
    "make_node_scorer": "takes functions",
    "coupling_audit": "cross_val_predict",
    "refinement_report": "fit of a dense field",
    "at_least_one": "takes a state",
    "at_most_one": "takes a state",
    "exactly_one": "takes a state",
    # Solvers in Python that call functions of the user
    "bmrm": "optimize",
    "cutting_plane": "optimize",
    "frank_wolfe": "optimize",
    "minimize_owlqn": "optimize",
    "one_slack": "optimize",
    "subgradient": "optimize",
    "minimize_lbfgs": "optimize",
    "minimize_pqn": "optimize",
    "minimize_sgd": "optimize",
    "minimize_spg": "optimize",
    "exponentiated_gradient": "optimize",
    "gradient_ascent": "optimize",
    "adagrad_steps": "optimize",
    "scaling_by_differences": "optimize",
}
