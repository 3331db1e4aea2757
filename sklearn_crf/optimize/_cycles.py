"""Detection of limit cycles, to stop training that never converges."""


class CycleDetector:
    r"""Detector of training that repeatedly loses and regains its lowest errors.

    Gradient ascent with saddle point or maximum marginal approximations cannot converge, because the approximate
    gradient is piecewise constant and never quite zero. Training enters a zone of few errors and small gradients,
    leaves it in large oscillations and comes back, or it oscillates within the zone forever (Kumar, August and Hebert
    2005, sections 5 and 7). One or two cycles are enough to choose parameters from.

    With :math:`E_t` the number of errors (or the norm of the gradient) at iteration t and :math:`m_t` its minimum so
    far:

    - the low zone is :math:`E_t \le 1.1 \, m_t`;
    - the zone is left when :math:`E_t > (1 + \mathrm{departure}) m_t`;
    - a cycle is complete when the zone is entered after it was left, or after ``patience`` iterations in
    a row without leaving it;
    - a new minimum is progress, however small, and restarts the count;
    - cycles count only after ``min_iter`` iterations without a new minimum.

    A descent is therefore not mistaken for cycles, whether it is slow or oscillates. Values between the two bounds
    (oscillations at the edge of the zone) neither leave nor enter the zone. Labelings need not recur exactly: on images
    they rarely do, and even if they do, the parameters keep changing.
    """

    def __init__(
        self,
        n_cycles: int = 2,
        *,
        departure: float = 0.5,
        patience: int = 50,
        min_iter: int = 20,
    ):
        self.n_cycles = n_cycles
        self.departure = departure
        self.patience = patience
        self.min_iter = min_iter
        self.minimum = float("inf")
        self.best_iter = -1
        self.n_iter = 0
        self.n_completed = 0
        self._is_away = False
        self._n_at_rest = 0

    def update(self, value: float) -> bool:
        """Record the value of the next iteration and return whether training should stop."""
        if value < self.minimum:
            self.minimum, self.best_iter = value, self.n_iter
            self.n_completed, self._is_away, self._n_at_rest = 0, False, 0
        self.n_iter += 1
        if value > (1 + self.departure) * self.minimum:
            self._is_away, self._n_at_rest = True, 0
        else:
            self._n_at_rest += 1
            returned = self._is_away and value <= 1.1 * self.minimum
            if returned or self._n_at_rest >= self.patience:
                self.n_completed += 1
                self._is_away, self._n_at_rest = False, 0
        return self.n_completed >= self.n_cycles and self.n_iter - 1 - self.best_iter >= self.min_iter
