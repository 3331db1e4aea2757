"""Online training: one pass of stochastic steps over each new set of examples."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import RandomState

from sklearn_crf.learning._training import compute_penalty_factors
from sklearn_crf.objectives import EmpiricalRisk
from sklearn_crf.optimize import AdaGradState, adagrad_steps

#: Number of examples for one step of online training.
ONLINE_BATCH_SIZE = 8

# Length of the first step of each weight.
_STEP_SIZE = 0.3


def make_online_pass(
    risk: EmpiricalRisk,
    former: dict | None,
    start: np.ndarray,
    *,
    before_step: Callable[[EmpiricalRisk, np.ndarray, Sequence[int]], None],
    C: float | None,
    edge_C: float | None,
    n_together: int,
    rng: RandomState,
    project: Callable[[np.ndarray], np.ndarray] | None = None,
) -> dict:
    r"""Make one stochastic step for each mini-batch of examples, in random order.

    .. math:: g_t = \frac{1}{N_B} \nabla R_B(w_t) + \frac{1}{C N} \lambda w_t

    with B the mini-batch, :math:`N_B` its number of labelled nodes and N the number of all labelled nodes seen so far.
    :math:`g_t` estimates the gradient per node of the objective on all examples seen so far.
    """
    # risk: EmpiricalRisk of the new examples
    # former: result of the previous pass, or None before the first pass
    # start: (n_coef,), weights before the first step
    # before_step: function that prepares the mini-batch of a step
    # C: inverse penalty strength, None for no penalty; edge_C: inverse penalty strength for edge weights, None to use C
    # n_together: number of batches that are combined for one step; rng: RandomState that draws the order
    # project: projection of weights onto the allowed set, or None
    # returns dict of arrays and numbers; ``average`` holds the weights for prediction
    # The state for the next pass is in ``x``, ``squares``, ``n_steps`` and ``n_nodes``.
    if former is None:
        former = {**AdaGradState.at(start)._asdict(), "n_nodes": 0.0}
    n_nodes = former["n_nodes"] + risk.n_labelled
    penalty = np.zeros(len(start)) if C is None else compute_penalty_factors(risk.potentials, C, edge_C) / (C * n_nodes)

    def gradient(members, coef):
        n_labelled = risk.compute_labelled_share(members) * risk.n_labelled
        if not n_labelled:
            return np.zeros(len(coef))
        before_step(risk, coef, members)
        return risk.value_grad(coef, members).gradient / n_labelled + penalty * coef

    order = rng.permutation(len(risk.batches))
    members = [order[first : first + n_together] for first in range(0, len(order), n_together)]
    state = AdaGradState(*(former[name] for name in AdaGradState._fields))
    found = adagrad_steps(gradient, state, members, step_size=_STEP_SIZE, project=project)
    return {**found._asdict(), "n_nodes": n_nodes}
