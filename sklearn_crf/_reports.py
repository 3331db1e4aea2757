"""Reports to the user of a computation: warnings at the line that led to them, progress, scikit-learn's callbacks."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import currentframe
from itertools import count
from types import FrameType
from typing import NamedTuple

from sklearn.exceptions import ConvergenceWarning

# Packages whose frames stand between the line of a user and a warning: this one, and what calls it or is called by it.
_BETWEEN = {"sklearn_crf", "sklearn", "joblib", "scipy", "concurrent", "threading", "contextlib", "functools"}


class WarningState(NamedTuple):
    """Settings of the warnings of a thread, which it passes on to threads that work for it."""

    caller: FrameType | None = None
    without_convergence: bool = False


_thread = threading.local()


def _given_state() -> WarningState:
    return getattr(_thread, "state", WarningState())


def warning_state() -> WarningState:
    """The settings of this thread, to be passed to :func:`set_warning_state` in another one."""
    return _given_state()._replace(caller=_caller())


def set_warning_state(state: WarningState) -> None:
    """Take over the settings of the thread that this one works for."""
    _thread.state = state


@contextmanager
def without_convergence() -> Iterator[None]:
    """Context in which :func:`warns_of_convergence` is False."""
    before = _given_state()
    # Set inside: an interrupt between the two would leave this thread without warnings.
    try:
        _thread.state = before._replace(without_convergence=True)
        yield
    finally:
        _thread.state = before


def warns_of_convergence() -> bool:
    """Whether inference warns where it does not converge."""
    return not _given_state().without_convergence


def _caller() -> FrameType | None:
    """The innermost frame outside of the package."""
    frame = currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return _given_state().caller if frame is None else frame


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of the package that led here."""
    frame = _caller()
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
    """Warn that something did not converge, unless the caller says so itself."""
    if warns_of_convergence():
        warn_caller(message, ConvergenceWarning)


@contextmanager
def progress_reporter(verbose: int, max_iter: int, title: str) -> Iterator[Callable[[Callable[[], str]], None]]:
    """Yield a function that is called once an iteration with a function that says in words how it stands."""
    if not verbose:
        yield lambda summary: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        n_done = count(1)
        yield lambda summary: print(f"{title} {next(n_done)}/{max_iter}: {summary()}", flush=True)
        return
    with tqdm(total=max_iter, desc=title) as bar:

        def report(summary):
            bar.set_postfix_str(summary(), refresh=False)
            bar.update()

        yield report


try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn before 1.9: a base that adds nothing
    from abc import ABC as CallbackSupportMixin  # type: ignore[assignment]  # noqa: F401


@contextmanager
def fit_callbacks(estimator, X, y, max_iter):
    """Tell an estimator's callbacks of its iterations."""
    # X, y: what it is fitted to
    # returns to be called after each iteration with a function that returns the fitted attributes of now; True asks
    # to stop
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
