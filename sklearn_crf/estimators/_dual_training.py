"""Training in the dual, where the marginals of examples are the unknowns."""

from sklearn_crf._callbacks import progress_reporter
from sklearn_crf.estimators._training import Outcome, PenalisedRisk, warn_unconverged
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.objectives import DualBlock
from sklearn_crf.optimize import exponentiated_gradient


def train_dual(risk, start, options, rng, on_iteration):
    """Minimise a risk of relaxed likelihoods by exponentiated gradient on its dual.

    Parameters
    ----------
    risk : EmpiricalRisk
    start : ndarray of shape (n_coef,)
        Weights whose marginals are the first.
    options : TrainingOptions
    rng : RandomState
        For the order of the examples.
    on_iteration : callable(coef) -> bool
        Called after every epoch; True asks to stop.

    Returns
    -------
    Outcome
    """
    problem = PenalisedRisk(risk, options.C, options.max_iter)
    weights = [1.0 if batch.weight is None else batch.weight[0] for batch in risk.batches]
    # Examples of weight zero have no say, and no dual variables.
    blocks = [DualBlock(risk, i, options.C * weight, start) for i, weight in enumerate(weights) if weight > 0]
    with progress_reporter(options.verbose, options.max_iter, "dual") as show, convergence_left_to_caller():

        def callback(point):
            problem.record(point.x)
            show(problem.trace)
            return on_iteration(point.x)

        found = exponentiated_gradient(
            blocks,
            problem.evaluate,
            temperature=risk.objective.temperature,
            max_iter=options.max_iter,
            tol=options.tol,
            random_state=rng,
            callback=callback,
        )
    trace = problem.trace
    if not trace.inference_converged:
        warn_unconverged(
            "The inner problem did not converge, so the dual is not quite concave: increase inner_max_iter", problem
        )
    elif not found.success:
        warn_unconverged("Steps in the dual did not converge: increase max_iter, or decrease C", problem)
    return Outcome(found.x, trace, len(trace.loss))
