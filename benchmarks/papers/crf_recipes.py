"""Likelihoods and relaxations against time: joint tagging and chunking of CoNLL-2000 (Fig. 31 of Jancsary 2012).

    SKLEARN_CRF_DATA=folder python benchmarks/papers/crf_recipes.py  # all results that are not yet in --json
    SKLEARN_CRF_DATA=folder python benchmarks/papers/crf_recipes.py dual_relaxation --epochs 40  # repeat one method
    python benchmarks/papers/crf_recipes.py report --figure docs/_static/crf_recipes.png

Three methods minimise the same relaxation of the likelihood (recipes 1, 4 and 5 of the thesis), so their objectives
must have the same limit. Recipe 2 also optimises the distribution over trees, so its objective is lower. Piecewise
training, piecewise training with shared scores, and pseudolikelihood have other objectives. The thesis uses the trivial
entropy (``--entropy trivial``) and words as edge features (``--edges words``). With the tree-reweighted entropy, the
default, messages are many times as fast. Times are seconds of processor time on one thread. The time of the dual method
includes the primal objective, which is computed after every epoch.
"""

import argparse
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.factorial_conll import FactorialTask
from support.named_learning import named_learning, watched
from support.record import read_record, write_record

from sklearn_crf import TRWCRF

LEARNINGS = {
    "relaxation": "relaxation, messages (1)",
    "joint_relaxation": "relaxation, jointly (4)",
    "dual_relaxation": "relaxation, dual (5)",
    "edge_probabilities": "optimal trees, jointly (2)",
    "piecewise": "piecewise",
    "shared_pieces": "shared pieces",
    "pseudolikelihood": "pseudolikelihood",
}
MEETING = ("relaxation", "joint_relaxation", "dual_relaxation")


def run(learning, task, options):
    """Return the objective and the seconds at every iteration."""
    n_nodes = sum(x.n_nodes for x in task.X)
    seconds = []

    def watch(elapsed, _):
        seconds.append(elapsed)
        return elapsed > options.seconds

    model = TRWCRF(
        # The thesis divides the loss by the number of variables.
        C=1 / (options.strength * n_nodes),
        learning=watched(named_learning(learning, entropy=options.entropy, tol=1e-5), watch),
        weights="seen",
        fit_intercept=False,
        classes=task.classes,
        max_iter=options.epochs,
        tol=1e-6,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(task.X, task.y)
    # L-BFGS also records its start, for which no callback is called.
    losses = model.loss_curve_[-len(seconds) :]
    return {"seconds": seconds, "losses": losses.tolist()}


def key_of(learning, options):
    key = f"{learning} {options.entropy} {options.sentences} {options.strength:g}"
    return key if options.edges == "constant" else f"{key} {options.edges}"


def report(record, options):
    found = {name: record[key] for name in LEARNINGS if (key := key_of(name, options)) in record}
    least = min((min(found[name]["losses"]) for name in MEETING if name in found), default=np.nan)
    print(f"{options.sentences} sentences, entropy {options.entropy}, strength {options.strength:g}, ", end="")
    print(f"features of edges: {options.edges}")
    print(f"{'':26s}{'iterations':>11s}{'seconds':>9s}{'objective':>12s}{'s to 10 %':>11s}{'1 %':>8s}{'0.1 %':>8s}")
    for name, curve in found.items():
        target = least if name in MEETING else min(curve["losses"])
        reached = [_seconds_to(curve, (1 + share) * target) for share in (0.1, 0.01, 0.001)]
        times = "".join(f"{t:>{width}.1f}" for t, width in zip(reached, (11, 8, 8), strict=True))
        n_iter = len(curve["losses"])
        print(f"{LEARNINGS[name]:26s}{n_iter:>11d}{curve['seconds'][-1]:>9.1f}{min(curve['losses']):>12.2f}{times}")
    if options.figure:
        draw(found, options.figure)


def _seconds_to(curve, value):
    close = np.flatnonzero(np.array(curve["losses"]) <= value)
    return curve["seconds"][close[0]] if len(close) else np.nan


def draw(found, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for name, curve in found.items():
        axes.plot(curve["seconds"], curve["losses"], label=LEARNINGS[name], linestyle="-" if name in MEETING else "--")
    axes.set(xscale="log", yscale="log", xlabel="seconds of the processor", ylabel="objective")
    axes.legend()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("learnings", nargs="*", help=f"of {', '.join(LEARNINGS)}, or report")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--strength", type=float, default=1e-4, help="C, in the normalisation of the thesis")
    parser.add_argument("--entropy", choices=("trw", "trivial"), default="trw")
    parser.add_argument("--edges", choices=("constant", "words"), default="constant", help="edge features")
    parser.add_argument("--epochs", type=int, default=150, help="largest number of iterations")
    parser.add_argument("--seconds", type=float, default=600, help="largest number of seconds for each method")
    parser.add_argument("--json", type=Path, default=Path("crf_recipes.json"), help="file for curves")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    record = read_record(options.json, {})
    wanted = options.learnings or [name for name in LEARNINGS if key_of(name, options) not in record]
    task = None
    for name in wanted:
        if name == "report":
            continue
        if name == "edge_probabilities" and options.entropy != "trw":
            print("edge_probabilities: recipe 2 is about spanning trees, it needs --entropy trw", flush=True)
            continue
        task = task or FactorialTask(options.sentences, 1, options.edges == "words")
        curve = record[key_of(name, options)] = run(name, task, options)
        write_record(options.json, record)
        print(f"{name}: {min(curve['losses']):.2f} after {len(curve['losses'])} iterations", flush=True)
    report(record, options)


if __name__ == "__main__":
    main()
