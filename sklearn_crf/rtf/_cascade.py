"""Cascades of regression tree fields, in which each field also receives the previous field's prediction."""

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._threads import keep_tasks_in_process, limit_blas_threads, map_tasks, split_into_ranges
from sklearn_crf.encoding import count_examples, validate_sample_weight
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._objectives import FieldRisk, compute_mean_statistics, make_solver
from sklearn_crf.rtf._options import Cascade
from sklearn_crf.rtf._plan import FieldOptions, FieldPlan, TreeData
from sklearn_crf.rtf._potentials import FieldImage, at_ends
from sklearn_crf.rtf._prediction import FittedField, restore_known_values
from sklearn_crf.rtf._rounds import draw_rectangles
from sklearn_crf.rtf._scaling import ScaledLoss, compute_type_whitening
from sklearn_crf.rtf._training import Trained, TreeField, choose_held_out_images, train
from sklearn_crf.rtf.images._channels import ChannelUnits, InputSample, count_masks, match_layout
from sklearn_crf.rtf.images._corruption import corrupt_image
from sklearn_crf.rtf.images._degradation import Degradations, Observation, degrade_image, read_images, solve_from_image
from sklearn_crf.rtf.images._input import Reading


def train_cascade(cascade: Cascade, options: FieldOptions, X, y, sample_weight, callbacks: list):
    """Train the fields of a cascade; return the trained fields and the fitted attributes of the cascade."""
    # callbacks: for each field, the argument that ``train`` receives as ``callbacks``
    targets: Any = options.targets
    if cascade.joint and not targets.are_predicted:
        raise ValueError(f"joint training of a cascade needs a prediction loss, got loss={targets.loss!r}.")
    seed = int(np.random.RandomState(options.seed).randint(np.iinfo(np.int32).max))
    of_lattice = options.reading.window.lattice_ndim
    X, y, is_grey, degradations = read_images(X, y, targets.corruption, targets.degradation, of_lattice)
    if y is not None and count_examples(y, "y") != len(X):
        raise ValueError(f"y has {len(y)} examples, but X has {len(X)}.")
    sample_weight = validate_sample_weight(sample_weight, len(X))
    folds = _split_into_folds(cascade if y is not None else Cascade(1), len(X), seed)
    stages, found, of_folds, seen = list[FieldOptions](), list[Trained](), list[list[Trained]](), X
    for k in range(cascade.n_fields):
        own, own_degradations, n_predicted = options, degradations, 0
        if found:
            # Later fields are trained on a new corruption, which was not used to train the earlier fields.
            drawn, own_degradations = _redraw_images(targets.corruption, X, degradations, [seed, k])
            seen = drawn
            for stage, trained, others in zip(stages, found, of_folds, strict=True):
                predicted = _predict_by_folds(stage, trained, folds, others, seen, own_degradations)
                seen = append_channels(drawn, predicted)
            n_predicted = np.shape(seen[0])[-1] - np.shape(drawn[0])[-1]
            own = replace(own, targets=replace(targets, corruption=None))
        # In joint training, the filters of later fields skip the previous prediction.
        own = replace(own, n_unfiltered=n_predicted if cascade.joint else 0)
        stages.append(own)
        if k < cascade.n_fields - 1:
            of_folds.append([])
            for members in folds:
                others = np.setdiff1d(np.arange(len(X)), members)
                weight = None if sample_weight is None else sample_weight[others]
                some = _take(seen, others), _take(y, others), weight, _select_degradations(own_degradations, others)
                of_folds[-1].append(_train_field(own, *some, callbacks[k]))
        found.append(_train_field(own, seen, y, sample_weight, own_degradations, callbacks[k]))
    of_all = {}
    if cascade.joint and cascade.n_fields > 1:

        def seen_by_all(number, fitted):
            own, drawn = _redraw_images(targets.corruption, X, degradations, [seed, cascade.n_fields, number])
            readings = [
                stage.reading.match_fitted_attributes(found) for stage, found in zip(stages, fitted, strict=True)
            ]
            return build_field_inputs(readings, make_solver(targets.inference), options.n_jobs, own, drawn), drawn

        training = JointTraining(stages, [own.attributes for own in found], seen_by_all, y, sample_weight, seed)
        curve = training.run(cascade.joint)
        found = [own._replace(attributes=better) for own, better in zip(found, training.fitted, strict=True)]
        of_all["joint_curve_"] = curve
    found[0].attributes["_is_grey"] = found[-1].attributes["_is_grey"] = is_grey
    return found, of_all


