"""libDAI's belief propagation as a peer, by a driver that is compiled when needed and reads models as text.

If there is no package of libDAI, build it in the folder of its sources, with the headers of GMP and Boost installed:
``cp Makefile.LINUX Makefile.conf && make lib``. ``DEBUG=`` after ``make`` leaves out its checks. Then set
``LIBDAI_PREFIX`` to the folder.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

DRIVER = Path(__file__).with_name("libdai_bp.cpp")


class PeerResult(NamedTuple):
    """Result of libDAI, with the time of the fastest repetition."""

    n_sweeps: int
    seconds: float
    log_z: float
    unary: np.ndarray


def compiled_driver(folder):
    """Return the path of the compiled driver, or None, and the reason if it is None."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        return None, "no C++ compiler"
    program = Path(folder) / "libdai_bp"
    command = [compiler, "-O3", "-w", str(DRIVER), "-o", str(program)]
    prefix = os.environ.get("LIBDAI_PREFIX")
    if prefix:
        command += [f"-I{prefix}/include", f"-L{prefix}/lib"]
    built = subprocess.run([*command, "-ldai", "-lgmpxx", "-lgmp"], capture_output=True, text=True, check=False)
    if built.returncode:
        return None, "libDAI is not installed"
    return program, ""


def write_factor_graph(model, path):
    """Write the model in libDAI's text format, with a factor per node and per edge. The first variable is fastest."""
    blocks = [str(model.graph.n_nodes + model.graph.n_edges)]
    for s, scores in enumerate(np.exp(model.unary)):
        blocks.append(_factor([s], scores[None]))
    for (i, j), scores in zip(model.graph.edges.tolist(), np.exp(model.edge_tables()), strict=True):
        # libDAI sorts the variables of a factor by index, in any case.
        blocks.append(_factor([i, j], scores.T) if i < j else _factor([j, i], scores))
    Path(path).write_text("\n\n".join(blocks) + "\n")


def _factor(variables, scores):
    n_states = scores.shape[1]
    lines = [str(len(variables)), " ".join(map(str, variables)), " ".join([str(n_states)] * len(variables))]
    lines.append(str(scores.size))
    lines += [f"{k} {value:.17g}" for k, value in enumerate(scores.ravel())]
    return "\n".join(lines)


def run_libdai(model, tol, max_iter, updates="SEQFIX", repetitions=3, reweighted=()):
    """Return the result of libDAI on a model, or None, and the reason if it is None.

    ``reweighted`` is either empty or has the damping and the edge probability of tree-reweighted belief propagation.
    """
    with tempfile.TemporaryDirectory() as folder:
        program, problem = compiled_driver(folder)
        if program is None:
            return None, problem
        write_factor_graph(model, Path(folder) / "field.fg")
        arguments = [str(Path(folder) / "field.fg"), str(tol), str(max_iter), updates, str(repetitions)]
        arguments += [str(value) for value in reweighted]
        lines = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout.splitlines()
    runs = [line.split() for line in lines[:repetitions]]
    n_sweeps, seconds = min(((int(n), float(t)) for n, t in runs), key=lambda run: run[1])
    unary = np.array([[float(x) for x in line.split()] for line in lines[repetitions + 1 :]])
    return PeerResult(n_sweeps, seconds, float(lines[repetitions].split()[1]), unary), ""
