"""Models with forbidden joint states: count found planted labelings, and check that refuted models have no labeling.

    python benchmarks/quality/feasibility.py
    python benchmarks/quality/feasibility.py --inference graph_cut --kinds 2-SAT "contradictory clauses"
    python benchmarks/quality/feasibility.py --planted 700 --impossible 50 --first-seed 1000

By default, ``AutoMap`` labels 300 models with planted labelings and 100 models without an allowed labeling, which
takes ten minutes. A model is *found* if its labels have a finite score, *given up* if its labels have a score of -inf
and a warning was issued, and *refuted* if an error says that all labelings are forbidden. Models with planted
labelings must never be refuted; all other models should be refuted.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.inference import resolve_inference

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from planted_models import IMPOSSIBLE, PLANTED, impossible_models


def outcome(inference, model):
    """Return the outcome of a call as text, and the number of NumPy's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = "found" if np.isfinite(inference.map(model).score) else "given up"
        except ValueError as error:
            result = "refuted" if "infeasible" in str(error) else f"error: {error}"
    unsaid = result == "given up" and not any(issubclass(w.category, ConvergenceWarning) for w in caught)
    result = "given up without a warning" if unsaid else result
    return result, sum(issubclass(w.category, RuntimeWarning) for w in caught)


def row(kind, inference, models):
    counts, seconds, n_warnings = {}, [], 0
    for model in models:
        start = time.process_time()
        result, n = outcome(inference, model)
        seconds.append(time.process_time() - start)
        counts[result] = counts.get(result, 0) + 1
        n_warnings += n
    listed = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    times = f"mean {np.mean(seconds):.2f} s, most {max(seconds):.2f} s"
    print(f"{kind:24s} {len(seconds):4d} models: {listed}; {times}; {n_warnings} warnings of NumPy", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inference", default="map")
    parser.add_argument("--planted", type=int, default=300)
    parser.add_argument("--impossible", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=[*PLANTED, *IMPOSSIBLE])
    options = parser.parse_args()
    inference, first = resolve_inference(options.inference).inference, options.first_seed
    planted = [kind for kind in PLANTED if kind in options.kinds]
    impossible = [kind for kind in IMPOSSIBLE if kind in options.kinds]
    for number, kind in enumerate(planted):
        seeds = range(first, first + len(range(number, options.planted, len(planted))))
        row(kind, inference, (PLANTED[kind](seed) for seed in seeds))
    for number, kind in enumerate(impossible):
        n_models = len(range(number, options.impossible, len(impossible)))
        row(kind, inference, impossible_models(kind, n_models, first))


if __name__ == "__main__":
    main()
