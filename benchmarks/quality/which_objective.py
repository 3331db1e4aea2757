"""Compare objectives on the same images: accuracy, log-loss, seconds per round, and memory, on two threads.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/which_objective.py [--tasks squares horses] [--threads 2]

The tasks are defined in ``defaults.py``. Every learner is fitted in a separate process, with default options except for
the options in the name of its row. A round is an iteration of the solver, an epoch or a pass. Times are processor
seconds of all threads. Memory is the peak during the fit minus the memory before it.
"""

import argparse
import multiprocessing
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from sklearn.metrics import log_loss
from support.default_tasks import squares
from support.horse_pixels import twenty_horses
from support.memory import peak_megabytes

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier
from sklearn_crf.learning import ContrastiveTraining

TASKS = {"squares": lambda: squares(np.random.default_rng(0))[:4], "horses": twenty_horses}
LEARNERS = {
    "likelihood (TRWCRF)": (TRWCRF, {}),
    "plain pseudolikelihood": (ContrastiveCRF, {"learning": ContrastiveTraining(generator=None)}),
    "constraint generation (ContrastiveCRF)": (ContrastiveCRF, {}),
    "most violated labelings": (ContrastiveCRF, {"learning": ContrastiveTraining(generator="map_mv")}),
    "margin (M3NClassifier)": (M3NClassifier, {}),
    "pseudo-marginals (DRFClassifier)": (DRFClassifier, {}),
}


def forget_peak():
    """Reset the kernel's record of the peak of memory, on Linux."""
    counter = Path("/proc/self/clear_refs")
    if counter.exists():
        counter.write_text("5")


def measure(connection, task, name, n_threads):
    warnings.simplefilter("ignore")
    X, y, X_test, y_test = TASKS[task]()
    kind, options = LEARNERS[name]
    forget_peak()
    before, start, cpu = peak_megabytes(), time.perf_counter(), time.process_time()
    model = kind(n_jobs=n_threads, **options).fit(X, y)
    row = {"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu, "memory": peak_megabytes() - before}
    row |= {"rounds": model.n_iter_, "right": np.mean(model.predict(X_test) == y_test), "loss": np.nan}
    if hasattr(model, "predict_proba"):
        probability = model.predict_proba(X_test)
        row["loss"] = log_loss(y_test.ravel(), probability.reshape(-1, probability.shape[-1]))
    connection.send(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for task in options.tasks:
        print(f"{task}, {options.threads} threads\n{'':39} right log-loss  CPU s  wall s rounds ms/round  MB")
        for name in LEARNERS:
            receiver, sender = context.Pipe(duplex=False)
            child = context.Process(target=measure, args=(sender, task, name, options.threads))
            child.start()
            row = receiver.recv()
            child.join()
            times = f"{row['cpu']:7.2f} {row['wall']:7.2f} {row['rounds']:6d} {1000 * row['cpu'] / row['rounds']:8.1f}"
            print(f"{name:39} {row['right']:.4f} {row['loss']:8.4f} {times} {row['memory']:5.0f}", flush=True)


if __name__ == "__main__":
    main()
