"""Table 1 of Kumar, August & Hebert (2005): five learning rules under three inferences.

The protocol is the paper's: binary images of 64 x 64 pixels, features [1, I] of pixels and [1, |I_i - I_j|] of pairs,
10 noisy copies of one shape to learn from, 50 of each of four shapes to test on, two noise models, each rule used with
each inference, rules that cycle learned from several random starts. The paper's images are not to be had, so the shapes
are our own: read the order of the entries, not their size. Nothing is chosen on test images: the length of steps is the
one with which a rule's first start makes the fewest errors on training images. Times are CPU seconds on one thread.

    python benchmarks/drf_table1.py                  # the whole of it
    python benchmarks/drf_table1.py --parts table    # without times, scales and starts
    python benchmarks/drf_table1.py --quick          # two starts, 40 test images
"""

import argparse
import copy
import time
import warnings
from typing import NamedTuple

import numpy as np
from scipy.stats import wilcoxon
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import DRFClassifier
from sklearn_crf.datasets import make_binary_shapes, make_noisy_shapes
from sklearn_crf.inference import LoopyBP
from sklearn_crf.learning import CD, MMA, PL, PMA, SPA, GradientSteps

NOISES = ("gaussian", "bimodal")
# The paper's 1e-5 times the sum over 10 * 64 * 64 pixels, as a step along their mean.
PAPER_STEP = 0.41
# How long a step is next to the start is what matters to rules without a loss, and the paper's starts are not known.
STEPS = (0.1, PAPER_STEP, 2.0)
RULES = ("pma", "spa", "mma", "pl", "cd")
INFERENCES = ("map", "mpm", "icm")
PARTS = ("table", "times", "scales", "starts")
# The paper's seconds of learning by SPA over those of its min-cuts are 300; some trajectories need more.
MAX_ITER = 400
# What a rule learns with; pl and cd need no inference to learn. The labels of largest marginals are known long before
# the marginals (section 6 of the paper), so that few sweeps are enough for mma.
LEARNS_WITH = {"pma": "mpm", "spa": "map", "mma": LoopyBP(max_iter=20), "pl": "mpm", "cd": "mpm"}
# Losses: they start where the estimator starts them. The others start at random, several times; contrastive divergence,
# whose gradient nearly vanishes long before it settles, starts from the weights of single pixels with several seeds.
STARTS_ONCE = ("pma", "pl")
# Per cent of wrong test pixels by MAP, MPM and ICM, and seconds of learning, as printed in the paper.
PAPER = {
    "gaussian": {
        "pma": (2.73, 2.51, 3.91),
        "spa": (2.49, 7.64, 3.98),
        "mma": (34.34, 2.96, 4.11),
        "pl": (3.82, 3.10, 3.89),
        "cd": (3.78, 2.82, 4.09),
    },
    "bimodal": {
        "pma": (6.45, 5.48, 17.39),
        "spa": (5.82, 19.19, 14.88),
        "mma": (26.53, 5.70, 16.00),
        "pl": (17.69, 7.31, 22.22),
        "cd": (8.88, 6.29, 8.92),
    },
}
PAPER_SECONDS = {"pma": 1183.13, "spa": 81.52, "mma": 635.78, "pl": 299.75, "cd": 206.93}


