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
        yield lambda trace: print(f"{title} {len(trace.loss)}/{max_iter}: {trace.summary()}", flush=True)
        return
    with tqdm(total=max_iter, desc=title) as bar:

        def report(trace):
            bar.set_postfix_str(trace.summary(), refresh=False)
            bar.update()

        yield report
