"""Warnings that point at the line of the user which led to them."""

import sys
import threading
import warnings
from types import FrameType

# Packages whose frames stand between the line of a user and a warning: this one, and what calls it or is called by it.
_BETWEEN = frozenset(
    {"sklearn_crf", "sklearn", "joblib", "scipy", "concurrent", "threading", "contextlib", "functools"}
)

_thread = threading.local()


def caller() -> FrameType | None:
    """The innermost frame outside of the package, also for a thread that works for another one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return getattr(_thread, "caller", None) if frame is None else frame


def work_for(frame: FrameType | None) -> None:
    """Let warnings of this thread, which has no frame of a user, point at that of the thread it works for."""
    _thread.caller = frame


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of the package that led here."""
    frame = caller()
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
