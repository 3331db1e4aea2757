"""Limit cycles: when to stop a training that never converges."""


class CycleDetector:
    r"""Count the cycles of a training that returns to its best level again and again.

    Gradient ascent with saddle point or maximum marginal approximations cannot converge, as the approximate gradient
    is piecewise constant and never quite zero. It falls into a zone of few errors and small gradients, leaves it in
    large oscillations, and comes back; or it oscillates within that zone forever (Kumar, August and Hebert 2005,
    sections 5 and 7). One or two such cycles show all there is to choose parameters from.

    With :math:`E_t` the number of errors (or the norm of the gradient) at iteration t and :math:`m_t` its minimum so
    far:

    - the low zone is :math:`E_t \le (1 + \mathrm{tolerance}) m_t`;
    - it is left when :math:`E_t > (1 + \mathrm{departure}) m_t`;
    - a cycle is complete when the zone is entered after it was left, or when ``patience`` iterations have passed in
      a row without leaving it;
    - a new minimum is progress, however small: counting starts again;
    - cycles count only once ``min_iter`` iterations have passed without a new minimum.

    So no descent is taken for cycles, whether slow or oscillating with any period, and what lies between the two bounds
    (oscillations on the edge of the zone) counts for neither. Labelings need not recur exactly: on images they hardly
    do, and parameters move on even where they do.
    """

    def __init__(
        self,
        n_cycles: int = 2,
        *,
        tolerance: float = 0.1,
        departure: float = 0.5,
        patience: int = 50,
        min_iter: int = 20,
    ):
        for name, count in (("n_cycles", n_cycles), ("patience", patience), ("min_iter", min_iter)):
            if not count >= 1:
                raise ValueError(f"{name} must be at least 1, got {count!r}.")
        if not 0 <= tolerance <= departure:
            raise ValueError(f"tolerance must lie in 0 to departure={departure!r}, got {tolerance!r}.")
        self.n_cycles = n_cycles
        self.tolerance = tolerance
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
        """Take the value of the next iteration."""
        value = float(value)
        if not value >= 0:
            raise ValueError(f"value must not be negative or NaN, got {value}.")
        if value < self.minimum:
            self.minimum, self.best_iter = value, self.n_iter
            self.n_completed, self._is_away, self._n_at_rest = 0, False, 0
        self.n_iter += 1
        self._count(value)
        return self.n_completed >= self.n_cycles and self.n_iter - 1 - self.best_iter >= self.min_iter

    def _count(self, value):
        if value > (1 + self.departure) * self.minimum:
            self._is_away = True
            self._n_at_rest = 0
            return
        self._n_at_rest += 1
        returned = self._is_away and value <= (1 + self.tolerance) * self.minimum
        if returned or self._n_at_rest >= self.patience:
            self.n_completed += 1
            self._is_away = False
            self._n_at_rest = 0
