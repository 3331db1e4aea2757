"""Reports to the user: warnings that point to a line of the user's code, progress, and callbacks of scikit-learn."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from inspect import currentframe
from itertools import count
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

# Packages whose frames may lie between user code and a warning: this package, packages that call it, dependencies.
_BETWEEN = {"sklearn_crf", "sklearn", "joblib", "scipy", "concurrent", "threading", "contextlib", "functools"}


class WarningState(NamedTuple):
    """Warning settings of a thread, which it passes to its helper threads."""

    caller: FrameType | None = None
    without_convergence: bool = False


_thread = threading.local()


def _get_current_state() -> WarningState:
    return getattr(_thread, "state", WarningState())


def get_warning_state() -> WarningState:
    """Return the warning settings of this thread, to be passed to :func:`set_warning_state` in another thread."""
    return _get_current_state()._replace(caller=_find_caller())


def set_warning_state(state: WarningState) -> None:
    """Use the warning settings of another thread in this thread."""
    _thread.state = state


@contextmanager
def without_convergence() -> Iterator[None]:
    """Turn off convergence warnings within the context."""
    before = _get_current_state()
    # Assign the state within the try block, so that an interrupt cannot leave warnings turned off.
    try:
        _thread.state = before._replace(without_convergence=True)
        yield
    finally:
        _thread.state = before


def _find_caller() -> FrameType | None:
    """Return the innermost frame outside the packages in ``_BETWEEN``, or the frame passed by another thread."""
    frame = currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return _get_current_state().caller if frame is None else frame


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the line of the user's code that called this package."""
    frame = _find_caller()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    variables = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=variables.get("__name__"),
        registry=variables.setdefault("__warningregistry__", {}),
    )


def warn_unconverged(message: str) -> None:
    """Issue a ConvergenceWarning, unless convergence warnings are turned off."""
    if not _get_current_state().without_convergence:
        warn_caller(message, ConvergenceWarning)


@contextmanager
def open_progress_reporter(verbose: int, max_iter: int, title: str) -> Iterator[Callable[[Callable[[], str]], None]]:
    """Yield a function ``report(summary)`` that reports an iteration; ``summary`` is a function that returns a text."""
    if not verbose:
        yield lambda summary: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        n_done, start = count(1), perf_counter()

        def print_line(summary):
            n = next(n_done)
            left = (perf_counter() - start) / n * (max_iter - n)
            print(f"{title} {n}/{max_iter}: {summary()}, at most {left:.0f} s left", flush=True)

        yield print_line
        return
    with tqdm(total=max_iter, desc=title) as bar:

        def report(summary):
            bar.set_postfix_str(summary(), refresh=False)
            bar.update()

        yield report


try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn before 1.9 has no callbacks, so use ABC as a base class without methods
    from abc import ABC as CallbackSupportMixin  # type: ignore[assignment]  # noqa: F401


@contextmanager
def fit_callbacks(estimator, X, y, max_iter):
    """Yield a function that reports each iteration of a fit to the callbacks of the estimator."""
    # X, y: training data
    # The argument of the yielded function is a function that returns the current fitted attributes.
    # The result of the yielded function is True if the fit must stop.
    if not hasattr(estimator, "_skl_callbacks"):
        yield lambda attributes: False
        return
    context = estimator._init_callback_context(max_subtasks=max_iter)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def iteration(attributes):
        step = context.subcontext(task_name="iteration").call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        return bool(step.call_on_fit_task_end(estimator=estimator, X=X, y=y, reconstruction_attributes=attributes))

    yield iteration
    context.call_on_fit_task_end(estimator=estimator, X=X, y=y, reconstruction_attributes=dict)


# Fitted arrays whose entries are counted as weights, and words for lattices by their number of axes.
_WEIGHTS = "coef_", "intercept_", "edge_coef_", "compatibility_", "weights_", "means_", "loadings_", "noise_variance_"
_LAYOUTS = {None: "graphs", 0: "rows", 1: "chains", 2: "images", 3: "volumes"}


class FitReprMixin:
    """Adds a line about the fit to the text and HTML representations of a fitted estimator."""

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the parameters that differ from their defaults and, after ``fit``, a line about the fit."""
        text = super().__repr__(N_CHAR_MAX)  # type: ignore[call-arg]
        return "\n".join(filter(None, (text, _describe_fit(self))))

    def _repr_html_inner(self) -> str:
        """Return the line about the fit, followed by scikit-learn's HTML representation."""
        return _put_first(_describe_fit(self), super()._repr_html_inner())  # type: ignore[misc]

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        found = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in found:
            found["text/html"] = _put_first(_describe_fit(self), found["text/html"])
        return found


def _describe_fit(estimator: Any) -> str | None:
    """Return a line about the classes, weights and training of a fitted estimator, or None before ``fit``."""
    if not hasattr(estimator, "n_features_in_"):
        return None
    field = getattr(estimator, "estimator_", estimator)
    found = {name: getattr(estimator, f"{name}_", ()) for name in ("classes", "edges")}
    facts = [f"{len(values)} {name}" for name, values in found.items() if len(values)]
    if hasattr(estimator, "lattice_ndim_"):
        facts.append(_LAYOUTS.get(estimator.lattice_ndim_, f"lattices of {estimator.lattice_ndim_} axes"))
    if hasattr(field, "precisions_"):
        facts.append(f"{sum(map(len, field.precisions_))} leaves")
    else:
        arrays = [getattr(field, name, None) for name in _WEIGHTS]
        facts.append(f"{sum(np.size(array) for array in arrays if array is not None)} weights")
    facts += [
        f"{name} {getattr(field, f'{name}_')}" for name in ("learning", "inference") if hasattr(field, f"{name}_")
    ]
    losses: Any = getattr(field, "loss_curve_", ())
    if len(losses):
        converged = {True: "converged ", False: "not converged ", None: ""}[getattr(field, "converged_", None)]
        facts.append(f"{converged}after {field.n_iter_} iterations")
        if np.isfinite(losses[-1]):
            facts.append(f"objective {losses[-1]:.5g}")
    return f"# fitted: {', '.join(facts)}"


def _put_first(line: str | None, html: str) -> str:
    return html if line is None else f"<p><small>{escape(line.removeprefix('# '))}</small></p>{html}"
