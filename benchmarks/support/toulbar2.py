"""MAP labelings by toulbar2, a branch and bound solver, in a separate process.

The process enforces the limit on seconds, which toulbar2 checks only during the search and not in preprocessing. It
also keeps its use of resources apart from the rest.
"""

import multiprocessing
import resource
import time
from importlib.util import find_spec

import numpy as np

from sklearn_crf.models import FactorGraph

# Number of decimals of scores, which toulbar2 compares as integers
DECIMALS = 6

# Processor seconds beyond the limit after which the process is stopped; preprocessing may take them.
GRACE = 5


def is_installed():
    """Return whether toulbar2 is installed; print how to install it if not."""
    found = find_spec("pytoulbar2") is not None
    if not found:
        print("toulbar2 is left out, because it is not installed: pip install pytoulbar2", flush=True)
    return found


def solve(model, seconds):
    """Return labels (None if none were found in time), whether they are proven optimal, and processor seconds.

    Parameters
    ----------
    model : PairwiseModel or FactorGraph
    seconds : int
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_solve, args=(model, seconds, sender), daemon=True)
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        # The system stopped the process at the limit of its processor time.
        found = (None, False, seconds + GRACE)
    process.kill()
    process.join()
    return found


def _solve(model, seconds, sender):
    from pytoulbar2 import CFN

    start = time.process_time()
    limit = int(start) + seconds + GRACE
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    network = CFN(resolution=DECIMALS, vac=1, verbose=-1)
    n_nodes = len(_add_factors(network, model) if isinstance(model, FactorGraph) else _add_edges(network, model))
    found = network.Solve(timeLimit=seconds)
    used = time.process_time() - start
    # A stopped search also returns a solution, so only the bound shows whether it is optimal.
    is_proven = found is not None and found[1] - network.GetDDualBound() < 0.5 * 10**-DECIMALS
    if found is None:
        # The search was stopped by the limit: use the last solution that it found.
        known = network.GetSolutions()
        found = (known[-1][1],) if known else None
    labels = None if found is None else np.array(found[0][:n_nodes], dtype=np.int32)
    sender.send((labels, is_proven, used))


def _add_edges(network, model):
    """Add a pairwise model and return its nodes. Forbidden states cost more than all other costs together."""
    tables = model.edge_tables()
    most = _most([model.unary, tables], model.graph.n_nodes + model.graph.n_edges)
    for node in range(model.graph.n_nodes):
        network.AddVariable(f"x{node}", range(model.n_columns))
        network.AddFunction([node], _costs(model.unary[node], most))
    for (tail, head), table in zip(model.graph.edges.tolist(), tables, strict=True):
        network.AddFunction([tail, head], _costs(table, most))
    return range(model.graph.n_nodes)


def _add_factors(network, model):
    """Add a factor graph and return its nodes."""
    for node, n_states in enumerate(model.n_states.tolist()):
        network.AddVariable(f"x{node}", range(n_states))
    most = _most([model.log_table], model.n_factors)
    for factors, scope in model.by_arity():
        for factor, nodes in zip(factors.tolist(), scope.tolist(), strict=True):
            if nodes:
                table = np.asarray(model.dense_table(factor), dtype=float)
                network.AddFunction(nodes, _costs(table, most))
    return range(model.n_nodes)


def _most(arrays, n_factors):
    """Return an upper bound on the difference of total scores of two labelings, from finite scores of factors."""
    largest = max(np.abs(array[np.isfinite(array)]).max(initial=0.0) for array in arrays)
    return 1 + 2 * float(largest) * n_factors


def _costs(scores, most):
    """Return non-negative costs of all joint states. The state of the last node changes fastest."""
    return np.minimum(scores.max() - scores.astype(float), most).ravel().round(DECIMALS).tolist()
