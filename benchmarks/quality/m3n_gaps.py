"""Random problems of M3NClassifier with inexact inference: check losses against duals, and gaps against warnings.

    python benchmarks/quality/m3n_gaps.py [--problems 200] [--seed 0]

Each problem has four small grids with random labels, which no weights can fit. All solvers are combined with
inferences that are not exact on grids, and with the linear program by AD3 and IncMP. Two counts must be zero: reported
losses below the dual value, which is a lower bound, and gaps above ``tol`` times the loss without a warning.
"""

import argparse
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import M3NClassifier

SOLVERS = "cutting_plane", "one_slack", "frank_wolfe", "bmrm", "subgradient"
INFERENCES = "icm", "max_product", "alpha_expansion", "auto", "trws"


def problem(seed):
    """Return images, random labels that features do not explain, and an estimator."""
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(2, 5))
    shape = rng.integers(2, 6, 2)
    X, y = rng.normal(size=(4, *shape, 2)), rng.integers(n_classes, size=(4, *shape))
    y.flat[:n_classes] = range(n_classes)
    options = {
        "solver": str(rng.choice(SOLVERS)),
        "inference": str(rng.choice(INFERENCES)),
        "pairwise": str(rng.choice(["full", "potts"])),
        "C": float(rng.choice([0.1, 1, 10])),
        "max_iter": int(rng.choice([10, 60])),
        "tol": float(rng.choice([1e-3, 1e-2, 1e-1])),
    }
    if rng.random() < 0.2:
        options |= {"learning": "relaxed_margin", "inference": str(rng.choice(["ad3", "incmp"]))}
    return X, y, M3NClassifier(**options, random_state=seed)


def fit(seed):
    """Return the fitted estimator and whether it warned; None if its options are incompatible."""
    X, y, model = problem(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y)
        except ValueError as refusal:
            print(f"problem {seed} is refused: {str(refusal)[:90]}")
            return None
    return model, any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first problem")
    options = parser.parse_args()
    n_fits = n_warned = n_below = n_silent = 0
    for seed in range(options.seed, options.seed + options.problems):
        found = fit(seed)
        if found is None:
            continue
        model, warned = found
        loss, gap = model.loss_curve_[-1], model.duality_gap_
        below = gap < -1e-9 * abs(loss)
        silent = gap > model.tol * abs(loss) * (1 + 1e-9) and not warned
        if below or silent:
            print(f"problem {seed}: loss {loss:.9g}, gap {gap:.3g}, {'below its dual' if below else 'silent'}: {model}")
        n_fits, n_warned, n_below, n_silent = n_fits + 1, n_warned + warned, n_below + below, n_silent + silent
    print(f"{n_fits} problems: {n_below} losses below their dual, {n_silent} silent gaps above tol, {n_warned} warned")


if __name__ == "__main__":
    main()
