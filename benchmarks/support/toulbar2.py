"""The best labeling of a model by toulbar2, a branch and bound solver, in a process of its own.

A process, because a limit on seconds is only looked at during the search and not in what goes before it, and so that
what it takes of the machine is seen apart.
"""

import multiprocessing
import resource
import time

import numpy as np

from sklearn_crf.models import FactorGraph

# Scores are compared as integers of so many decimals.
DECIMALS = 6

# Seconds of the processor past the limit, after which the process is ended: what goes before the search may take them.
GRACE = 5


def solve(model, seconds):
    """Labels (None if none was found in time), whether they are proven optimal, and seconds of the processor.

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
        # Ended by the system at the limit of its processor time.
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
    # A solution comes back from a search that was stopped, too: only its bound tells.
    is_proven = found is not None and found[1] - network.GetDDualBound() < 0.5 * 10**-DECIMALS
    if found is None:
        # Stopped by the limit: what came up on the way.
        known = network.GetSolutions()
        found = (known[-1][1],) if known else None
    labels = None if found is None else np.array(found[0][:n_nodes], dtype=np.int32)
    sender.send((labels, is_proven, used))


def _add_edges(network, model):
    """Add all of a pairwise model; its nodes. What is forbidden costs more than all else together."""
    tables = model.edge_tables()
    most = _most([model.unary, tables], model.graph.n_nodes + model.graph.n_edges)
    for node in range(model.graph.n_nodes):
        network.AddVariable(f"x{node}", range(model.n_columns))
        network.AddFunction([node], _costs(model.unary[node], most))
    for (tail, head), table in zip(model.graph.edges.tolist(), tables, strict=True):
        network.AddFunction([tail, head], _costs(table, most))
    return range(model.graph.n_nodes)


def _add_factors(network, model):
    """The same for a factor graph."""
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
    """More than all finite scores of so many factors can differ by."""
    largest = max(np.abs(array[np.isfinite(array)]).max(initial=0.0) for array in arrays)
    return 1 + 2 * float(largest) * n_factors


def _costs(scores, most):
    """Costs of all joint states, the last node changing fastest; at least 0."""
    return np.minimum(scores.max() - scores.astype(float), most).ravel().round(DECIMALS).tolist()