class Data(NamedTuple):
    """Training and test images of one noise model."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class Cell(NamedTuple):
    """One entry of the table."""

    errors: np.ndarray  # (n_starts, n_test) share of wrong pixels
    length: float  # neighbours that differ, predicted over true: below 1 is too smooth, above 1 too rough

    @property
    def percent(self):
        """Mean error in per cent."""
        return 100 * self.errors.mean()


def make_data(noise, n_train, n_test):
    """Noisy copies of the first shape to learn from, and of all four to test on."""
    names = make_binary_shapes().names
    X_train, y_train, _ = make_noisy_shapes(noise, n_train, shapes=names[:1], random_state=0)
    X_test, y_test, _ = make_noisy_shapes(noise, n_test // len(names), random_state=1)
    return Data(X_train, y_train, X_test, y_test)


def learn(rule, data, **parameters):
    """Fitted estimator of one rule, and the seconds it took; options are the rule's or the estimator's."""
    kind = {"pma": PMA, "spa": SPA, "mma": MMA, "pl": PL, "cd": CD}[rule]
    own = {name: parameters.pop(name) for name in kind().get_params() if name in parameters}
    estimator = DRFClassifier(learning=kind(**own), inference=LEARNS_WITH[rule], **parameters)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(data.X_train, data.y_train)
    return estimator, time.process_time() - start


def use(estimator, inference, data):
    """Labels of the test images by an inference that the weights need not have been learned with."""
    other = copy.copy(estimator).set_params(inference=inference)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return other.predict(data.X_test)


def error_rates(labels, y):
    """Share of wrong pixels of each image."""
    return np.mean(labels != y, axis=(1, 2))


def boundary_length(labels):
    """Number of neighbours that differ, over all images."""
    return np.sum(labels[:, 1:] != labels[:, :-1]) + np.sum(labels[:, :, 1:] != labels[:, :, :-1])


def weight_norm(estimator):
    """Euclidean norm of all weights."""
    parts = (estimator.coef_, estimator.intercept_, estimator.edge_coef_)
    return float(np.sqrt(sum(np.sum(np.square(part)) for part in parts)))


def run(noise, n_starts, n_test, steps):
    """Every entry of the table for one noise model, with seconds of learning by rule and of inference."""
    data = make_data(noise, 10, n_test)
    true_length = boundary_length(data.y_test)
    cells, learning_seconds, inference_seconds = {}, {}, dict.fromkeys(INFERENCES, 0.0)
    print(f"\n{noise} noise: weights, and pixels wrong on the training images by the rule's own inference")
    for rule in RULES:
        runs = [learn(rule, data)] if rule in STARTS_ONCE else learn_several(rule, data, n_starts, steps)
        learning_seconds[rule] = np.mean([seconds for _, seconds in runs])
        print_runs(rule, runs, data)
        for inference in INFERENCES:
            start = time.process_time()
            labels = [use(estimator, inference, data) for estimator, _ in runs]
            inference_seconds[inference] += (time.process_time() - start) / (len(runs) * len(RULES))
            cells[rule, inference] = Cell(
                np.array([error_rates(each, data.y_test) for each in labels]),
                np.mean([boundary_length(each) for each in labels]) / true_length,
            )
    return cells, learning_seconds, inference_seconds


def learn_several(rule, data, n_starts, steps):
    """One run per start, with the steps that serve the first one best."""
    if rule == "cd":
        return [
            learn(rule, data, step_size=PAPER_STEP, max_iter=MAX_ITER, random_state=seed) for seed in range(n_starts)
        ]
    first = {step: learn_from_random(rule, data, 0, step) for step in steps}
    fewest = {step: np.min(estimator.error_curve_) for step, (estimator, _) in first.items()}
    chosen = min(fewest, key=fewest.get)
    counted = ", ".join(f"{100 * errors / data.y_train.size:.2f} % by {step}" for step, errors in fewest.items())
    print(f"  {rule:4} steps, by errors on training images: {counted}")
    return [first[chosen], *(learn_from_random(rule, data, seed, chosen) for seed in range(1, n_starts))]


def learn_from_random(rule, data, seed, step_size):
    """One run from a random start."""
    return learn(rule, data, init="random", step_size=step_size, max_iter=MAX_ITER, random_state=seed)


def print_runs(rule, runs, data):
    """One line per start: what was learned."""
    for seed, (estimator, seconds) in enumerate(runs):
        weights = np.concatenate([estimator.intercept_, estimator.coef_.ravel(), estimator.edge_coef_.ravel()])
        errors = np.nanmin(np.append(estimator.error_curve_, np.inf)) / data.y_train.size
        counted = f"{100 * errors:5.2f} %" if np.isfinite(errors) else "      -"
        print(f"  {rule:4} start {seed}: {np.round(weights, 2)} {counted} {estimator.n_iter_:4d} it {seconds:6.1f} s")


def print_table(noise, cells, learning_seconds, inference_seconds):
    """Ours beside the paper's."""
    print(f"\n{noise} noise: wrong test pixels in per cent, ours (paper's); +- is over starts; seconds of learning")
    print("      " + "".join(f"{name.upper():>24}" for name in INFERENCES) + f"{'learning':>18}")
    for rule in RULES:
        line = f"{rule.upper():6}"
        for inference, paper in zip(INFERENCES, PAPER[noise][rule], strict=True):
            cell = cells[rule, inference]
            spread = 100 * cell.errors.mean(axis=1).std()
            line += f"{cell.percent:9.2f} +-{spread:5.2f} ({paper:5.2f})"
        print(f"{line} {learning_seconds[rule]:7.2f} ({PAPER_SECONDS[rule]:7.2f})")
    print("time  " + "".join(f"{inference_seconds[name]:18.2f} s    " for name in INFERENCES))
    print("boundary length, predicted / true:")
    for rule in RULES:
        print(f"{rule.upper():6}" + "".join(f"{cells[rule, name].length:24.2f}" for name in INFERENCES))


