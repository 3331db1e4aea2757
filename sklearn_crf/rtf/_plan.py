"""The plan of a fit: every parameter of a tree field, resolved once for the data at hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from sklearn_crf.rtf import _tuning as tuned
from sklearn_crf.rtf._data import OF_IMAGES, Common, Targets, TreeData, solver_of
from sklearn_crf.rtf._options import FieldSolver, Splits, Window
from sklearn_crf.rtf.images._channels import ChannelUnits
from sklearn_crf.rtf.images._input import Reading


@dataclass(frozen=True)
class FieldOptions:
    """Parameters of a tree field that have been checked, before there are data to resolve them for."""

    reading: Reading
    targets: Targets
    solver: FieldSolver
    split: Splits
    filter_bank: Any
    max_depth: int | str
    max_iter: int | str
    tol: float
    seed: int
    n_jobs: int | None
    verbose: int
    # Last channels of X that filters do not see; fields of cascades that are trained together have some.
    n_unfiltered: int = 0


@dataclass(frozen=True)
class FieldPlan:
    """Every parameter of a fit, resolved."""

    targets: Targets
    objective: Any  # without the penalty on scores, which goes by the leaves
    common: Common  # of the targets of all images
    offsets: np.ndarray  # (n_offsets, 2), or (n_offsets, 3) of volumes
    lattice_ndim: int
    units: ChannelUnits  # of the channels of X
    missing: tuple  # channels of X that may be NaN
    n_filtered: int  # first channels of X, which filters see
    n_node_types: int
    filter_bank: Any
    window: Window
    is_observed: bool  # whether fields have the terms of observations
    split: Splits
    method: str
    bounds: tuple  # of the eigenvalues of precisions
    max_iter: int
    has_given_max_iter: bool  # whether it is no choice of the package that training may stop at
    tol: float
    ridge: float | None  # None goes by the number of leaves
    shrinkage: float
    max_samples: int | None
    early_stopping: bool
    must_stop_early: bool  # whether it is an error if nothing can be held out
    validation_fraction: float
    depth: int | None  # of the trees of pixels; None goes by the number of parameters
    n_values: int  # values of y
    seed: int
    n_jobs: int | None
    verbose: int

    @classmethod
    def of(cls, options: FieldOptions, data: TreeData) -> "FieldPlan":
        """Resolve all parameters for some data."""
        targets, solver, common = options.targets, options.solver, data.common
        if solver.ridge != "auto" and not targets.are_scores:
            raise ValueError(
                f"ridge of FieldSolver needs a loss of scores, 'multinomial' or 'logistic', got loss={targets.loss!r}."
            )
        ndim, n_pixels = data.encoded.lattice_ndim, sum(map(prod, data.images.shapes))
        if ndim == 3 and isinstance(targets.loss, str) and targets.loss in OF_IMAGES:
            raise ValueError(f"loss={targets.loss!r} is of images, but X holds volumes: use 'mse' or 'psnr'.")
        # Losses of predictions need no more than parts of images, with few iterations on each.
        in_parts = ndim >= 2 and targets.are_predicted
        is_enough = targets.are_predicted and n_pixels >= tuned.LEAST_TO_HOLD_OUT[ndim]
        of_round = tuned.PIXELS_OF_ROUND if in_parts else None
        max_samples: Any = of_round if solver.max_samples == "auto" else solver.max_samples
        iterations = 8 if in_parts else 20 if targets.are_predicted else 50
        of_options = ("targets", "filter_bank", "split", "tol", "seed", "n_jobs", "verbose")
        of_data = ("common", "offsets", "units", "missing")
        return cls(
            **{name: getattr(options, name) for name in of_options},
            **{name: getattr(data, name) for name in of_data},
            objective=targets.objective(common),
            lattice_ndim=ndim,
            n_node_types=common.attributes.get("n_node_types_", 1),
            n_filtered=data.encoded.n_features - options.n_unfiltered,
            window=options.reading.window,
            is_observed=common.attributes.get("keeps_known_", False) or targets.is_degraded,
            method=solver.method,
            bounds=tuple(solver.eigenvalue_bounds),
            max_iter=iterations if options.max_iter == "auto" else int(options.max_iter),
            has_given_max_iter=options.max_iter != "auto",
            ridge=None if solver.ridge == "auto" else float(solver.ridge),
            shrinkage=_shrinkage(options, n_pixels, max_samples, in_parts or is_enough),
            max_samples=max_samples,
            early_stopping=is_enough if solver.early_stopping == "auto" else bool(solver.early_stopping),
            must_stop_early=solver.early_stopping != "auto",
            validation_fraction=solver.validation_fraction,
            depth=_depth(options, n_pixels, in_parts, is_enough),
            n_values=n_pixels * len(common.mean),
        )

    @property
    def former(self) -> Mapping | None:
        """Fitted attributes of the field that training goes on from."""
        return self.targets.former

    @property
    def is_table(self) -> bool:
        """Whether X holds plain samples."""
        return self.lattice_ndim == 0

    def solver(self, tol: float) -> Any:
        """What finds means of fields, with a residual to stop at."""
        return solver_of(self.targets.inference, tol)

    def depth_for(self, n_coef: int) -> int:
        """Depth of the trees of pixels, for a number of parameters of a field of single leaves."""
        if self.depth is not None:
            return self.depth
        n_leaves = self.n_values / (tuned.VALUES_OF_PARAMETER * n_coef)
        return int(np.clip(np.log2(n_leaves), 0, tuned.DEEPEST))

    def depths_of_types(self, depth: int) -> list[int]:
        """Largest depth of the tree of each type of factors, where that of pixels is known."""
        of_types = (self.n_node_types - 1).bit_length()
        of_pairs = depth if self.window.max_depth is None else self.window.max_depth
        return [of_types + depth] + [2 * of_types + of_pairs] * len(self.offsets)

    def ridge_for(self, depth: int) -> float:
        """Penalty on scores: by default the number of leaves that the data can bear."""
        return self.n_node_types * 2 ** min(depth, tuned.DEEPEST) if self.ridge is None else self.ridge

    def report(self, rounds: list, value: float, n_leaves: list) -> None:
        """Print the course of training after a round."""
        if self.verbose:
            progress = f"round {len(rounds)}: {rounds[-1]} iterations, loss {value:.6g}"
            print(f"[{self.targets.name}] {progress}, leaves {n_leaves}")


def _shrinkage(options, n_pixels, max_samples, is_drawn):
    """Pull of leaves to their parents."""
    if options.solver.shrinkage != "auto":
        return options.solver.shrinkage
    seen = n_pixels if max_samples is None else min(n_pixels, max_samples)
    # Leaves of trees that are grown first have no trained parents.
    return tuned.SHRINKAGE * seen if is_drawn and options.split.criterion != "residual" else 0.0


def _depth(options, n_pixels, in_parts, is_enough):
    """Depth of trees by the number of pixels, None where it goes by the number of parameters."""
    if options.max_depth != "auto":
        return options.max_depth
    if not in_parts:
        return None
    share, deepest = (20_000, 6) if is_enough else (50_000, 4)
    return int(np.clip(np.log2(n_pixels / share), 0, deepest))
