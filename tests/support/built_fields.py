"""Field classifiers built from flat options, which are grouped into nested objects such as solvers."""

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier
from sklearn_crf import learning as rules
from sklearn_crf.inference import resolve_inference
from sklearn_crf.learning import LEARNINGS
from sklearn_crf.learning._steps import SteppedLearning
from sklearn_crf.objectives import GibbsGenerator, MapGenerator, MostViolated
from sklearn_crf.potentials import PairwiseTables

_STEPS = ("step_size", "step_schedule", "batch_size")
_INNER = {"inner_max_iter": "max_iter", "inner_tol": "tol"}


def _take(options, *names):
    """Remove the named options, and return them."""
    return {name: options.pop(name) for name in names if name in options}


def _pairwise(options, default):
    tables = _take(options, "forbidden", "edge_types")
    if tables:
        options["pairwise"] = PairwiseTables(options.pop("pairwise", default), **tables)


def _accepted(kind, given):
    """Return an object of a class, made with the options that its constructor accepts."""
    names = kind._get_param_names()
    return kind(**{name: value for name, value in given.items() if name in names})


def trw_crf(C=1.0, **options):
    """Return a TRWCRF with flat options, and full tables by default."""
    given = _take(options, "entropy", "trees", "cost", "temperature", "edge_scale")
    given |= {new: options.pop(old) for old, new in _INNER.items() if old in options}
    learning = options.get("learning", "likelihood")
    if given and learning == "likelihood":
        learning = "relaxation"
    if given and isinstance(learning, str):
        options["learning"] = _accepted(LEARNINGS[learning], given)
    steps = _take(options, *_STEPS)
    if steps:
        options["solver"] = rules.SGD(**steps)
    elif "l1_ratio" in options:
        options["solver"] = rules.LBFGS(options.pop("l1_ratio"))
    _pairwise(options, "full")
    return TRWCRF(C, **{"pairwise": "full"} | options)


def m3n_classifier(C=1.0, **options):
    """Return an M3NClassifier with flat options."""
    given = _take(options, "trees", "cost", "rescaling", "intercept_scaling", "temperature")
    given |= {new: options.pop(old) for old, new in _INNER.items() if old in options}
    learning = options.get("learning", "max_margin")
    if given and isinstance(learning, str):
        options["learning"] = _accepted(LEARNINGS[learning], given)
    _pairwise(options, "auto")
    return M3NClassifier(C, **options)


def drf_classifier(C=1.0, **options):
    """Return a DRFClassifier with flat options."""
    given = _take(options, *_STEPS, "select", "n_cycles", "init")
    if "cd_steps" in options:
        given["n_sweeps"] = options.pop("cd_steps")
    solver = options.get("solver", "auto")
    learning = options.get("learning", "coupled")
    if learning == "coupled":
        decoding = resolve_inference(options.get("inference", "auto"))
        learning = "pma" if decoding.rule == "mpm" else "spa"
    if isinstance(learning, str) and (given or solver != "auto"):
        kind = LEARNINGS[{"pl": "pseudolikelihood"}.get(learning, learning)]
        if issubclass(kind, SteppedLearning) and solver in ("sgd", "gradient"):
            del options["solver"]
            if solver == "sgd":
                given.setdefault("batch_size", 8)
            else:
                given.pop("batch_size", None)
        elif solver in ("gradient", "sgd"):
            make = rules.GradientSteps if solver == "gradient" else rules.SGD
            steps = {"step_schedule": "constant"} | _take(given, *_STEPS, "select", "n_cycles")
            options["solver"] = _accepted(make, steps)
        options["learning"] = _accepted(kind, given)
    _pairwise(options, "auto")
    return DRFClassifier(C, **options)


def contrastive_crf(C=1.0, **options):
    """Return a ContrastiveCRF with flat options."""
    sets = _take(options, "init", "generator", "blocks", "n_new", "generated_weight", "max_rounds", "max_round_iter")
    sets |= {
        new: options.pop(old) for old, new in {"sets": "given", "set_weight": "given_weight"}.items() if old in options
    }
    steps = _take(options, *_STEPS)
    if steps:
        options["solver"] = rules.SGD(**steps)
    generated = _take(options, "cost", "gibbs_sweeps", "generator_inference")
    if generated:
        names = sets.get("generator", "map")
        names = [names] if isinstance(names, str) else names
        sets["generator"] = [_generator(name, **generated) for name in names]
    if sets:
        options["learning"] = rules.ContrastiveTraining(**sets)
    _pairwise(options, "auto")
    return ContrastiveCRF(C, **options)


def _generator(name, cost="hamming", gibbs_sweeps=10, generator_inference=None):
    kind, _, violated = name.partition("_")
    generator = GibbsGenerator(gibbs_sweeps) if kind == "gibbs" else MapGenerator(generator_inference)
    return MostViolated(generator, cost) if violated else generator