def is_better(cells, first, second):
    """Whether one entry has fewer errors than another, and the p of a Wilcoxon test paired over test images."""
    difference = cells[first].errors.mean(axis=0) - cells[second].errors.mean(axis=0)
    p = wilcoxon(difference).pvalue if np.any(difference) else 1.0
    return difference.mean() < 0 and p < 0.01, p


def check_pattern(noise, cells, learning_seconds):
    """The paper's statements, one a line."""
    print(f"\n{noise} noise: the paper's pattern (Wilcoxon tests paired over test images, p < 0.01)")
    for inference, best in (("map", "spa"), ("mpm", "pma"), ("mpm", "mma")):
        for other in RULES:
            if other != best and {best, other} != {"pma", "mma"}:
                better, p = is_better(cells, (best, inference), (other, inference))
                report(better, f"{inference.upper()}: {best} better than {other}", cells, best, other, inference, p)
    better, p = is_better(cells, ("pma", "mpm"), ("mma", "mpm"))
    report(better, "MPM: pma better than mma", cells, "pma", "mma", "mpm", p)
    verdict("MAP with MMA's weights is too smooth", cells["mma", "map"].length, "<", 0.9)
    verdict("MPM with SPA's weights is too rough", cells["spa", "mpm"].length, ">", 1.1)
    for rule in RULES:
        best = min(cells[rule, name].percent for name in ("map", "mpm"))
        verdict(f"ICM is behind with {rule.upper()}'s weights", cells[rule, "icm"].percent, ">", best)
    verdict("seconds of learning, PMA by L-BFGS over SPA", learning_seconds["pma"] / learning_seconds["spa"], ">", 10)


def report(holds, claim, cells, first, second, inference, p):
    """A comparison of two entries of a column."""
    found = f"{cells[first, inference].percent:.2f} against {cells[second, inference].percent:.2f} %, p = {p:.1g}"
    print(f"  [{'holds' if holds else 'NO':5}] {claim}: {found}")


def verdict(claim, value, relation, bound):
    """A comparison of a number with a bound."""
    holds = value > bound if relation == ">" else value < bound
    print(f"  [{'holds' if holds else 'NO':5}] {claim}: {value:.2f} {relation} {bound:.2f}")


def print_scales(noise, n_test):
    """SPA's weights from zero: the step sets their scale, which MAP does not see and MPM does."""
    data = make_data(noise, 10, n_test)
    print(f"\n{noise} noise: SPA from zero, by step_size")
    for step_size in (0.016, 0.08, 0.41, 2.0, 10.0):
        estimator, _ = learn("spa", data, init="zeros", step_size=step_size, max_iter=300)
        found = [use(estimator, name, data) for name in ("map", "mpm")]
        wrong = [100 * error_rates(labels, data.y_test).mean() for labels in found]
        length = boundary_length(found[1]) / boundary_length(data.y_test)
        norm, errors = weight_norm(estimator), estimator.error_curve_.min()
        print(f"  step {step_size:6.3f}: |w| {norm:8.2f}, training errors {errors:.0f}, ", end="")
        print(f"MAP {wrong[0]:6.2f} %, MPM {wrong[1]:6.2f} %, boundary length of MPM {length:.2f}")


