"""Cascades of regression tree fields: each sees, besides the input, the prediction of the one before."""

from copy import copy
from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from sklearn_crf.encoding import number_of_examples, object_array, validate_sample_weight
from sklearn_crf.rtf._joint import JointTraining
from sklearn_crf.rtf._options import Cascade
from sklearn_crf.rtf.images._corruption import corrupted_image
from sklearn_crf.rtf.images._degradation import Degradations, degraded_image
from sklearn_crf.rtf.images._input import OF_CHANNELS
from sklearn_crf.rtf.images._units import InputSample

# Attributes of the last field of a cascade that are the estimator's as well.
_OF_LAST = (
    "trees_",
    "precisions_",
    "weights_",
    "offsets_",
    "slopes_",
    "pairwise_channels_",
    "precision_channels_",
    "target_mean_",
    "target_scale_",
    "loss_curve_",
    "round_ends_",
    "validation_curve_",
    "held_out_errors_",
    "n_iter_",
    "lattice_ndim_",
    "filter_bank_",
    "missing_channels_",
    "keeps_known_",
    "target_dtype_",
    "target_range_",
    "_has_channels",
    *OF_CHANNELS,
)


def fit_stages(estimator, cascade, X, y, sample_weight, degradations):
    """Fit the fields of a cascade and copy the attributes of the last one to the estimator."""
    # sample_weight: (n,); X on the lattice of y
    if estimator.warm_start:
        raise ValueError(f"warm_start goes on from a single field, got cascade={estimator.cascade}.")
    if cascade.joint and not estimator._is_prediction_loss():
        raise ValueError(f"joint training of a cascade needs a loss of predictions, got loss={estimator.loss!r}.")
    seed = int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))
    if y is not None and number_of_examples(y, "y") != len(X):
        raise ValueError(f"y has {len(y)} examples, but X has {len(X)}.")
    sample_weight = validate_sample_weight(sample_weight, len(X))
    folds = _Folds.of(cascade if y is not None else Cascade(1), len(X), seed)
    # Fields that are trained together hold out the same images as before.
    own_seed = estimator.random_state if isinstance(estimator.random_state, Integral) else seed
    of_joint = {"random_state": own_seed} if cascade.joint else {}
    stages, of_folds, seen = [], [], X
    for k in range(cascade.n_fields):
        options = {"cascade": 1, "clip": estimator.clip if k == cascade.n_fields - 1 else None}
        own_degradations = degradations
        n_predicted = 0
        if stages:
            # Later fields see a corruption that the former ones were not trained on.
            own, own_degradations = _redrawn(estimator.corruption, X, degradations, [seed, k])
            seen = own
            for stage, others in zip(stages, of_folds, strict=True):
                predicted = folds.predicted(stage, others, seen, own_degradations)
                seen = with_channels(own, predicted)
            options["corruption"] = None
            n_predicted = np.shape(seen[0])[-1] - np.shape(own[0])[-1]
        stage = clone(estimator).set_params(**options, **of_joint)
        if cascade.joint:
            stage._n_unfiltered = n_predicted
        if k < cascade.n_fields - 1:
            of_folds.append(folds.fitted(stage, seen, y, sample_weight, own_degradations))
        stage._fit_lifted(seen, y, sample_weight, False, own_degradations)
        # Callbacks of the estimator hear of every stage as of a fit of its own, and are not kept with it.
        vars(stage).pop("_skl_callbacks", None)
        stages.append(stage)
    if cascade.joint and cascade.n_fields > 1:

        def seen_by_all(number):
            own, drawn = _redrawn(estimator.corruption, X, degradations, [seed, cascade.n_fields, number])
            inputs = [own]
            for stage in stages[:-1]:
                inputs.append(with_channels(own, values_of(stage, inputs[-1], drawn)))
            return inputs, drawn

        training = JointTraining(estimator, stages, seen_by_all, y, sample_weight, seed)
        estimator.joint_curve_ = training.run(cascade.joint)
    estimator.stages_ = stages
    estimator.n_features_in_ = stages[0].n_features_in_
    if hasattr(stages[0], "feature_names_in_"):
        estimator.feature_names_in_ = stages[0].feature_names_in_
    for name in _OF_LAST:
        setattr(estimator, name, getattr(stages[-1], name))


