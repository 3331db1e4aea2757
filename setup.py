"""Build of the Cython kernels; everything else is in pyproject.toml."""

import os
import sys
from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup

# The suite is run once with SKLEARN_CRF_BOUNDSCHECK=1: every index of every kernel is then checked.
BOUNDSCHECK = os.environ.get("SKLEARN_CRF_BOUNDSCHECK", "0") == "1"

# -ffast-math is out of the question: scores may be -inf. These two give most of its speed and
# keep infinities and NaN intact. Wheels must run anywhere, hence no -march=native.
COMPILE_ARGS = ["/O2"] if sys.platform == "win32" else ["-O3", "-fno-math-errno", "-fno-trapping-math"]


def kernel(path):
    return Extension(
        name=".".join(path.with_suffix("").parts),
        sources=[path.as_posix()],
        include_dirs=[np.get_include(), "sklearn_crf/kernels"],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        extra_compile_args=COMPILE_ARGS,
    )


setup(
    ext_modules=cythonize(
        [kernel(path) for path in sorted(Path("sklearn_crf/kernels").glob("*.pyx"))],
        compiler_directives={
            "language_level": 3,
            "boundscheck": BOUNDSCHECK,
            "wraparound": False,
            "initializedcheck": BOUNDSCHECK,
            "cdivision": True,
        },
        nthreads=int(os.environ.get("SKLEARN_CRF_BUILD_JOBS", "0")),
    ),
)
