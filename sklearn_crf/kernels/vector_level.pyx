"""Choice of the vector instructions that kernels use."""

import os

cdef extern from "vector_level.h":
    int processor_has_avx2()

VARIABLE = "SKLEARN_CRF_VECTOR_LEVEL"


def available_levels():
    """Return the levels that this processor supports, the default first."""
    return ("avx2", "baseline") if processor_has_avx2() else ("baseline",)


def fix_vector_level():
    """Select a level and store it in the environment, which kernels and worker processes read."""
    levels = available_levels()
    chosen = os.environ.get(VARIABLE) or levels[0]
    if chosen not in levels:
        raise ImportError(f"{VARIABLE} must be one of {', '.join(levels)} on this processor, got {chosen!r}.")
    os.environ[VARIABLE] = chosen
    return chosen
