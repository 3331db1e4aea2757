"""What each estimator offers, read from the classes, and why something is missing where it is."""

import inspect

import sklearn_crf
from sklearn_crf.learning import LEARNINGS, ErrorCost

METHODS = [
    "predict_proba",
    "predict_log_proba",
    "predict_edge_proba",
    "predict_topk",
    "log_likelihood",
    "sample",
    "certify",
    "models",
    "energy",
    "decision_function",
    "partial_fit",
]
PREDICTIONS = [
    "predict",
    "predict_proba",
    "predict_edge_proba",
    "predict_topk",
    "sample",
    "certify",
    "decision_function",
]
ARGUMENTS = [f"{method}.{name}" for name in ("evidence", "inference") for method in PREDICTIONS]
ARGUMENTS += ["models.evidence", "fit.sample_weight", "fit.node_weight"]
OPTIONS = ["missing_label", "class_weight", "cost", "warm_start", "early_stopping", "classes"]
ROWS = [*METHODS, *ARGUMENTS, *OPTIONS]

_VALUES = "it predicts values, which have no classes: the field of all values is in ``models``"
_NO_LABELING = "it predicts by the mean of a Gaussian field, which is the exact solution of a linear system"
_SOLUTION = "the mean is the same by every algorithm: ``inference`` of the constructor says how it is computed"
_NO_PAIRS = (
    "it joins all pairs of pixels, for which mean field alone is affordable: it has marginals of single pixels only"
)
_ROWS = "its samples have no neighbours: all that is asked of a sample is in its class probabilities"
_SPLITS = (
    "a split is chosen among all pixels of its leaf, and those of former parts are gone: ``Shards`` hold more than "
    "memory does, and ``warm_start`` grows the trees on new images"
)
_WRAPPED = "ask ``estimator_``, the field with a node for each label, for it"
_MARGIN = "its weights are those of a margin, and no distribution over labelings belongs to them"
_TREE_LOSS = "its losses are means over the pixels of an image: ``sample_weight`` weighs images, NaN leaves out pixels"
_STEPS = "it is a fixed number of steps, and no distribution belongs to them"
_EXACT_LIST = "one exact algorithm lists the best labelings"

# Why an estimator lacks a method, an argument of a method that it has, or a parameter of its constructor.
WHY_NOT = {
    "ContrastiveCRF": {"early_stopping": "an option of its learning, as for all ways to learn that have it"},
    "DRFClassifier": {"early_stopping": "an option of its learning, as for all ways to learn that have it"},
    "TRWCRF": {"early_stopping": "an option of its learning, as for all ways to learn that have it"},
    "M3NClassifier": {
        **dict.fromkeys(
            ["predict_proba", "predict_log_proba", "predict_edge_proba", "log_likelihood", "sample"], _MARGIN
        ),
        "early_stopping": "an option of its learning, as for all ways to learn that have it",
    },
    "DenseCRF": {
        **dict.fromkeys(
            ["predict_edge_proba", "predict_topk", "log_likelihood", "sample", "certify", "energy"], _NO_PAIRS
        ),
        "decision_function": _NO_PAIRS,
        "partial_fit": "``warm_start`` goes on from the last weights: one step costs what an iteration of ``fit`` does",
        "fit.node_weight": "pixels are left out by ``missing_label`` and weighed by ``class_weight``",
        "cost": "its loss is chosen by ``learning``, such as the expected intersection over union",
        "early_stopping": "its few weights are minimised to their optimum under the penalty C",
    },
    "MultiConditionalMFA": {
        **dict.fromkeys(
            ["predict_edge_proba", "predict_topk", "certify", "models", "energy", "decision_function"], _ROWS
        ),
        "log_likelihood": "``score_samples`` and ``joint_log_likelihood`` give the density of a sample",
        "predict.evidence": "its samples have no neighbours that known labels could tell something about",
        "predict_proba.evidence": "its samples have no neighbours that known labels could tell something about",
        "sample.evidence": "it draws samples with their classes, given nothing",
        "predict.inference": "sums over components are exact",
        "predict_proba.inference": "sums over components are exact",
        "sample.inference": "it draws samples exactly",
        "fit.node_weight": "``sample_weight`` is the same: each sample is one node",
        "missing_label": "leave out samples without a label; missing features are integrated out (``allow_nan``)",
        "cost": "multiply ``predict_proba`` by the costs: the class of each sample is a decision of its own",
        "early_stopping": "``alpha`` and ``priors`` regularise it",
    },
    "MultiLabelField": {
        **dict.fromkeys(
            [
                "predict_log_proba",
                "predict_edge_proba",
                "predict_topk",
                "log_likelihood",
                "sample",
                "certify",
                "energy",
                "decision_function",
            ],
            _WRAPPED,
        ),
        "partial_fit": "which labels depend on each other is found from all rows together",
        "fit.node_weight": "a row counts as a whole: ``sample_weight``",
        **dict.fromkeys(
            ["class_weight", "cost", "warm_start", "early_stopping"],
            "a parameter of ``estimator``, the field",
        ),
        "missing_label": "NaN, None or, among zeros and ones, -1 in y marks an unknown label",
        "classes": "each label is there or not",
    },
    "LearnedFilters": {
        **dict.fromkeys([*METHODS, "predict.evidence", "predict.inference"], _STEPS),
        **dict.fromkeys(
            ["partial_fit", "warm_start"],
            "its steps become shorter from the first to the last, whose number is ``max_iter``",
        ),
        "fit.sample_weight": "crops are drawn from all images alike: images given twice are drawn twice as often",
        "fit.node_weight": "its loss is the mean over the pixels of crops",
        "missing_label": "missing pixels need a ``RegressionTreeField``",
        **dict.fromkeys(["class_weight", "cost", "classes"], "it predicts values, which have no classes"),
        "early_stopping": "it keeps the parameters that are best on images held out, ``validation_fraction``",
    },
    "RegressionTreeField": {
        **dict.fromkeys(
            [
                "predict_proba",
                "predict_log_proba",
                "predict_edge_proba",
                "predict_topk",
                "log_likelihood",
                "energy",
                "decision_function",
            ],
            _VALUES,
        ),
        "sample": 'by default its loss is of predictions; ``loss="pseudolikelihood"`` gives a distribution',
        "certify": _NO_LABELING,
        "partial_fit": _SPLITS,
        "predict.inference": _SOLUTION,
        "fit.node_weight": _TREE_LOSS,
        "missing_label": "NaN says that a value is missing",
        **dict.fromkeys(["class_weight", "cost", "classes"], "it predicts values, which have no classes"),
        "early_stopping": "an option of its solver, ``FieldSolver(early_stopping=...)``",
    },
    "RegressionTreeFieldClassifier": {
        **dict.fromkeys(["certify", "energy", "decision_function"], _NO_LABELING),
        "partial_fit": _SPLITS,
        **dict.fromkeys(["predict.inference", "predict_proba.inference", "predict_edge_proba.inference"], _SOLUTION),
        "sample.inference": _SOLUTION,
        "fit.node_weight": _TREE_LOSS,
        "early_stopping": "an option of its solver, ``FieldSolver(early_stopping=...)``",
    },
}
# Why a learning method has no costs, or only costs of nodes.
WHY_NO_COSTS = {
    "spa": "the loss of ``max_margin`` is this loss with costs",
    **dict.fromkeys(["mma", "cd"], "its steps follow no loss to which a cost could be added"),
    "contrastive": "its sets of labelings take the place of costs: ``MostViolated`` adds labelings by their costs",
}
for reasons in WHY_NOT.values():
    if "predict_topk" not in reasons:
        reasons["predict_topk.inference"] = _EXACT_LIST


