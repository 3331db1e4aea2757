"""Build of the Cython kernels; everything else is in pyproject.toml."""

import os
import re
import sys
from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup

# The suite is run once with SKLEARN_CRF_BOUNDSCHECK=1: every index of memory views and of C++ headers is then checked.
BOUNDSCHECK = os.environ.get("SKLEARN_CRF_BOUNDSCHECK", "0") == "1"

# And with SKLEARN_CRF_SANITIZE=1, for gcc and clang: AddressSanitizer and UndefinedBehaviorSanitizer then watch all
# memory that kernels touch, raw pointers too.
SANITIZE = os.environ.get("SKLEARN_CRF_SANITIZE", "0") == "1"

# An editable install has its kernels built in place afterwards, where a second build is incremental:
# building them for the install too would compile everything twice.
SKIP_KERNELS = os.environ.get("SKLEARN_CRF_SKIP_KERNELS", "0") == "1"

# MSVC writes one shared debug database per directory, on which parallel compilers trip.
JOBS = int(os.environ.get("SKLEARN_CRF_BUILD_JOBS", "1" if sys.platform == "win32" else os.cpu_count() or 1))

# -ffast-math is out of the question: scores may be -inf. The two flags beside -O3 give most of its speed
# and keep infinities and NaN intact. Wheels must run anywhere, hence no -march=native. Without the tables of debuggers,
# for which Python itself asks, kernels take a quarter less time to compile and a fifth of the disk. Checked kernels
# build in half the time at -O1 and run the tests no slower.
if sys.platform == "win32":
    COMPILE_ARGS = ["/O2"]
else:
    COMPILE_ARGS = ["-O1" if BOUNDSCHECK or SANITIZE else "-O3", "-g0", "-fno-math-errno", "-fno-trapping-math"]

# Older C libraries have threads in a library of their own.
LINK_ARGS = [] if sys.platform == "win32" else ["-pthread"]
COMPILE_ARGS += LINK_ARGS
if SANITIZE:
    LINK_ARGS.append("-fsanitize=address,undefined")
    COMPILE_ARGS += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1"]

# Cython's own types, memory views first, once for all kernels: without it each has a copy, which takes half of the time
# to compile and two thirds of the room.
SHARED = "sklearn_crf.kernels._cython_types"

# C++ headers check their own indices, and those of vectors are checked by the standard library.
CHECKS = [("SKLEARN_CRF_BOUNDSCHECK", "1"), ("_GLIBCXX_ASSERTIONS", "1")] if BOUNDSCHECK else []

# Apple's compiler and MSVC default to older standards.
CPP_STANDARD = "/std:c++17" if sys.platform == "win32" else "-std=c++17"

# Of all families: their headers are included everywhere.
KERNELS = Path("sklearn_crf/kernels")


def headers(*folders):
    found = {path.as_posix() for folder in folders for path in folder.glob("*.h*")}
    return sorted(path for path in found if path.endswith((".h", ".hpp")))


def kernel(path):
    text = path.read_text(encoding="utf-8")
    families = set(re.findall(r"sklearn_crf\.kernels\.(\w+)\.", text))
    if families:
        families.add("core")
    folders = [KERNELS, path.parent, *(KERNELS / family for family in sorted(families))]
    return Extension(
        name=".".join(path.with_suffix("").parts),
        sources=[path.as_posix()],
        # Headers include each other: nothing else tells which of them a kernel is made of.
        depends=headers(*folders),
        include_dirs=[np.get_include(), KERNELS.as_posix(), path.parent.as_posix()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION"), *CHECKS],
        extra_compile_args=[*COMPILE_ARGS, CPP_STANDARD],
        extra_link_args=LINK_ARGS,
        language="c++",
    )


def extensions():
    if SKIP_KERNELS:
        return []
    shared = Extension(
        SHARED, sources=[f"{SHARED.replace('.', '/')}.c"], extra_compile_args=COMPILE_ARGS, extra_link_args=LINK_ARGS
    )
    return cythonize(
        [shared, *(kernel(path) for path in sorted(Path("sklearn_crf").rglob("*.pyx")))],
        shared_utility_qualified_name=SHARED,
        # Cython compares times, not directives: checked sources get a folder of their own, lest
        # either build take over the C files of the other.
        build_dir="build/checked" if BOUNDSCHECK else None,
        compiler_directives={
            "language_level": 3,
            "boundscheck": BOUNDSCHECK,
            "wraparound": False,
            "initializedcheck": BOUNDSCHECK,
            "show_performance_hints": not BOUNDSCHECK,
            "cdivision": True,
            # Kernels hold no state of their own: free-threaded Python need not bring the GIL back for them.
            "freethreading_compatible": True,
        },
        nthreads=JOBS,
    )


# Where processes are spawned rather than forked, Cython's workers import this file again.
if __name__ == "__main__":
    setup(ext_modules=extensions(), options={"build_ext": {"parallel": JOBS}})
