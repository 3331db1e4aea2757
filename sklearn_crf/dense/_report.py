"""Comparison, on held-out images, of fields with the classifier scores that the fields refine."""

import warnings
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.stats import wilcoxon
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._fits import fits
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.dense._estimator import DenseCRF
from sklearn_crf.dense._examples import DenseExample, read_examples
from sklearn_crf.dense._tuning import LEAST_SCORE
from sklearn_crf.encoding import collect_distinct_labels, encode_y, make_object_array, sort_classes
from sklearn_crf.estimators.drf import DRFClassifier
from sklearn_crf.inference import LoopyBP

NO_FIELD = "no field"


@dataclass(eq=False, repr=False)
class GridField(HoldsOptions):
    """Field with edges between neighbouring pixels, which takes the same examples as a dense field.

    Unary scores are linear in the given scores. Edge features are a constant, and the similarity of colours at two
    scales.
    """

    _parameter_constraints: ClassVar[dict] = {
        "field": [HasMethods(["fit", "predict", "set_params"]), None],
        "missing_label": "no_validation",
        "n_jobs": [Integral, None],
    }

    field: Any = None
    _: KW_ONLY
    missing_label: Any = None
    n_jobs: int | None = None

    @fits(has_estimators=True)
    def fit(self, X: list[DenseExample], y: list[np.ndarray]) -> "GridField":
        """Learn the weights."""
        field = DRFClassifier(inference=LoopyBP(max_iter=20), max_iter=30, tol=1e-3)
        field = field if self.field is None else clone(self.field)
        steps = [
            np.abs(np.diff(get_example_image(x), axis=axis)).sum(axis=-1) for x in X for axis in range(len(x.shape))
        ]
        # If all images are constant, there are no contrasts, so any positive scale can be used.
        contrast = Contrast(X[0].scores.shape[-1], float(np.mean([step.mean() for step in steps if step.size])) or 1.0)
        field = field.set_params(edge_features=contrast, missing_label=self.missing_label, n_jobs=self.n_jobs)
        with self._silence_default_field():
            self.field_ = field.fit(self._arrays(X), y)
        return self

    def predict(self, X: list[DenseExample]) -> np.ndarray:
        """Predict the label of every pixel."""
        # returns: (n_examples,), of object
        check_is_fitted(self)
        with self._silence_default_field():
            return self.field_.predict(self._arrays(X))

    @contextmanager
    def _silence_default_field(self):
        # Users did not choose the options of the default field, so warnings about these options would not help.
        with warnings.catch_warnings():
            if self.field is None:
                warnings.simplefilter("ignore", ConvergenceWarning)
            yield

    def _arrays(self, X):
        scores = [np.maximum(x.rows, LEAST_SCORE).reshape(x.scores.shape) for x in X]
        return make_object_array(
            [np.concatenate([s, get_example_image(x)], axis=-1) for s, x in zip(scores, X, strict=True)]
        )


def get_example_image(example):
    """Return the image of an example, or zeros if it has no image."""
    return np.zeros((*example.shape, 1), example.kind) if example.image is None else example.image


@dataclass(frozen=True)
class Contrast:
    """Edge features: a constant, and the similarity of image channels at two scales."""

    n_scores: int
    scale: float

    def __call__(self, x_tail, x_head):
        difference = np.abs(x_tail[:, self.n_scores :] - x_head[:, self.n_scores :]).sum(axis=1) / self.scale
        return np.stack([np.ones_like(difference), np.exp(-difference), np.exp(-difference / 4)], axis=1)


class RefinementReport(NamedTuple):
    """Accuracy of several fields on the same images, compared with the scores without a field."""

    names: list
    mean_iou: np.ndarray  # (n_fields,), mean intersection over union (IoU), from all images together
    accuracy: np.ndarray  # (n_fields,), fraction of correctly labelled pixels
    difference: np.ndarray  # (n_fields,), mean IoU minus the mean IoU without a field
    low: np.ndarray  # (n_fields,), lower end of the 95 % bootstrap interval of the difference
    high: np.ndarray  # (n_fields,), upper end of the 95 % bootstrap interval of the difference
    p_value: np.ndarray  # (n_fields,), p-value of a Wilcoxon test of the images' IoU, compared with no field
    image_iou: np.ndarray  # (n_fields, n_images), mean IoU of each image

    def __str__(self):
        width = max(map(len, self.names))
        rows = [f"{'':{width}}  mean IoU  accuracy  difference to no field, 95 % interval, p"]
        for k, name in enumerate(self.names):
            row = f"{name:{width}}  {100 * self.mean_iou[k]:8.2f}  {100 * self.accuracy[k]:8.2f}"
            if k:
                row += f"  {100 * self.difference[k]:+.2f} [{100 * self.low[k]:+.2f}, {100 * self.high[k]:+.2f}]"
                row += f"  {self.p_value[k]:.2g}"
            rows.append(row)
        return "\n".join(rows)


