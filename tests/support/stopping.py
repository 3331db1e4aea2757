"""Stop calls at a chosen line of the package, as an interrupt may stop a call between any two lines."""

import sys
from contextlib import contextmanager
from pathlib import Path

import sklearn_crf

_FOLDER = str(Path(sklearn_crf.__file__).parent)


class Stopped(BaseException):
    """Exception that stands for an interrupt. ``except Exception`` does not catch it."""


@contextmanager
def stopped_at(line=None):
    """Record the lines of the package that this thread runs, and raise :class:`Stopped` at line number ``line``.

    Lines are counted in the order in which they run. Yields the list of lines run so far, as pairs (file, line).
    """
    lines = []

    def local(frame, event, arg):
        if event == "line":
            lines.append((frame.f_code.co_filename, frame.f_lineno))
            if len(lines) == line:
                raise Stopped
        return local

    def trace(frame, event, arg):
        return local if frame.f_code.co_filename.startswith(_FOLDER) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)