def print_times(noise):
    """Seconds of an equal number of steps of equal length, as the paper learned, and seconds to a good MAP."""
    data = make_data(noise, 10, 4)
    cycling = {"step_size": PAPER_STEP, "n_cycles": 1000}
    smooth = {"solver": GradientSteps(step_size=PAPER_STEP)}
    steps = {"pma": smooth, "spa": cycling, "mma": cycling}
    seconds = {rule: learn(rule, data, max_iter=100, tol=0.0, **own)[1] for rule, own in steps.items()}
    print(f"\n{noise} noise: 100 gradient steps", ", ".join(f"{rule} {each:.1f} s" for rule, each in seconds.items()))
    verdict("seconds of 100 steps, PMA over SPA", seconds["pma"] / seconds["spa"], ">", 10)
    verdict("seconds of 100 steps, PMA over MMA", seconds["pma"] / seconds["mma"], ">", 1)
    runs = {
        "SPA, random start": learn_from_random("spa", data, 0, STEPS[0]),
        "SPA, unary start": learn("spa", data, step_size=PAPER_STEP, max_iter=150),
        "PMA, gradient steps, random start": learn(
            "pma", data, init="random", random_state=0, max_iter=300, tol=0.0, **smooth
        ),
        "PMA, L-BFGS": learn("pma", data),
    }
    curves = {name: map_error_curve(estimator, data) for name, (estimator, _) in runs.items()}
    good = 1.05 * min(curve.min() for curve in curves.values())
    print(f"  until MAP's errors on five training images are within 5 % of the fewest, {100 * good:.2f} %")
    for name, (estimator, spent) in runs.items():
        reached = np.flatnonzero(curves[name] <= good)
        each = spent / estimator.n_iter_
        found = f"{reached[0] + 1} iterations, {each * (reached[0] + 1):.2f} s" if len(reached) else "never"
        print(f"    {name}: {found} ({estimator.n_iter_} iterations in all, at best {100 * curves[name].min():.2f} %)")


def map_error_curve(estimator, data):
    """Share of wrong pixels by MAP at every fourth of many iterates, at every one of few, and infinity elsewhere."""
    curve = np.full(estimator.n_iter_, np.inf)
    for i in range(0, estimator.n_iter_, 4 if estimator.n_iter_ > 40 else 1):
        visited = copy.copy(estimator).set_params(inference="map")
        flat = estimator.coef_path_[i]
        visited.coef_, visited.intercept_ = flat[:1].reshape(1, 1), flat[1:2]
        visited.edge_coef_ = flat[2:].reshape(estimator.edge_coef_.shape)
        curve[i] = error_rates(visited.predict(data.X_train[:5]), data.y_train[:5]).mean()
    return curve


def print_pma_starts(noise, n_starts, n_test):
    """PMA from random weights: loopy belief propagation makes its loss one of several minima."""
    data = make_data(noise, 10, n_test)
    print(f"\n{noise} noise: PMA from random starts")
    runs = [learn("pma", data, init="random", random_state=seed) for seed in range(n_starts)]
    print_runs("pma", runs, data)
    found = [100 * error_rates(use(estimator, "mpm", data), data.y_test).mean() for estimator, _ in runs]
    print("  MPM on test images:", ", ".join(f"{each:.2f} %" for each in found))


def main():
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two starts, 40 test images")
    parser.add_argument("--noise", choices=NOISES, help="one noise model alone")
    parser.add_argument("--steps", nargs="+", type=float, default=STEPS, help="lengths of steps to choose from")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    n_starts, n_test = (2, 40) if arguments.quick else (3, 200)
    for noise in [arguments.noise] if arguments.noise else NOISES:
        if "table" in arguments.parts:
            cells, learning_seconds, inference_seconds = run(noise, n_starts, n_test, arguments.steps)
            print_table(noise, cells, learning_seconds, inference_seconds)
            check_pattern(noise, cells, learning_seconds)
        if "times" in arguments.parts:
            print_times(noise)
        if "scales" in arguments.parts:
            print_scales(noise, n_test)
        if "starts" in arguments.parts:
            print_pma_starts(noise, n_starts, n_test)


if __name__ == "__main__":
    main()