class _Folds(NamedTuple):
    """Images in parts, each of which is predicted by fields that are trained on the others."""

    members: list  # of ndarray, images of each part; empty without folds

    @classmethod
    def of(cls, cascade, n_images, seed):
        """Parts drawn at random."""
        if cascade.n_folds is None or cascade.n_fields == 1:
            return cls([])
        if n_images < cascade.n_folds:
            raise ValueError(f"cascade with n_folds={cascade.n_folds} needs as many images, got {n_images}.")
        order = np.random.default_rng(seed).permutation(n_images)
        return cls([np.sort(order[k :: cascade.n_folds]) for k in range(cascade.n_folds)])

    def fitted(self, stage, X, y, sample_weight, degradations):
        """Fields that are trained on all parts but one."""
        found = []
        for own in self.members:
            others = np.setdiff1d(np.arange(len(X)), own)
            field = clone(stage)
            field._n_unfiltered = stage._n_unfiltered
            weight = None if sample_weight is None else sample_weight[others]
            field._fit_lifted(_taken(X, others), _taken(y, others), weight, False, _of_some(degradations, others))
            found.append(field)
        return found

    def predicted(self, stage, others, X, degradations):
        """Predictions of a field, or of those that were trained on other images."""
        if not self.members:
            return values_of(stage, X, degradations)
        found = [None] * len(X)
        for own, field in zip(self.members, others, strict=True):
            values = values_of(field, _taken(X, own), _of_some(degradations, own))
            for i, value in zip(own, values, strict=True):
                found[i] = value
        is_list = isinstance(X, list | tuple) or np.asarray(X).dtype == object
        return object_array(found) if is_list else np.stack(found)


def _taken(values, members):
    return [values[i] for i in members] if isinstance(values, list | tuple) else np.asarray(values)[members]


def _of_some(degradations, members):
    """Degradations of some of the images."""
    return None if degradations is None else degradations._replace(choices=[degradations.choices[i] for i in members])


def seen_by_last(stages, X, n_jobs, degradations=None):
    """Input of the last field of a cascade."""
    seen = X
    for stage in stages[:-1]:
        # A copy runs on the present number of threads; the kept fields do not change.
        seen = with_channels(X, values_of(copy(stage).set_params(n_jobs=n_jobs), seen, degradations))
    return seen


def values_of(field, X, degradations):
    """The prediction of one field for images on the lattice of y."""
    planes, observations = field._planes_on_lattice(X, degradations)
    return field._in_layout(planes, field._finished(field._field_means(planes, None, observations)[0]))


def _redrawn(corruption, X, degradations, seeds):
    """Images with a new corruption or degradation, and the degradations that were drawn."""
    of_clean = degradations is not None and degradations.of_clean
    if corruption is None and not of_clean:
        return X, degradations
    drawn, used = [], []
    kind = InputSample.of(X).kind
    for i, x in enumerate(X):
        rng = np.random.default_rng([*seeds, i])
        if of_clean:
            own = degradations.choices[i]
            used.append(own[rng.integers(len(own))])
            drawn.append(degraded_image(used[-1], np.asarray(x), rng, kind))
        else:
            drawn.append(corrupted_image(corruption, np.asarray(x), rng, kind))
    is_list = isinstance(X, list | tuple) or X.dtype == object
    found = object_array(drawn) if is_list else np.stack(drawn)
    return found, Degradations([(own,) for own in used], of_clean=False) if of_clean else None


def with_channels(X, predicted):
    """Images with more channels, in the layout of X."""
    values = [p[..., None] if np.ndim(p) < np.ndim(x) else p for x, p in zip(X, predicted, strict=True)]
    kind = np.result_type(InputSample.of(X).kind, InputSample.of(values).kind)
    if isinstance(X, list | tuple) or np.asarray(X).dtype == np.object_:
        return object_array([_joined(x, p, kind) for x, p in zip(X, predicted, strict=True)])
    return _joined(X, predicted, kind)


def _joined(x, values, kind):
    x, values = np.asarray(x, dtype=kind), np.asarray(values, dtype=kind)
    return np.concatenate([x, values[..., None] if values.ndim < x.ndim else values], axis=-1)
