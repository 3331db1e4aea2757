"""The comparison of fields on held-out images."""

import numpy as np
import pytest

from sklearn_crf import Bilateral, DenseCRF, DenseExample, Spatial
from sklearn_crf.dense import GridField, refinement_report


def scored_regions(n=6, seed=0):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = (np.indices((10, 12)).sum(axis=0) > rng.integers(7, 13)).astype(int)
        scores = np.eye(2)[labels] + rng.normal(size=(10, 12, 2))
        X.append(DenseExample(scores, 90.0 * labels + rng.normal(scale=5, size=labels.shape)))
        y.append(labels)
    return X, y


def test_fields_that_help_are_told_from_those_that_do_not():
    X, y = scored_regions()
    fields = {
        "dense": DenseCRF([Bilateral(6.0, 20.0)], max_iter=10),
        "same": DenseCRF([], learning="fixed"),
        "wrong": DenseCRF([Spatial(100.0, weight=1000.0)], learning="fixed"),
    }
    report = refinement_report(X[:3], y[:3], X[3:], y[3:], fields=fields)
    assert report.names == ["no field", "dense", "same", "wrong"]
    assert report.low[1] > 0
    assert report.difference[2] == report.low[2] == report.high[2] == 0
    assert report.p_value[2] == 1.0
    assert report.high[3] < 0
    assert report.image_iou.shape == (4, 3)
    assert np.all((report.low <= report.difference) & (report.difference <= report.high))
    assert all(name in str(report) for name in report.names)


@pytest.mark.filterwarnings("error")
def test_grid_field_with_missing_labels_and_without_an_image():
    X, y = scored_regions()
    y = [np.where(np.indices(part.shape)[0] == 0, -1, part) for part in y]
    X[0] = DenseExample(X[0].scores, np.zeros((10, 12)))
    fields = {"grid": GridField(missing_label=-1)}
    assert refinement_report(X[:4], y[:4], X[4:], y[4:], fields=fields, missing_label=-1).difference[1] > 0
    plain = [DenseExample(x.scores) for x in X]
    report = refinement_report(plain[:4], y[:4], plain[4:], y[4:], fields=fields, missing_label=-1)
    assert np.isfinite(report.mean_iou).all()


def test_mean_iou_is_that_of_scikit_learn():
    from sklearn.metrics import accuracy_score, jaccard_score

    X, y = scored_regions()
    y = [np.where(np.indices(part.shape)[0] == 0, -1, part) for part in y]
    report = refinement_report(X[:2], y[:2], X[2:], y[2:], fields={}, missing_label=-1)
    true = np.concatenate([part[1:].ravel() for part in y[2:]])
    alone = np.concatenate([x.scores[1:].argmax(axis=-1).ravel() for x in X[2:]])
    assert report.mean_iou[0] == pytest.approx(jaccard_score(true, alone, average="macro"))
    assert report.accuracy[0] == pytest.approx(accuracy_score(true, alone))
