"""Compare pairs of learning and inference on two real data sets by ``coupling_audit``: Weizmann horses, CamVid streets.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/coupling_audits.py                    # both sets
    SKLEARN_CRF_DATA=folder python benchmarks/quality/coupling_audits.py --sets camvid \
        --save docs/results/coupling_audit

Horses are 30 photographs of 64 x 80 pixels, of which every second row and column is used, with the eight features of
a pixel in ``defaults.py``. Streets are every ninth training frame of CamVid, as a graph of about sixty superpixels of
eleven classes, with the features of ``support/street_regions.py``. Each of the three folds of streets consists of
consecutive frames. ``--save`` writes the results, which ``docs/pictures/coupling_audit.py`` draws.
"""

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from support.horse_pixels import twenty_horses
from support.labelled_part import labelled_part
from support.record import write_record
from support.street_regions import cached_regions

from sklearn_crf import DRFClassifier
from sklearn_crf.learning import PseudolikelihoodTraining
from sklearn_crf.model_selection import coupling_audit
from sklearn_crf.potentials import PairwiseTables

N_FOLDS = 3
PLAIN = PseudolikelihoodTraining(edge_scale=1)
ESTIMATORS = {
    "SPA": DRFClassifier(inference="map"),
    "PMA, loopy": DRFClassifier(inference="mpm"),
    "PMA, tree-reweighted": DRFClassifier(inference="trw"),
    "PL": DRFClassifier(learning=PLAIN, inference="map"),
    "PL, penalty on edges": DRFClassifier(learning=PLAIN, inference="map", pairwise=PairwiseTables(C=0.001)),
}
INFERENCE = {"MAP": "map", "MPM": "mpm", "TRW": "trw", "ICM": "icm"}


def small_horses():
    """Return thirty reduced photographs and their masks."""
    X_train, y_train, X_test, y_test = twenty_horses()
    X, y = np.concatenate((X_train, X_test)), np.concatenate((y_train, y_test))
    return X[:30, ::2, ::2], y[:30, ::2, ::2]


def streets():
    """Return every ninth training frame, as the graph of its superpixels of known class."""
    with tempfile.TemporaryDirectory() as cache:
        regions, _ = cached_regions(Path(os.environ["SKLEARN_CRF_DATA"]), cache, "train")
    frames = regions[::9]
    step = make_pipeline(PolynomialFeatures(2, include_bias=False), StandardScaler())
    step.fit(np.concatenate([frame.features[frame.labels >= 0] for frame in frames]))
    graphs = [labelled_part(frame.example(step.transform(frame.features)), frame.labels) for frame in frames]
    X, y = map(list, zip(*graphs, strict=True))
    return X, y


SETS = {"horses": small_horses, "camvid": streets}


def report(name, results):
    """Print a line for each pair."""
    print(f"{name}: share of right labels of examples left out, and difference to the best pair")
    for k, (learning, inference) in enumerate(zip(results["learning"], results["inference"], strict=True)):
        print(
            f"  {learning:21} {inference:4} {'matched' if results['matched'][k] else '':8}"
            f"{results['mean_test_score'][k]:7.4f}  {results['difference'][k]:+.4f} "
            f"[{results['difference_low'][k]:+.4f}, {results['difference_high'][k]:+.4f}]  "
            f"p {results['p_value'][k]:.1g}  log-loss {results['mean_log_loss'][k]:.3f}  "
            f"fit {results['mean_fit_time'][k]:.1f} s, predict {results['mean_predict_time'][k]:.2f} s",
            flush=True,
        )


def main():
    """Audit the requested sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--save", type=Path, help="folder for the results")
    arguments = parser.parse_args()
    if "SKLEARN_CRF_DATA" not in os.environ:
        raise SystemExit("SKLEARN_CRF_DATA must name the folder that holds weizmann_horses/ and camvid/")
    for name in arguments.sets:
        X, y = SETS[name]()
        print(f"{name}: {len(X)} examples, {sum(np.size(labels) for labels in y)} labelled nodes", flush=True)
        start = time.process_time()
        with warnings.catch_warnings():
            # Inference other than the inference of training may not converge.
            warnings.simplefilter("ignore", ConvergenceWarning)
            audit = coupling_audit(ESTIMATORS, X, y, inference=INFERENCE, cv=KFold(N_FOLDS), random_state=0)
        report(name, audit.results)
        print(f"  {time.process_time() - start:.0f} CPU seconds", flush=True)
        if arguments.save is not None:
            arguments.save.mkdir(parents=True, exist_ok=True)
            kept = {key: values.tolist() for key, values in audit.results.items()} | {"scores": audit.scores.tolist()}
            write_record(arguments.save / f"{name}.json", kept)


if __name__ == "__main__":
    main()
