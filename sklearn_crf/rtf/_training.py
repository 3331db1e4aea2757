"""Training of regression tree fields, which alternates between optimising parameters and splitting leaves."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._threads import keep_tasks_in_process, limit_blas_threads, map_tasks
from sklearn_crf.preprocessing._default_bank import DEFAULT_BANKS, image_channels
from sklearn_crf.rtf import _rounds
from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._deviations import fit_held_out_errors, is_worse_than_mean
from sklearn_crf.rtf._objectives import FieldRisk, GaussianPseudolikelihood, PredictionLoss, group_stacks, make_solver
from sklearn_crf.rtf._potentials import FieldImage, RegressionTreePotentials
from sklearn_crf.rtf._scaling import ScaledLoss, compute_type_whitening
from sklearn_crf.rtf._trees import RegressionTree, build_factor_templates, find_splits
from sklearn_crf.rtf.images._channels import count_masks
from sklearn_crf.rtf.images._input import check_multipliers, choose_channels, choose_multiplier_channels


def _sum_for_regression(data, part, kind, white, n_images, rng):
    """Sample pixels; return their number, and sums of products of whitened inputs and targets."""
    inputs, targets = [np.zeros((0, len(white)))], []
    for k, plane in enumerate(data.features):
        # Choose pixels with a known target that the input does not already determine.
        missing = np.isnan(data.targets[k]).any(axis=1)
        observed = None if data.observations is None else data.observations[k].diagonal
        free = np.flatnonzero(~missing if observed is None else ~missing & (observed == 0).any(axis=1))
        n = min(len(free), max(1, tuned.SAMPLES_OF_WHITENING // n_images))
        # A factor of a single pixel has the same index as the pixel.
        own = free if n == len(free) else rng.choice(free, n, replace=False)
        inputs.append(kind.inputs(kind.seen(plane), own) @ white.T)
        targets.append(data.targets[k][own])
    if not targets:
        return 0, 0.0, 0.0, 0.0
    inputs, targets = (np.concatenate(part).astype(np.float64) for part in (inputs, targets))
    return len(inputs), inputs.T @ inputs, inputs.T @ targets, float(np.sum(targets**2))


def _halve(spans, channel, kind, end):
    """Return, for each leaf, a split that halves the range of types of the factor's first (end 0) or second node."""
    # spans: dict from each leaf to the range of node types in this leaf
    test = np.zeros(9, dtype=np.int32)
    test[0], test[3] = channel, -1
    if end:
        test[1], test[2], test[7] = kind.down, kind.right, kind.slices
    test = test if test[7] else test[:7]
    return {leaf: (test, own[len(own) // 2] - 0.5) for leaf, own in spans.items() if len(own) > 1}


class TreeField(NamedTuple):
    """Trees, and the parameters of their leaves."""

    trees: list
    potentials: RegressionTreePotentials
    coef: np.ndarray

    @classmethod
    def stumps(cls, types, whitening, n_values, bounds):
        """Return a field with single-leaf trees, identity precisions, zero weights and slopes."""
        potentials = RegressionTreePotentials(types, [1] * len(types), whitening, n_values)
        return cls([RegressionTree.stump() for _ in types], potentials, potentials.project(potentials.start(), bounds))

    @classmethod
    def smooth(cls, types, whitening, n_values, bounds, differences):
        """Return a field with single-leaf trees, without linear models, whose smoothness matches target differences."""
        # differences: for each type, the mean square difference between the targets at the two pixels of a factor
        field = cls.stumps(types, whitening, n_values, bounds)
        n_pairs = max(1, len(types) - 1)
        parts = field.potentials.unpack(field.coef)
        for kind, part, difference in zip(types, parts, differences, strict=True):
            part.precision[:] = bounds[0] * np.eye(part.precision.shape[1])
            if kind.paired:
                weight = min(1 / (n_pairs * max(difference, 1e-6)), bounds[1] / 2)
                part.precision[:] += weight * np.kron([[1, -1], [-1, 1]], np.eye(n_values))
        return field._replace(coef=field.potentials.project(field.coef, bounds))

    def start_from_regression(self, data, bounds, rng):
        """Return the field with unary terms from a linear regression; smaller errors give a higher precision."""
        white = self.potentials.whitening[0]
        kind = self.potentials.types[0]
        n, inner, cross, squares = data.total(_sum_for_regression, kind, white, data.n_images, rng)
        if n < tuned.SAMPLES_OF_INPUT * len(white):
            return self
        linear = np.linalg.solve(inner + n * tuned.LEAST_VARIANCE * np.eye(len(white)), cross)
        rest = squares - 2 * np.sum(linear * cross) + np.sum(linear * (inner @ linear))
        error = max(float(rest) / (n * linear.shape[1]), 1 / bounds[1])
        coef = self.coef.copy()
        part = self.potentials.unpack(coef)[0]
        part.precision[:] = tuned.TRUST_IN_REGRESSION * np.eye(part.precision.shape[1]) / error
        part.weight[:] = tuned.TRUST_IN_REGRESSION * linear.T / error
        return self._replace(coef=self.potentials.project(coef, bounds))

    @classmethod
    def restored(cls, types, whitening, n_values, fitted):
        """Restore the field from fitted attributes, with linear models of whitened inputs."""
        trees = [RegressionTree(**tree) for tree in fitted["trees_"]]
        potentials = RegressionTreePotentials(types, [tree.n_leaves for tree in trees], whitening, n_values)
        white = [weight @ np.linalg.pinv(v) for weight, v in zip(fitted["weights_"], whitening, strict=True)]
        return cls(trees, potentials, potentials.pack(fitted["precisions_"], white, fitted["slopes_"]))

    def attributes(self, whitening):
        """Return fitted attributes: trees, and parameters with linear models in the units of the channels."""
        parameters = self.potentials.unpack(self.coef)
        return {
            "trees_": [tree._asdict() for tree in self.trees],
            "precisions_": [part.precision.copy() for part in parameters],
            "slopes_": [part.slopes.copy() for part in parameters],
            "weights_": [part.weight @ white for part, white in zip(parameters, whitening, strict=True)],
        }

    def moved(self, coef, share):
        """Return the field with parameters interpolated between its own (``share=0``) and ``coef`` (``share=1``)."""
        return self._replace(coef=coef if share == 1 else (1 - share) * self.coef + share * coef)

    def split(self, splits):
        """Return the field after splits of leaves; new leaves have the parameters of their parents."""
        grown = [tree.split(own) for tree, own in zip(self.trees, splits, strict=True)]
        trees = [tree for tree, _ in grown]
        parents = [parent for _, parent in grown]
        return TreeField(trees, *self.potentials.grown(self.coef, parents, [tree.n_leaves for tree in trees]))

    def split_by_node_type(self, channel, n_types):
        """Return the field with a separate leaf for every node type, and for every pair of node types."""
        # channel: index of the channel that holds node types, from 0
        field = self
        for end in range(2):
            spans = [
                dict.fromkeys(range(tree.n_leaves), range(n_types)) if end == 0 or kind.paired else {}
                for tree, kind in zip(field.trees, self.potentials.types, strict=True)
            ]
            sides = list(zip(spans, self.potentials.types, strict=True))
            while any(splits := [_halve(own, channel, kind, end) for own, kind in sides]):
                for own, split, tree in zip(spans, splits, field.trees, strict=True):
                    for new, leaf in enumerate(sorted(split), tree.n_leaves):
                        middle = len(own[leaf]) // 2
                        own[leaf], own[new] = own[leaf][:middle], own[leaf][middle:]
                field = field.split(splits)
        return field

    def images(self, data, n_jobs):
        """Look up the leaves of all factors in a data set; return the images with these leaves."""
        observations = [None] * len(data.features) if data.observations is None else data.observations
        parts = list(zip(data.features, data.graphs, observations, strict=True))
        types = self.potentials.types

        def one(part, n_threads):
            features, graph, observation = part
            return FieldImage.of(features, graph, types, self.trees, n_threads, observation)

        return map_tasks(one, parts, n_jobs)

    def risk(self, objective, data, n_jobs, whole=None):
        """Return the mean loss over a data set.

        If the data set is a shard, ``whole`` describes all shards.
        """
        if hasattr(data, "risk"):
            return data.risk(objective, self)
        images = self.images(data, n_jobs)
        of_data = data.targets, data.weights, n_jobs, whole
        return FieldRisk(objective, self.potentials, images, *of_data, group_stacks(images, objective))

    def rebuild_risk(self, risk, data, n_jobs):
        """Return the mean loss over the same data set after splits, keeping warm starts."""
        if hasattr(data, "risk"):
            return risk.replaced(self)
        return risk.replaced(self.potentials, self.images(data, n_jobs))


class Course(NamedTuple):
    """Trained field, with the record of its training."""

    field: TreeField
    loss_curve: np.ndarray  # loss at the start and after every iteration of all rounds
    rounds: np.ndarray  # total number of iterations at the end of each round
    validation_curve: np.ndarray  # loss on held-out data at the end of each round
    success: bool  # whether the last round reached the tolerance
    is_stuck: bool  # whether the last round found no better point at the precision of float32
    solved: bool  # whether every solve reached its tolerance


def compute_round_share(number, n_pixels):
    """Return the weight of a round in the average over rounds; ``number`` is 1 for the second round."""
    return max(tuned.LEAST_SHARE_OF_ROUND, n_pixels / (n_pixels + tuned.PIXELS_OF_HALF), 1 / number)


def count_known_pixels(data, part):
    """Return the number of pixels with a known target and positive weight."""
    known = [~np.isnan(target).any(axis=1) for target in data.targets]
    weights = known if data.weights is None else data.weights
    return sum(int(np.count_nonzero(own & (weight > 0))) for own, weight in zip(known, weights, strict=True))


def sum_known_pixel_weights(data, part) -> float:
    """Return the total weight of the pixels with a known target."""
    if data.weights is None:
        return float(count_known_pixels(data, part))
    known = (~np.isnan(target).any(axis=1) for target in data.targets)
    return float(sum(np.sum(weight[own], dtype=np.float64) for own, weight in zip(known, data.weights, strict=True)))


def optimise_and_split(plan, objective, field, rounds, first, depths, rng, held_out_loss, on_iteration):
    """Alternate between optimising parameters and splitting leaves until the trees reach their maximum depth."""
    # depths: maximum depth of each type; held_out_loss: function of a field, or None if nothing is held out
    # on_iteration: function of the field and of a function that returns the field's parameters; returns whether to stop
    data = rounds(first)
    risk = field.risk(objective, data, plan.n_jobs)

    def splits_of(risk, field):
        return find_splits(risk, field.trees, field.coef, depths, plan.split, plan.bounds, rng)

    if plan.former is not None:
        field = field.split(splits_of(risk, field))
        risk = field.rebuild_risk(risk, data, plan.n_jobs)
    if plan.split.criterion == "residual":
        while any(splits := splits_of(risk, field)):
            field = field.split(splits)
            risk = field.rebuild_risk(risk, data, plan.n_jobs)
    curve, rounds_made, held_out, best, is_new = list[float](), list[int](), list[float](), None, False
    while True:
        has_parents = plan.former is not None or bool(rounds_made) or plan.split.criterion == "residual"
        found = _optimise(plan, risk, objective, field, rng, has_parents, on_iteration)
        share = (
            compute_round_share(len(rounds_made), data.total(count_known_pixels))
            if is_new and not found.stopped
            else 1.0
        )
        field = field.moved(found.x, share)
        curve += list(found.loss_curve if not curve else found.loss_curve[1:])
        rounds_made.append(len(curve) - 1)
        plan.report(rounds_made, found.fun, risk.potentials.n_leaves)
        if found.stopped:
            break
        if held_out_loss is not None:
            held_out.append(objective.reported * held_out_loss(field))
            if held_out[-1] < min(held_out[:-1], default=np.inf):
                best = field
            elif len(held_out) - 1 - np.argmin(held_out) == tuned.PATIENCE:
                break
        splits = splits_of(risk, field)
        if not any(splits):
            break
        field = field.split(splits)
        former_data, data = data, rounds(first + len(rounds_made))
        is_new = data is not former_data
        risk = field.risk(objective, data, plan.n_jobs) if is_new else field.rebuild_risk(risk, data, plan.n_jobs)
    if best is not None and not found.stopped:
        field = best
    is_stuck = not found.success and found.nit < plan.max_iter
    curves = np.array(curve), np.array(rounds_made), np.array(held_out)
    return Course(field, *curves, found.success, is_stuck, risk.converged)


def _optimise(plan, risk, objective, field, rng, has_parents, on_iteration):
    """Optimise the parameters of the current leaves.

    Attribute ``stopped`` of the result is True if the callback requested to stop.
    """
    risk.converged, stopped = True, False
    # Initial leaves have no parents towards which their models could be pulled.
    is_split = has_parents and max(risk.potentials.n_leaves) > 1
    strength = plan.solver.shrinkage if is_split else 0.0
    loss = ScaledLoss(risk.value_grad, [risk], [field.coef], [strength], rng)

    def callback(point):
        nonlocal stopped
        stopped = bool(on_iteration(field, lambda: loss.coefs(point.x, plan.bounds)[0]))
        return stopped

    found, unit = loss.minimised(plan, objective.unit, callback), objective.unit * objective.reported
    found.x, found.stopped = loss.coefs(found.x, plan.bounds)[0], stopped
    found.fun, found.loss_curve = unit * found.fun, unit * np.asarray(found.loss_curve)
    return found


class Trained(NamedTuple):
    """Fitted attributes of a trained field, and warnings to issue."""

    attributes: dict
    warnings: list  # tuples of a message and its category


def train(data, plan, callbacks):
    """Train a field on the data of a fit."""
    # callbacks: function of the number of iterations; returns a context manager that yields an iteration callback
    rng = np.random.RandomState(plan.seed)
    kept, held_out = choose_held_out_images(plan, data.images, rng)
    seed = int(rng.randint(np.iinfo(np.int32).max))
    rounds = data.images.rounds(kept, plan.solver.max_samples, _choose_sampling(plan), seed, plan.n_jobs)
    # Filters are only fitted to training images.
    inputs, *known = rounds.get_first_pairs(tuned.IMAGES_OF_BANK)
    bank = _rounds.fit_bank(plan, inputs, *known)
    rounds.take_bank(bank)
    validation = None
    if held_out is not None:
        of_held_out = data.images.rounds(held_out, None, None, seed + 1, plan.n_jobs)
        of_held_out.take_bank(bank)
        validation = of_held_out(0)
    # In a warm start, continue the numbering of rounds, so that new rounds draw new parts and a new corruption.
    first = max(int(RegressionTree(**tree).depth) for tree in plan.former["trees_"]) + 1 if plan.former else 0
    types, channels = _build_types(plan, bank, rounds(first))
    with limit_blas_threads():
        whitening = compute_type_whitening(rounds(first), types, rng, plan.n_jobs)
    start = _build_start(plan, types, whitening, rounds, first, rng)
    depth = plan.choose_depth(start.potentials.n_coef_of_leaves)
    depths = plan.choose_type_depths(depth)
    attributes = _collect_known_attributes(plan, data.encoded, inputs[0].shape[-1], bank, types, channels)
    with limit_blas_threads(), keep_tasks_in_process(), callbacks(plan.max_iter * (max(depths) + 1)) as iteration:

        def on_iteration(field, coef):
            return iteration(lambda: attributes | field._replace(coef=coef()).attributes(whitening))

        def held_out_loss(field):
            return field.risk(plan.objective, validation, plan.n_jobs).value(field.coef)

        objective = plan.objective
        if plan.targets.are_scores:
            weight = rounds(first).total(sum_known_pixel_weights) or 1.0
            objective = replace(objective, ridge=plan.choose_ridge(depth) / weight)
        held_out = None if validation is None else held_out_loss
        course = optimise_and_split(plan, objective, start, rounds, first, depths, rng, held_out, on_iteration)
        errors = None
        if validation is not None and isinstance(plan.objective, PredictionLoss):
            errors = fit_held_out_errors(plan.objective, course.field, validation, rng, plan.n_jobs)
        is_vain = isinstance(plan.objective, GaussianPseudolikelihood) and not plan.is_observed
        solver = make_solver(plan.targets.inference, 1e-4)
        is_vain = is_vain and is_worse_than_mean(data.images, bank, course.field, solver, plan.n_jobs)
        # The data of the last round are still in memory.
        last = partial(rounds, first + len(course.rounds) - 1)
        attributes |= plan.targets.learned(plan.objective, course.field, last, attributes, plan.n_jobs)
    curves = {"loss_curve_": course.loss_curve, "round_ends_": course.rounds, "n_iter_": int(course.rounds[-1])}
    curves |= {"validation_curve_": course.validation_curve, "held_out_errors_": errors}
    return Trained(attributes | course.field.attributes(whitening) | curves, _collect_warnings(plan, course, is_vain))


def choose_held_out_images(plan, images, rng):
    """Choose images to train on (None for all) and images to hold out (None without early stopping)."""
    if not plan.solver.early_stopping:
        return None, None
    choices = _rounds.split_off(images, plan.solver.validation_fraction, rng, plan.is_table)
    if all(map(images.has_targets, choices)):
        return choices
    if plan.must_stop_early:
        raise ValueError(
            "early_stopping=True needs known values of y both in the held-out part and in the rest, but one of "
            "these parts has none: use FieldSolver(early_stopping=False)."
        )
    return None, None


def _choose_sampling(plan):
    """Return the function that samples a round's pixels, or None to sample rectangles of images."""
    if plan.is_table:
        return partial(_rounds.sample_rows, max_samples=plan.solver.max_samples)
    if not isinstance(plan.objective, GaussianPseudolikelihood):
        return None
    margin = int(np.abs(plan.offsets).max(initial=0)) + plan.split.feature_radius
    return partial(_rounds.sample_variables, max_samples=plan.solver.max_samples, margin=margin)


def _build_types(plan, bank, data):
    """Return the factor types, and the channels used by the linear models of pairs."""
    n_channels = next(n for n in data.parts(_count_channels) if n is not None)
    pairwise = plan.window.pairwise_channels
    is_default = isinstance(plan.filter_bank, str) and plan.filter_bank in DEFAULT_BANKS
    if pairwise is None and is_default and bank is not None:
        pairwise = image_channels(bank, n_channels)
    channels = choose_channels(pairwise, n_channels)
    multipliers = choose_multiplier_channels(plan.window.precision_channels, n_channels)
    data.parts(_check_multipliers, multipliers)
    former = plan.former
    if former is not None:
        known = choose_channels(former["pairwise_channels_"], former["weights_"][0].shape[2] - 1)
        if channels != known or list(multipliers) != former["precision_channels_"].tolist():
            raise ValueError("warm_start needs the same pairwise_channels and precision_channels as the previous fit.")
    types = build_factor_templates(plan.offsets, channels, multipliers)
    return types, range(n_channels) if channels is None else channels


def _build_start(plan, types, whitening, rounds, first, rng):
    """Return the initial field: for a warm start the field of the last fit, else trees with one leaf per node type."""
    former, n_values, bounds = plan.former, len(plan.common.mean), plan.bounds
    if former is not None:
        return TreeField.restored(types, whitening, n_values, former)
    if plan.is_observed:
        differences = [total / max(count, 1) for total, count in rounds.sum_square_differences(types)]
        field = TreeField.smooth(types, whitening, n_values, bounds, differences)
    else:
        field = TreeField.stumps(types, whitening, n_values, bounds)
    # The last channel holds the node type.
    field = field.split_by_node_type(whitening[0].shape[1] - 2, plan.n_node_types)
    return field.start_from_regression(rounds(first), bounds, rng) if plan.is_observed else field


def _collect_known_attributes(plan, encoded, n_inputs, bank, types, channels):
    """Return the fitted attributes that are known before training."""
    # n_inputs: number of channels of an image before filtering
    names = {} if encoded.feature_names is None else {"feature_names_in_": encoded.feature_names}
    return {
        **plan.common.attributes,
        **names,
        "n_features_in_": n_inputs - count_masks(plan.missing) - (plan.n_node_types > 1),
        "lattice_ndim_": plan.lattice_ndim,
        "offsets_": plan.offsets,
        "filter_bank_": bank,
        "missing_channels_": np.array(plan.missing, dtype=np.int64),
        "pairwise_channels_": np.array(channels, dtype=np.int64),
        "precision_channels_": np.array(types[0].multipliers, dtype=np.int64),
        "target_mean_": plan.common.mean,
        "target_scale_": plan.common.scale,
    }


def _count_channels(data, part):
    return data.features[0].shape[-1] if data.features else None


def _check_multipliers(data, part, multipliers):
    if data.features:
        check_multipliers(data.features, multipliers)


def _collect_warnings(plan, course, is_vain):
    """Return the warnings to issue, as tuples of message and category."""
    found = []
    if is_vain:
        message = (
            "predictions for training images are farther from y than the mean of y is: the pseudolikelihood gives "
            "neighbours too much influence where y is smooth. Use loss='mse', a smaller max_depth, or a larger "
            "lower bound of eigenvalues, FieldSolver(eigenvalue_bounds=(1, 10))."
        )
        found.append((message, UserWarning))
    if not course.solved:
        message = (
            "conjugate gradients did not reach their tolerance for some image: increase max_iter of inference, or "
            "the lower bound in eigenvalue_bounds of FieldSolver."
        )
        found.append((message, ConvergenceWarning))
    if not course.success and plan.has_given_max_iter:
        reason = f"the last round stopped after max_iter={plan.max_iter} iterations: increase max_iter or tol."
        if course.is_stuck:
            reason = f"the last round reached the precision of float32 before tol={plan.tol}: increase tol."
        found.append((reason, ConvergenceWarning))
    return found
