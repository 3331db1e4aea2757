"""scikit-learn's callbacks (progress bars, monitors), where the installed version has them."""

from contextlib import contextmanager


@contextmanager
def progress_reporter(verbose, max_iter, title):
    """Yield a function that is called with the trace once an iteration."""
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


try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Takes the place of scikit-learn's mixin, which this version does not have."""


@contextmanager
def fit_callbacks(estimator, X, y, max_iter):
    """Tell an estimator's callbacks of its iterations."""
    # X, y: what it is fitted to
    # returns to be called after each iteration with a function that returns the fitted attributes of now; True asks
    # to stop
    if not hasattr(estimator, "_skl_callbacks"):
        yield lambda attributes: False
        return
    context = estimator._init_callback_context(max_subtasks=max_iter)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def iteration(attributes):
        step = context.subcontext(task_name="iteration").call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        return bool(step.call_on_fit_task_end(estimator=estimator, X=X, y=y, reconstruction_attributes=attributes))

    yield iteration
    context.call_on_fit_task_end(estimator=estimator, X=X, y=y, reconstruction_attributes=dict)
