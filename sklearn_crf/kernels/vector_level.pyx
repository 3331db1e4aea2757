"""Which vector units kernels use."""

import os

cdef extern from "vector_level.h":
    int processor_has_avx2()

VARIABLE = "SKLEARN_CRF_VECTOR_LEVEL"


def available_levels():
    """Levels that this processor has, the one that is used by default first."""
    return ("avx2", "baseline") if processor_has_avx2() else ("baseline",)


def fix_vector_level():
    """Choose the level and write it to the environment, where every kernel and every worker process finds it."""
    levels = available_levels()
    chosen = os.environ.get(VARIABLE) or levels[0]
    if chosen not in levels:
        raise ImportError(f"{VARIABLE} must be one of {', '.join(levels)} on this processor, got {chosen!r}.")
    os.environ[VARIABLE] = chosen
    return chosen
