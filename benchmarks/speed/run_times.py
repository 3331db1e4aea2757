"""Measure the processor time of a fit and of a prediction by the number of nodes, for each kind of data.

    python benchmarks/speed/run_times.py --record docs/results/run_times/run_times.json    # ten minutes

Fits use one thread and default options, except for options in the name of a row. Data are random: three labels, which
are similar in neighbours, and five noisy features. The number of nodes grows until a fit takes more than ``--seconds``
(20). An interrupted run continues from its record.
"""

import argparse
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.ndimage import gaussian_filter
from support.record import recorded

from sklearn_crf import TRWCRF, DRFClassifier, M3NClassifier, refine, restore

N_NODES = [1_000, 10_000, 100_000, 1_000_000]
SHAPES = {"sequences": (100,), "images": (32, 32), "volumes": (10, 10, 10)}
FITS = {
    "sequences, TRWCRF": ("sequences", TRWCRF()),
    "images, TRWCRF": ("images", TRWCRF()),
    "images, DRFClassifier": ("images", DRFClassifier()),
    'images, DRFClassifier(learning="pl")': ("images", DRFClassifier(learning="pl", inference="map")),
    "images, M3NClassifier": ("images", M3NClassifier()),
    "volumes, TRWCRF": ("volumes", TRWCRF()),
}


def examples(kind, n_nodes):
    """Return features and labels of as many examples as hold n_nodes nodes."""
    shape = SHAPES[kind]
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(max(1, n_nodes // int(np.prod(shape))), *shape, 3))
    y = gaussian_filter(noise, (0, *(2 for _ in shape), 0)).argmax(axis=-1)
    return np.eye(3, 5)[y] + rng.normal(size=(*y.shape, 5)), y


def timed(call):
    """Return the result of a call and its processor seconds."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def fit_and_predict(kind, estimator, n_nodes):
    """Return the numbers of nodes and the seconds of a fit and of a prediction."""
    X, y = examples(kind, n_nodes)
    fitted, fit = timed(lambda: estimator.fit(X, y))
    return {"nodes": int(y.size), "fit": fit, "predict": timed(lambda: fitted.predict(X))[1]}


def of_one_image(call, n_pixels):
    """Return the number of pixels of a square image and the seconds of a function of it."""
    side = round(n_pixels**0.5)
    rng = np.random.default_rng(0)
    smooth, noise = rng.normal(size=(2, side, side, 3))
    image = 128 + 320 * gaussian_filter(smooth, (4, 4, 0)) + 10 * noise
    proba = rng.dirichlet([1, 1, 1], size=(side, side)).astype(np.float32)
    return {"nodes": side**2, "predict": timed(lambda: call(proba, image.clip(0, 255).astype(np.uint8)))[1]}


FUNCTIONS = {
    "one image, refine": refine,
    "one image, restore": lambda proba, image: restore(image),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, help="JSON file that keeps the figures")
    parser.add_argument("--seconds", type=float, default=20.0, help="try no larger sizes after a fit that took longer")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # only the time matters, whether the fit converged or not
    if arguments.record:
        arguments.record.parent.mkdir(parents=True, exist_ok=True)
    for name in [*FITS, *FUNCTIONS]:
        for n_nodes in N_NODES:
            row = recorded(
                arguments.record,
                f"{name}, {n_nodes}",
                lambda name=name, n_nodes=n_nodes: (
                    fit_and_predict(*FITS[name], n_nodes) if name in FITS else of_one_image(FUNCTIONS[name], n_nodes)
                ),
            )
            seconds = "".join(f"  {step} {row[step]:8.2f} s" for step in ("fit", "predict") if step in row)
            print(f"{name:38} {row['nodes']:9,} nodes{seconds}", flush=True)
            if row.get("fit", row["predict"]) > arguments.seconds:
                break


if __name__ == "__main__":
    main()