def _train_field(options, X, y, sample_weight, degradations, callbacks):
    """Train a field on images on the lattice of y."""
    read = options.targets.read(options.reading, X, y, sample_weight, False, degradations)
    data = TreeData.of(options.targets, read)
    return train(data, FieldPlan.of(options, data), partial(callbacks, X, y))


def _split_into_folds(cascade, n_images, seed):
    """Return the indices of the images in each random fold; the list is empty if there are no folds."""
    if cascade.n_folds is None or cascade.n_fields == 1:
        return []
    if n_images < cascade.n_folds:
        raise ValueError(
            f"cascade with n_folds={cascade.n_folds} needs at least as many images as folds, got {n_images}."
        )
    order = np.random.default_rng(seed).permutation(n_images)
    return [np.sort(order[k :: cascade.n_folds]) for k in range(cascade.n_folds)]


def _predict_by_folds(options, trained, folds, of_folds, X, degradations):
    """Predict training images; with folds, predict each image by a field that was trained on the other folds."""
    if not folds:
        return _predict_field(options, trained.attributes, X, degradations)
    found: list = [None] * len(X)
    for own, field in zip(folds, of_folds, strict=True):
        values = _predict_field(options, field.attributes, _take(X, own), _select_degradations(degradations, own))
        for i, value in zip(own, values, strict=True):
            found[i] = value
    return match_layout(X, found)


def _predict_field(options, fitted, X, degradations):
    """Return the prediction of a trained field for images on the lattice of y."""
    solver = make_solver(options.targets.inference)
    return values_of(options.reading.match_fitted_attributes(fitted), solver, options.n_jobs, X, degradations)


def _take(values, members):
    return [values[i] for i in members] if isinstance(values, list | tuple) else np.asarray(values)[members]


def _select_degradations(degradations, members):
    """Return the degradations of the chosen images."""
    return None if degradations is None else degradations._replace(choices=[degradations.choices[i] for i in members])


def build_field_inputs(readings: list[Reading], solver, n_jobs, X, degradations) -> list:
    """Return the input of each field of a cascade: X and, for all but the first field, the previous prediction."""
    seen = [X]
    for reading in readings[:-1]:
        seen.append(append_channels(X, values_of(reading, solver, n_jobs, seen[-1], degradations)))
    return seen


def values_of(reading: Reading, solver, n_jobs, X, degradations):
    """Return the prediction of one field for images on the lattice of y."""
    planes, observations = read_observed_planes(reading, X, degradations)
    means = FittedField(reading.known).means(planes, solver, n_jobs, None, observations)[0]
    return restore_known_values(reading.known, None, planes, means)


def read_observed_planes(reading: Reading, X, degradations):
    """Read images on the lattice of y; return their planes and, for degraded images, the observation terms."""
    planes = reading.read_planes_to_predict(X)
    if degradations is None:
        return planes, None
    mean, scale = reading.known["target_mean_"], reading.known["target_scale_"]
    made = partial(Observation.of, mean=mean, scale=scale, units=planes.units)
    return planes, [made(own[0], x) for own, x in zip(degradations.choices, planes.features, strict=True)]


