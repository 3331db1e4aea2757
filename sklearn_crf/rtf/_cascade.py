"""Cascades of regression tree fields: each sees, besides the input, the prediction of the one before."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf.encoding import number_of_examples, object_array, validate_sample_weight
from sklearn_crf.rtf._data import TreeData, solver_of
from sklearn_crf.rtf._joint import JointTraining
from sklearn_crf.rtf._options import Cascade
from sklearn_crf.rtf._plan import FieldOptions, FieldPlan
from sklearn_crf.rtf._prediction import FittedField, restored_values
from sklearn_crf.rtf._training import Trained, train
from sklearn_crf.rtf.images._corruption import corrupted_image
from sklearn_crf.rtf.images._degradation import Degradations, Observation, degraded_image, read_clean
from sklearn_crf.rtf.images._input import Reading
from sklearn_crf.rtf.images._units import InputSample


def train_cascade(cascade: Cascade, options: FieldOptions, X, y, sample_weight, callbacks: list):
    """Train the fields of a cascade; returns what was found of each, and attributes of all together."""
    # callbacks: as of ``train``, for each field
    targets: Any = options.targets
    if cascade.joint and not targets.are_predicted:
        raise ValueError(f"joint training of a cascade needs a loss of predictions, got loss={targets.loss!r}.")
    seed = int(np.random.RandomState(options.seed).randint(np.iinfo(np.int32).max))
    X, y, is_grey, degradations = read_clean(X, y, targets.corruption, targets.degradation)
    if y is not None and number_of_examples(y, "y") != len(X):
        raise ValueError(f"y has {len(y)} examples, but X has {len(X)}.")
    sample_weight = validate_sample_weight(sample_weight, len(X))
    folds = _Folds.of(cascade if y is not None else Cascade(1), len(X), seed)
    stages, found, of_folds, seen = list[FieldOptions](), list[Trained](), list[list[Trained]](), X
    for k in range(cascade.n_fields):
        own, own_degradations, n_predicted = options, degradations, 0
        if found:
            # Later fields see a corruption that the former ones were not trained on.
            drawn, own_degradations = _redrawn(targets.corruption, X, degradations, [seed, k])
            seen = drawn
            for stage, trained, others in zip(stages, found, of_folds, strict=True):
                predicted = folds.predicted(stage, trained, others, seen, own_degradations)
                seen = with_channels(drawn, predicted)
            n_predicted = np.shape(seen[0])[-1] - np.shape(drawn[0])[-1]
            own = replace(own, targets=replace(targets, corruption=None))
        # Fields that are trained together see the prediction before as it is.
        own = replace(own, n_unfiltered=n_predicted if cascade.joint else 0)
        stages.append(own)
        if k < cascade.n_fields - 1:
            of_folds.append(folds.trained(own, seen, y, sample_weight, own_degradations, callbacks[k]))
        found.append(_trained(own, seen, y, sample_weight, own_degradations, callbacks[k]))
    of_all = {}
    if cascade.joint and cascade.n_fields > 1:

        def seen_by_all(number, fitted):
            own, drawn = _redrawn(targets.corruption, X, degradations, [seed, cascade.n_fields, number])
            inputs = [own]
            for stage, attributes in zip(stages[:-1], fitted, strict=False):
                inputs.append(with_channels(own, _predicted(stage, attributes, inputs[-1], drawn)))
            return inputs, drawn

        training = JointTraining(stages, [own.attributes for own in found], seen_by_all, y, sample_weight, seed)
        curve = training.run(cascade.joint)
        found = [own._replace(attributes=better) for own, better in zip(found, training.fitted, strict=True)]
        of_all["joint_curve_"] = curve
    found[0].attributes["_is_grey"] = found[-1].attributes["_is_grey"] = is_grey
    return found, of_all


def _trained(options, X, y, sample_weight, degradations, callbacks):
    """A field that is trained on images on the lattice of y."""
    read = options.targets.read(options.reading, X, y, sample_weight, False, degradations)
    data = TreeData.of(options.targets, read)
    return train(data, FieldPlan.of(options, data), partial(callbacks, X, y))


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

    def trained(self, options, X, y, sample_weight, degradations, callbacks):
        """Fields that are trained on all parts but one."""
        found = []
        for own in self.members:
            others = np.setdiff1d(np.arange(len(X)), own)
            weight = None if sample_weight is None else sample_weight[others]
            some = _taken(X, others), _taken(y, others), weight, _of_some(degradations, others)
            found.append(_trained(options, *some, callbacks))
        return found

    def predicted(self, options, trained, others, X, degradations):
        """Predictions of a field, or of those that were trained on other images."""
        if not self.members:
            return _predicted(options, trained.attributes, X, degradations)
        found: list = [None] * len(X)
        for own, field in zip(self.members, others, strict=True):
            values = _predicted(options, field.attributes, _taken(X, own), _of_some(degradations, own))
            for i, value in zip(own, values, strict=True):
                found[i] = value
        return _in_layout_of(X, found)


def _predicted(options, fitted, X, degradations):
    """The prediction of a trained field for images on the lattice of y."""
    solver = solver_of(options.targets.inference, 1e-5)
    return values_of(options.reading.knowing(fitted), solver, options.n_jobs, X, degradations)


def _taken(values, members):
    return [values[i] for i in members] if isinstance(values, list | tuple) else np.asarray(values)[members]


def _of_some(degradations, members):
    """Degradations of some of the images."""
    return None if degradations is None else degradations._replace(choices=[degradations.choices[i] for i in members])


def seen_by_last(readings: list[Reading], solver, n_jobs, X, degradations):
    """Input of the last field of a cascade, from the readings of the fields before it."""
    seen = X
    for reading in readings:
        seen = with_channels(X, values_of(reading, solver, n_jobs, seen, degradations))
    return seen


def values_of(reading: Reading, solver, n_jobs, X, degradations):
    """The prediction of one field for images on the lattice of y."""
    planes, observations = observed_planes(reading, X, degradations)
    means = FittedField.of(reading.known).means(planes, solver, n_jobs, None, observations)[0]
    return restored_values(reading.known, None, planes, means)


def observed_planes(reading: Reading, X, degradations):
    """Planes of images that were lifted to the lattice of y, and what they add to the fields."""
    planes = reading.planes_to_predict(X)
    if degradations is None:
        return planes, None
    mean, scale = reading.known["target_mean_"], reading.known["target_scale_"]
    made = partial(Observation.of, mean=mean, scale=scale, units=planes.units)
    return planes, [made(own[0], x) for own, x in zip(degradations.choices, planes.features, strict=True)]


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
    return _in_layout_of(X, drawn), Degradations([(own,) for own in used], of_clean=False) if of_clean else None


def with_channels(X, predicted):
    """Images with more channels, in the layout of X."""
    values = [p[..., None] if np.ndim(p) < np.ndim(x) else p for x, p in zip(X, predicted, strict=True)]
    kind = np.result_type(InputSample.of(X).kind, InputSample.of(values).kind)
    joined = [np.concatenate([np.asarray(x), own], axis=-1, dtype=kind) for x, own in zip(X, values, strict=True)]
    return _in_layout_of(X, joined)


def _in_layout_of(X, images):
    """Images as one array, or an array of objects where X is a list."""
    is_list = isinstance(X, list | tuple) or np.asarray(X).dtype == object
    return object_array(images) if is_list else np.stack(images)
