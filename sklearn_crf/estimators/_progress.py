"""Progress of a fit: a bar if tqdm is installed, plain lines if not."""

from contextlib import contextmanager


@contextmanager
def progress_reporter(verbose, max_iter, title):
    """Yield a function that is called with the trace once an iteration.

    Parameters
    ----------
    verbose : int
        0 is silence.
    max_iter : int
    title : str
    """
    if not verbose:
        yield lambda trace: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda trace: print(f"{title} {len(trace.loss)}/{max_iter}: {_summary(trace)}", flush=True)
        return
    with tqdm(total=max_iter, desc=title) as bar:

        def report(trace):
            bar.set_postfix_str(_summary(trace), refresh=False)
            bar.update()

        yield report


def _summary(trace):
    parts = [f"gradient {trace.gradient_norm[-1]:.3g}"]
    if trace.loss[-1] is not None:
        parts.insert(0, f"loss {trace.loss[-1]:.6g}")
    if trace.errors[-1] is not None:
        parts.append(f"errors {trace.errors[-1]:g}")
    return ", ".join(parts)