def estimators():
    """Return the estimators of the package, sorted by name."""
    kinds = [getattr(sklearn_crf, name) for name in sorted(sklearn_crf.__all__)]
    return [kind for kind in kinds if inspect.isclass(kind) and hasattr(kind, "fit")]


def offers(kind, name):
    """Return whether a class has a method, an argument of one of its methods, or a parameter of its constructor."""
    if name in METHODS:
        # Methods that some estimators lack are seen to be missing on an object only.
        return hasattr(kind(), name)
    method, _, argument = name.rpartition(".")
    if method and not hasattr(kind(), method):
        return False
    function = getattr(kind, method or "__init__", None)
    return function is not None and argument in inspect.signature(function).parameters


def reason(kind, name):
    """Return why a class lacks something: of an argument, why it lacks the method."""
    reasons = WHY_NOT[kind.__name__]
    method = name.rpartition(".")[0]
    return reasons.get(name) or reasons.get(method)


def capability_rows():
    """Return the table of estimators by what they offer."""
    kinds = estimators()
    rows = [["", *(f":class:`~sklearn_crf.{kind.__name__}`" for kind in kinds)]]
    rows += [[f"``{name}``", *("yes" if offers(kind, name) else "" for kind in kinds)] for name in ROWS]
    return rows


def reason_rows():
    """Return the table of reasons: each once for an estimator, with all that it is the reason of."""
    rows = [["estimator", "lacks", "since"]]
    for kind in estimators():
        of_reason = {}
        for name in ROWS:
            if not offers(kind, name) and name in WHY_NOT[kind.__name__]:
                of_reason.setdefault(reason(kind, name), []).append(f"``{name}``")
        rows += [[f":class:`~sklearn_crf.{kind.__name__}`", ", ".join(own), why] for why, own in of_reason.items()]
    return rows


def costs_of(kind):
    """Return the parts of a model whose errors have costs in a learning method."""
    accepted = kind._parameter_constraints.get("cost", [])
    nodes = ["nodes"] if "array-like" in accepted else []
    return ["nodes", "edges", "factors"] if ErrorCost in accepted else nodes


def cost_rows():
    """Return the table of learning methods without costs of edges and factors, and the reasons."""
    lacking = [(name, costs_of(kind)) for name, kind in LEARNINGS.items() if name in WHY_NO_COSTS]
    return [
        ["learning", "costs of", "reason"],
        *([f'``"{name}"``', ", ".join(own) or "nothing", WHY_NO_COSTS[name]] for name, own in lacking),
    ]