def refinement_report(
    X_train: list[DenseExample],
    y_train: list[np.ndarray],
    X_test: list[DenseExample],
    y_test: list[np.ndarray],
    *,
    fields: dict[str, Any] | None = None,
    missing_label: object = None,
    n_resamples: int = 2000,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> RefinementReport:
    """Compare classifier scores with the predictions of fields that refine them, on held-out images.

    A field often does not improve a strong classifier. The report shows whether it does.

    Parameters
    ----------
    X_train : list of DenseExample
        Scores of the classes, and images. The scores must not come from a classifier trained on the labels of these
        images, since the field would learn to trust them too much. Use cross-validated scores.
    y_train : list of ndarray
        Labels of the training pixels.
    X_test : list of DenseExample
        Held-out images.
    y_test : list of ndarray
        Labels of the held-out pixels.
    fields : dict of str to estimator, default=None
        Fields to compare, by name. None compares a grid field, and :class:`~sklearn_crf.DenseCRF` with given and with
        learned weights.
    missing_label : object, default=None
        Label of pixels to ignore.
    n_resamples : int, default=2000
        Number of bootstrap samples over images.
    random_state : int, default=0
        Seed of the bootstrap.
    n_jobs : int, optional

    Returns
    -------
    RefinementReport

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DenseExample
    >>> from sklearn_crf.dense import refinement_report
    >>> rng = np.random.default_rng(0)
    >>> y = np.tile(np.arange(16) // 8, (4, 16, 1))
    >>> X = [DenseExample(np.eye(2)[t] + rng.normal(size=(16, 16, 2)), 90.0 * t) for t in y]
    >>> report = refinement_report(X[:2], y[:2], X[2:], y[2:])
    >>> report.names
    ['no field', 'grid field', 'dense, fixed', 'dense, learned']
    >>> bool(report.mean_iou[3] > report.mean_iou[0])
    True
    """
    train, test = read_examples(X_train, 0), read_examples(X_test, 0)
    classes = encode_y(y_train, train, missing_label=missing_label, name="y_train").classes_
    all_classes = sort_classes([classes, *collect_distinct_labels(y_test, test, missing_label=missing_label)])
    truth = encode_y(y_test, test, missing_label=missing_label, classes=all_classes, name="y_test").labels
    options: dict[str, Any] = {"missing_label": missing_label, "n_jobs": n_jobs}
    if fields is None:
        fields = {
            "grid field": GridField(**options),
            "dense, fixed": DenseCRF(learning="fixed", **options),
            "dense, learned": DenseCRF(**options),
        }
    predicted = {NO_FIELD: [classes[x.rows.argmax(axis=1)] for x in test.examples]}
    for name, field in fields.items():
        field.fit(X_train, y_train)
        predicted[name] = [np.ravel(part) for part in field.predict(X_test)]
    counts = np.stack([_count_overlaps(parts, truth, all_classes) for parts in predicted.values()])
    return _report(list(predicted), counts, n_resamples, random_state)


def _count_overlaps(predicted, truth, classes):
    """Count, for each image and class, the pixels in the intersection, union and truth, (n_images, 3, n_classes)."""
    counts = []
    for labels, true in zip(predicted, truth, strict=True):
        known = true >= 0
        own, right = np.searchsorted(classes, labels[known]), true[known]
        hit, present = (np.bincount(part, minlength=len(classes)) for part in (right[own == right], right))
        counts.append([hit, np.bincount(own, minlength=len(classes)) + present - hit, present])
    return np.array(counts, dtype=np.float64)


def _report(names, counts, n_resamples, random_state):
    n_images = counts.shape[1]
    drawn = np.random.default_rng(random_state).multinomial(n_images, np.full(n_images, 1 / n_images), n_resamples)
    pooled = _compute_mean_iou(counts.sum(axis=1))
    # All fields use the same bootstrap samples, so the intervals belong to paired differences.
    resampled = _compute_mean_iou(np.einsum("ri,fick->frck", drawn, counts))
    low, high = np.quantile(resampled - resampled[0], [0.025, 0.975], axis=1)
    image_iou = _compute_mean_iou(counts)
    p_value = [1.0 if np.array_equal(one, image_iou[0]) else wilcoxon(one, image_iou[0]).pvalue for one in image_iou]
    totals = counts.sum(axis=1)
    return RefinementReport(
        names=names,
        mean_iou=pooled,
        accuracy=totals[:, 0].sum(axis=1) / totals[:, 2].sum(axis=1),
        difference=pooled - pooled[0],
        low=low,
        high=high,
        p_value=np.array(p_value),
        image_iou=image_iou,
    )


def _compute_mean_iou(counts):
    """Return the mean intersection over union of all classes that are present, given counts (..., 3, n_classes)."""
    hit, union, present = np.moveaxis(counts, -2, 0)
    iou = np.where(present > 0, hit / np.where(union > 0, union, 1), 0.0)
    return iou.sum(axis=-1) / np.maximum((present > 0).sum(axis=-1), 1)