def _redraw_images(corruption, X, degradations, seeds):
    """Corrupt or degrade images anew; return the images and the degradations that were drawn."""
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
            drawn.append(degrade_image(np.asarray(x), used[-1], rng, kind))
        else:
            drawn.append(corrupt_image(corruption, np.asarray(x), rng, kind))
    return match_layout(X, drawn), Degradations([(own,) for own in used], of_clean=False) if of_clean else None


def append_channels(X, predicted):
    """Return X with predictions as additional channels."""
    values = [p[..., None] if np.ndim(p) < np.ndim(x) else p for x, p in zip(X, predicted, strict=True)]
    kind = np.result_type(InputSample.of(X).kind, InputSample.of(values).kind)
    joined = [np.concatenate([np.asarray(x), own], axis=-1, dtype=kind) for x, own in zip(X, values, strict=True)]
    return match_layout(X, joined)


def compute_channel_gradient(potentials, coef, image, linear, channels):
    """Convert the derivative with respect to h to the derivative with respect to the given channels of an image.

    The leaf of each factor is held fixed.
    """
    # linear: (N, D); channels: list of int; returns (..., len(channels))
    shape, n_channels = image.features.shape[:-1], image.features.shape[-1]
    out = np.zeros((*shape, len(channels)))
    parts = zip(potentials.types, potentials.unpack(coef), potentials.whitening, image.leaves, strict=True)
    for kind, part, white, leaf in parts:
        seen = list(range(n_channels)) if kind.channels is None else list(kind.channels)
        used = [k for k, channel in enumerate(channels) if channel in seen]
        if not used or not len(leaf):
            continue
        model, slope = part.weight @ white, np.concatenate(at_ends(linear, kind, shape), axis=1)
        for number, pixels in enumerate(kind.ends(shape)):
            columns = [1 + number * len(seen) + seen.index(channels[k]) for k in used]
            found = np.einsum("fm,fmc->fc", slope, model[:, :, columns][leaf])
            own = out[pixels]
            own[..., used] += found.reshape(*own.shape[:-1], len(used))
    return out


class Stage(NamedTuple):
    """One field of a cascade, with the images that it receives as input."""

    field: TreeField
    images: list  # list of FieldImage
    channels: list | None  # channels that hold the previous field's prediction; None for the first field
    mean: np.ndarray  # (D,); these channels equal mean + scale * (prediction of the previous field)
    scale: np.ndarray  # (D,), the factor ``scale`` above
    whitening: list | None = None  # whitening matrix of each factor type; only used in training

    @property
    def potentials(self):
        """Potentials of the field of this stage."""
        return self.field.potentials


