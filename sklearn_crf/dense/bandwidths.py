"""Choice of bandwidths by their loss on examples held out of training."""

_FACTOR = 2.0
_MOST_STEPS = 4
_ROUNDS = 2


def search_bandwidths(kernels, evaluate):
    """Multiply or divide one bandwidth after the other by two, as long as the held-out loss falls; at most twice each.

    Parameters
    ----------
    kernels : sequence of GaussianKernel
        Where to start.
    evaluate : callable(kernels) -> float
        Held-out loss after training with these kernels.

    Returns
    -------
    kernels : list of GaussianKernel
    trace : list of (str, float)
        Each choice tried, and its loss.
    """
    best = list(kernels)
    least = evaluate(best)
    trace = [(repr(best), least)]
    coordinates = [(m, parameter) for m, kernel in enumerate(kernels) for parameter in kernel._bandwidths]
    for _ in range(_ROUNDS):
        before = least
        for m, parameter in coordinates:
            for factor in (_FACTOR, 1 / _FACTOR):
                start = least
                for _ in range(_MOST_STEPS):
                    tried = [*best[:m], best[m]._scaled(parameter, factor), *best[m + 1 :]]
                    loss = evaluate(tried)
                    trace.append((repr(tried), loss))
                    if not loss < least:
                        break
                    best, least = tried, loss
                if least < start:
                    break
        if not least < before:
            break
    return best, trace
