"""Compare fields with default parameters with other ways to spread the labels of a few strokes over photographs.

    SKLEARN_CRF_DATA=folder python benchmarks/peers/scribbles.py --json docs/results/auto_quality/scribbles.json
    python benchmarks/peers/scribbles.py --json docs/results/auto_quality/scribbles.json --table    # stored results

The folder contains grabcut/: fifty photographs of single objects with the strokes of a user. Each photograph is a
separate task, at full size. All methods only use its colours in [0, 1] and its strokes. `pixels` is logistic regression
of single pixels. Rows with `squares` use standardised colours, their squares and their products. `random_walker` is
from scikit-image. `GrabCut` is from OpenCV, with five iterations; strokes are certain, and all other pixels are
probable background. Ten photographs that were used to choose the scaling of weights between blocks are omitted. Errors
exclude pixels of the boundary. An interrupted run continues from its record.
"""

import argparse
import os
import time
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from support.bundles import load_grabcut
from support.record import read_record, write_record

from sklearn_crf import TRWCRF, DRFClassifier, RegressionTreeFieldClassifier
from sklearn_crf.preprocessing import NodeTransformer

# Every fifth photograph was used when the defaults were made.
SEEN = 5


def squares():
    """Return standardised colours, with squares and products on the same scale."""
    return make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), StandardScaler())


def by_pixel(make):
    def method(image, strokes):
        known = strokes >= 0
        model = make().fit(image[known], strokes[known])
        return model.predict(image.reshape(-1, 3)).reshape(strokes.shape)

    return method


def by_field(make):
    def method(image, strokes):
        return make().fit(image[None], strokes[None]).predict(image[None])[0]

    return method


def by_random_walker(image, strokes):
    from skimage.segmentation import random_walker

    # The labels of random_walker are positive.
    return random_walker(image, strokes + 1, channel_axis=-1, mode="cg_j") - 1


def by_grabcut(image, strokes):
    import cv2

    mask = np.full(strokes.shape, cv2.GC_PR_BGD, dtype=np.uint8)
    mask[strokes == 0], mask[strokes == 1] = cv2.GC_BGD, cv2.GC_FGD
    in_bytes = np.ascontiguousarray(np.rint(255 * image[..., ::-1]), dtype=np.uint8)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(in_bytes, mask, None, *models, 5, cv2.GC_INIT_WITH_MASK)
    return (mask & 1).astype(int)


METHODS = {
    "pixels": by_pixel(lambda: LogisticRegression(max_iter=1000)),
    "DRFClassifier": by_field(lambda: DRFClassifier(missing_label=-1)),
    "TRWCRF": by_field(lambda: TRWCRF(missing_label=-1)),
    "RegressionTreeFieldClassifier": by_field(lambda: RegressionTreeFieldClassifier(missing_label=-1, random_state=0)),
    "pixels, squares": by_pixel(lambda: make_pipeline(squares(), LogisticRegression(max_iter=1000))),
    "DRFClassifier, squares": by_field(
        lambda: make_pipeline(NodeTransformer(squares()), DRFClassifier(missing_label=-1))
    ),
    "random_walker": by_random_walker,
    "GrabCut": by_grabcut,
}


def measure(args):
    import cv2

    cv2.setNumThreads(1)
    bunch = load_grabcut(Path(os.environ["SKLEARN_CRF_DATA"]) / "grabcut")
    record = read_record(args.json, {})
    for k, name in enumerate(bunch.names):
        if k % SEEN == 0:
            continue
        rows = record.setdefault(str(name), {})
        image, strokes = bunch.data[k].astype(np.float32) / 255, bunch.scribbles[k].astype(int)
        known = bunch.target[k] >= 0
        for method, function in METHODS.items():
            if method not in rows:
                start = time.process_time()
                found = function(image, strokes)
                seconds = time.process_time() - start
                wrong = float(np.mean(found[known] != bunch.target[k][known]))
                rows[method] = {"error": wrong, "seconds": round(seconds, 2)}
                write_record(args.json, record)
        print(name, {method: round(row["error"], 3) for method, row in rows.items()}, flush=True)
    return record


def show(record):
    done = [rows for rows in record.values() if len(rows) == len(METHODS)]
    print(f"{len(done)} photographs                 mean error  median  worst  worse than pixels alone  CPU s")
    for method in METHODS:
        errors, seconds = (np.array([rows[method][key] for rows in done]) for key in ("error", "seconds"))
        n_worse = np.sum(errors > [rows["pixels"]["error"] for rows in done])
        figures = f"{errors.mean():10.3f} {np.median(errors):8.3f} {errors.max():6.3f} {n_worse:20d}"
        print(f"{method:29s} {figures} {seconds.mean():16.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file for records")
    parser.add_argument("--table", action="store_true", help="only print stored results")
    args = parser.parse_args()
    show(read_record(args.json, {}) if args.table else measure(args))


if __name__ == "__main__":
    main()