class CascadeRisk:
    r"""Mean loss of the last field of a cascade as a function of the parameters of all fields.

    .. math::
        u^{(k)} = J_k^{-1} h_k(x, u^{(k - 1)}), \qquad
        \frac{\partial \ell}{\partial h_k} = c^{(k)} = J_k^{-1} \frac{\partial \ell}{\partial u^{(k)}}, \qquad
        \frac{\partial \ell}{\partial u^{(k - 1)}} = \Big( \frac{\partial h_k}{\partial u^{(k - 1)}} \Big)^\top c^{(k)}

    The leaves of factors are computed once for the given images, and do not change with the predictions.
    """

    # objective: PredictionLoss
    # stages: list of Stage
    # targets: list of (N, D)
    # weights: list of (N,) or None

    def __init__(self, objective, stages, targets, weights, n_jobs=None):
        self.objective, self.stages, self.n_jobs = objective, stages, n_jobs
        self.targets, self.weights = targets, weights
        # The risk of the last field holds the pixel weights, targets and warm starts for this field.
        self.last = FieldRisk(objective, stages[-1].potentials, stages[-1].images, targets, weights, n_jobs)
        self._starts: list[list] = [[(None, None)] * len(targets) for _ in stages[:-1]]
        self._ends = np.cumsum([stage.potentials.n_coef for stage in stages])[:-1]

    @property
    def coef(self):
        """Current parameters of all fields."""
        return np.concatenate([stage.field.coef for stage in self.stages])

    def parts(self, coef):
        """Return the parameters of each field."""
        return np.split(coef, self._ends)

    def value(self, coef):
        """Return the mean loss over images."""
        return self.value_grad(coef)[0]

    def value_grad(self, coef):
        """Return the mean loss over images and its derivative with respect to the parameters."""

        def group(members, n_threads):
            value, gradient = 0.0, np.zeros(len(coef))
            for i in range(*members):
                own = self._compute_image_loss(self.parts(coef), i, n_threads)
                value, gradient = value + own[0], gradient + own[1]
            return value, gradient

        found = map_tasks(group, split_into_ranges(len(self.last.images), tuned.LEAST_GROUPS), self.n_jobs)
        return sum(value for value, _ in found), np.sum([gradient for _, gradient in found], axis=0)

    def _compute_image_loss(self, coefs, i, n_threads):
        images, models, means = list[FieldImage](), [], list[np.ndarray]()
        with convergence_left_to_caller():
            for k, stage in enumerate(self.stages[:-1]):
                images.append(self._build_stage_input(stage, i, means, images))
                models.append(stage.potentials.model(coefs[k], images[k], n_threads))
                found = solve_from_image(
                    self.objective.solver, models[k], images[k].start, self._starts[k][i][0], n_threads
                )
                means.append(found.x)
        last = self.stages[-1]
        images.append(self._build_stage_input(last, i, means, images))
        parameters = last.potentials.at(coefs[-1], images[-1].features.dtype)
        loss = self.last.loss_of(parameters, images[-1], i, n_threads)
        gradients, linear = [last.potentials.pullback(images[-1], loss.statistics)], loss.statistics.linear
        for k in range(len(self.stages) - 2, -1, -1):
            after = self.stages[k + 1]
            slope = compute_channel_gradient(after.potentials, coefs[k + 1], images[k + 1], linear, after.channels)
            slope = after.scale * slope.reshape(means[k].shape)
            known = images[k].known
            slope = slope if known is None else np.where(known, 0.0, slope)
            linear, adjoint = self.objective.adjoint(models[k], slope, self._starts[k][i][1], n_threads)
            self._starts[k][i] = means[k], adjoint.x
            statistics = compute_mean_statistics(means[k], linear)
            gradients.append(self.stages[k].potentials.pullback(images[k], statistics))
        return loss.value, np.concatenate(gradients[::-1])

    def _build_stage_input(self, stage, i, means, images):
        """Return the input of a field for image i, with the previous field's prediction."""
        image = stage.images[i]
        if stage.channels is None:
            return image
        values, known = stage.mean + stage.scale * means[-1].astype(np.float64), images[-1].known
        if known is not None:
            values = np.where(known, stage.mean + stage.scale * images[-1].observation.start, values)
        features = image.features.copy()
        features[..., stage.channels] = values.reshape(*features.shape[:-1], -1)
        chosen = {kind.channels: kind for kind in stage.potentials.types if kind.channels is not None}
        return replace(image, features=features, chosen={key: kind.seen(features) for key, kind in chosen.items()})


