"""A callback of scikit-learn 1.9 that records the iterations of a fit."""


class Recorder:
    """Callback that keeps the fitted estimator of each iteration and stops after ``n_iterations`` (0: never)."""

    def __init__(self, n_iterations=0):
        self.n_iterations, self.fitted = n_iterations, []

    def setup(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name != "iteration":
            return False
        self.fitted.append(fitted_estimator)
        return len(self.fitted) == self.n_iterations

    def teardown(self, estimator, context): ...
