"""Helpers of fuzzers: seeds until the time is up, malformed values, and checks of how a call ends."""

import os
import re
import signal
import time
import traceback
import warnings
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp

# Without a time limit, each fuzzer tries a fixed number of seeds, so that runs are reproducible on any machine.
SECONDS = float(os.environ.get("SKLEARN_CRF_FUZZ_SECONDS", "0"))
COUNT = int(os.environ.get("SKLEARN_CRF_FUZZ_COUNT", "10"))
SEED = int(os.environ.get("SKLEARN_CRF_FUZZ_SEED", "0"))

# Seconds after which a call is considered to hang
LONGEST_CALL = 20

# Expected errors. InvalidParameterError and NotFittedError are subclasses; paths may raise OSError.
CLEAR = (ValueError, TypeError, NotImplementedError, OSError)

# Messages of Python and NumPy that show that a value was used without validation
OBSCURE = re.compile(
    "has no len|unsized|is not iterable|iteration over a 0-d|truth value of|not supported between instances"
    "|not be broadcast|cannot reshape|unpack|unhashable|not subscriptable|cannot be interpreted|only integer scalar"
    "|size-1|length-1|unsupported operand|need at least one array|zero-size|required positional|must be real number"
    "|axis \\d is out"
)

TRIED: dict[str, int] = {}


def seeds(name):
    """Yield seeds until the time of a fuzzer is up, or ``COUNT`` seeds, and count them under the fuzzer's name."""
    end = time.monotonic() + SECONDS
    seed = SEED
    while time.monotonic() < end if SECONDS else seed < SEED + COUNT:
        TRIED[name] = TRIED.get(name, 0) + 1
        yield seed
        seed += 1


class Hang(BaseException):
    """Exception raised inside a call that takes too long. ``except Exception`` does not catch it."""


@contextmanager
def time_limit(seconds=LONGEST_CALL):
    """Return a context that raises Hang in the main thread after some seconds, on systems with alarms."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def call(function, *arguments, clear=CLEAR, **named):
    """Return the result of a call, or its error if the error is clear. Raise AssertionError for all other errors."""
    try:
        with time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*arguments, **named)
    except clear as error:
        if not is_obscure(error):
            return error
        problem = error
    except (Exception, Hang) as error:
        problem = error
    name, kind = getattr(function, "__qualname__", function), type(problem).__name__
    raise AssertionError(
        f"{name} ended in {kind}: {problem}\narguments: {shown(arguments)} {shown(named)}"
    ) from problem


def is_obscure(error):
    """Return whether a message does not describe the wrong argument. Messages of scikit-learn are not judged."""
    places = [frame.filename.replace(os.sep, "/") for frame in traceback.extract_tb(error.__traceback__)]
    known = [place for place in places if "/sklearn/" in place or "/sklearn_crf/" in place]
    return bool(OBSCURE.search(str(error))) and not (known and "/sklearn/" in known[-1])


def shown(value):
    """Return a value as text, or the error of ``repr``, which fails for damaged matrices."""
    try:
        return f"{value!r:.2000}"
    except Exception as error:
        return f"{type(value).__name__} without text ({error})"


def damaged_csr():
    """Return a sparse matrix with a column index out of range."""
    matrix = sp.csr_matrix(np.ones((3, 2)))
    matrix.indices[2] = 10**8
    return matrix


def malformed():
    """Return values that are invalid for nearly all arguments."""
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.zeros(2), np.zeros((3, 1))]
    numbers = [
        -1,
        0,
        1,
        2.7,
        -0.0,
        1e308,
        -1e308,
        5e-324,
        np.nan,
        np.inf,
        -np.inf,
        2**31,
        2**33,
        -(2**63),
        2**64,
        10**30,
    ]
    numbers += [np.float32(1e38), np.float16(3), np.uint64(2**64 - 1), np.int8(-128), np.bool_(True), 1j, True]
    arrays = [
        np.zeros(shape) for shape in [(), (0,), (1,), (3,), (0, 2), (2, 0), (2, 2), (3, 2), (1, 1, 1), (2, 2, 2, 2, 2)]
    ]
    arrays += [np.full((3, 2), value) for value in (np.nan, np.inf, -np.inf, 1e200, -1, 2**31)]
    arrays += [
        np.zeros((3, 2), dtype) for dtype in (complex, bool, object, "U3", "S3", np.float16, np.longdouble, "M8[s]")
    ]
    arrays += [np.full(3, 2**64 - 1, dtype=np.uint64), np.array([0, 2**32, 1]), np.zeros(3, dtype=[("a", int)])]
    arrays += [
        np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]),
        np.asfortranarray(np.ones((3, 2))),
        np.ones((6, 4))[::2, ::2],
    ]
    others = [
        None,
        "",
        "x",
        b"x",
        [],
        (),
        {},
        set(),
        object(),
        len,
        int,
        [1],
        [[1, 2], [3]],
        [None],
        ["a", "b"],
        {"a": 1},
    ]
    sparse = [sp.csr_matrix((3, 2)), sp.csc_array(np.eye(3)), damaged_csr()]
    return [*numbers, *arrays, *others, *sparse, read_only, ragged, range(3), iter([1, 2])]