class JointTraining:
    """Joint training of the fields of a cascade."""

    # stages: options of each field
    # fitted: fitted attributes of each field
    # seen: function of the round number and the fitted attributes; returns each field's input, and the degradations

    def __init__(self, stages, fitted, seen, y, sample_weight, seed):
        self.stages, self.fitted, self.seen = stages, fitted, seen
        self.y, self.sample_weight, self.seed = y, sample_weight, seed
        self.n_jobs = stages[-1].n_jobs

    def run(self, n_rounds):
        """Run joint training; return the loss at the start and after each round, if possible on held-out images."""
        best, curve = self.fitted, []
        with limit_blas_threads(), keep_tasks_in_process():
            for number in range(n_rounds + 1):
                risk, _ = self._build_risk(0, is_training=False)
                curve.append(risk.objective.reported * risk.value(risk.coef))
                if curve[-1] < min(curve[:-1], default=np.inf):
                    best = self.fitted
                if number < n_rounds:
                    self._round(number)
        self.fitted = best
        return np.array(curve)

    def _round(self, number):
        risk, plan = self._build_risk(1 + number, is_training=True)
        rng = np.random.RandomState((self.seed + number) % 2**32)
        risks, strengths = [], []
        for stage in risk.stages:
            of_data = stage.images, risk.targets, risk.weights, self.n_jobs
            risks.append(FieldRisk(risk.objective, stage.potentials, *of_data))
            strengths.append(plan.solver.shrinkage if max(stage.potentials.n_leaves) > 1 else 0.0)
        loss = ScaledLoss(risk.value_grad, risks, [stage.field.coef for stage in risk.stages], strengths, rng)
        coefs = loss.coefs(loss.minimised(plan, risk.objective.unit).x, plan.bounds)
        self.fitted = [
            fitted | stage.field._replace(coef=coef).attributes(stage.whitening)
            for fitted, stage, coef in zip(self.fitted, risk.stages, coefs, strict=True)
        ]

    def _build_risk(self, number, *, is_training):
        """Return the cascade's risk on a round's training or held-out images, and the plan of the last field."""
        inputs, degradations = self.seen(number, self.fitted)
        data = [self._read(*own, degradations) for own in zip(self.stages, self.fitted, inputs, strict=True)]
        options, last = data[-1]
        if last.encoded.lattice_ndim == 0:
            raise ValueError("joint training of a cascade needs images, volumes or chains, got plain samples.")
        plan = FieldPlan.of(options, last)
        kept, held_out = choose_held_out_images(plan, last.images, np.random.RandomState(plan.seed))
        choice = kept if is_training or held_out is None else held_out
        rng = np.random.RandomState((self.seed + 7919 * number) % 2**32)
        most: Any = plan.solver.max_samples
        cuts, made = None, []
        for fitted, (_, own) in zip(self.fitted, data, strict=True):
            rounds = own.images.rounds(choice, most, None, self.seed, self.n_jobs)
            rounds.bank = fitted["filter_bank_"]
            n_pixels = sum(map(prod, rounds.images.shapes))
            if most is not None and n_pixels > most and is_training:
                cuts = cuts or draw_rectangles(rounds.images.shapes, most, rounds.images.step, rng)
                made.append(rounds.rectangles(cuts, 0))
            else:
                made.append(rounds.prepare_whole_images(0))
        return self._prepare_risk(made, plan, rng), plan

    def _read(self, stage, fitted, X, degradations):
        """Return the options for further training of a fitted field, and the training data for this field."""
        targets = replace(stage.targets, corruption=None, former=fitted)
        options = replace(stage, targets=targets, reading=stage.reading.match_fitted_attributes(fitted))
        read = targets.read(options.reading, X, self.y, self.sample_weight, False, degradations)
        return options, TreeData.of(targets, read)

    def _prepare_risk(self, made, plan, rng):
        stages = list[Stage]()
        mean, scale = plan.common.mean, plan.common.scale
        n_values = len(mean)
        for fitted, data in zip(self.fitted, made, strict=True):
            types = FittedField(fitted).types
            white = compute_type_whitening(data, types, rng, self.n_jobs)
            field = TreeField.restored(types, white, n_values, fitted)
            images = field.images(data, self.n_jobs)
            end = images[0].features.shape[-1] - count_masks(fitted["missing_channels_"])
            channels = None if not stages else list(range(end - n_values, end))
            units = ChannelUnits.of(fitted, fitted["n_features_in_"])
            centre, unit = (part[-n_values:] for part in units)
            stages.append(Stage(field, images, channels, (mean - centre) * unit, scale * unit, white))
        return CascadeRisk(plan.objective, stages, made[-1].targets, made[-1].weights, self.n_jobs)
