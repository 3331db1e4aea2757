"""Limit cycles: when to stop a training that never converges."""


class CycleDetector:
    r"""Count the cycles of a training that returns to its best level again and again.

    Gradient ascent with saddle point or maximum marginal approximations cannot converge, as the approximate gradient
    is piecewise constant and never quite zero. It falls into a zone of few errors and small gradients, leaves it in
    large oscillations, and comes back (Kumar, August and Hebert 2005, sections 5 and 7.1); or it oscillates within
    that zone for ever. One or two such cycles show all there is to choose parameters from.

    With :math:`E_t` the number of errors (or the norm of the gradient) at iteration t, :math:`m_t` its minimum so far,
    and :math:`l` the level at which counting began:

    - the low zone is :math:`E_t \le (1 + \mathrm{tolerance}) m_t`;
    - it is left when :math:`E_t > (1 + \mathrm{departure}) m_t`;
    - a cycle is complete when the zone is entered after it was left, or when ``patience`` iterations have passed in
      a row without leaving it;
    - :math:`(1 + \mathrm{tolerance}) E_t < l` is progress, no cycle: counting begins anew, with :math:`l = E_t`.

    So neither an oscillating nor a slow descent is taken for cycles, and what lies between the two bounds
    (oscillations on the edge of the zone) counts for neither. That labelings recur exactly is not asked for: on images
    they hardly do, and parameters move on even where they do.

    Parameters
    ----------
    n_cycles : int, default=2
        Cycles to wait for.
    tolerance : float, default=0.1
        Width of the low zone, relative to the minimum.
    departure : float, default=0.5
        How far from the minimum, relative to it, the zone is left; at least ``tolerance``.
    patience : int, default=50
        Iterations without leaving the zone that count as one cycle.

    Attributes
    ----------
    n_completed : int
        Cycles since the last progress.
    minimum : float
        The least value so far.
    best_iter : int
        The iteration at which the minimum was first reached, from 0; -1 before the first.
    n_iter : int
        Iterations seen.

    Raises
    ------
    ValueError
        If an option is out of its range, or a value is negative or NaN.

    References
    ----------
    S. Kumar, J. August and M. Hebert. Exploiting Inference for Approximate Parameter Learning in Discriminative
    Fields. EMMCVPR 2005.
    """

    def __init__(self, n_cycles=2, *, tolerance=0.1, departure=0.5, patience=50):
        if n_cycles < 1:
            raise ValueError(f"n_cycles must be at least 1, got {n_cycles!r}.")
        if not 0 <= tolerance <= departure:
            raise ValueError(f"tolerance must lie in 0 to departure={departure!r}, got {tolerance!r}.")
        if patience < 1:
            raise ValueError(f"patience must be at least 1, got {patience!r}.")
        self.n_cycles = n_cycles
        self.tolerance = tolerance
        self.departure = departure
        self.patience = patience
        self.minimum = float("inf")
        self.best_iter = -1
        self.n_iter = 0
        self._start_anew(float("inf"))

    def update(self, value):
        """Take the value of the next iteration.

        Parameters
        ----------
        value : float
            Number of errors or norm of the gradient, not negative.

        Returns
        -------
        bool
            True once ``n_cycles`` cycles are complete.
        """
        value = float(value)
        if not value >= 0:
            raise ValueError(f"value must not be negative or NaN, got {value}.")
        if (1 + self.tolerance) * value < self._level:
            self._start_anew(value)
        if value < self.minimum:
            self.minimum, self.best_iter = value, self.n_iter
        self.n_iter += 1
        if value > (1 + self.departure) * self.minimum:
            self._is_away = True
            self._n_at_rest = 0
            return self.n_completed >= self.n_cycles
        self._n_at_rest += 1
        returned = self._is_away and value <= (1 + self.tolerance) * self.minimum
        if returned or self._n_at_rest >= self.patience:
            self.n_completed += 1
            self._is_away = False
            self._n_at_rest = 0
        return self.n_completed >= self.n_cycles

    def _start_anew(self, level):
        self._level = level
        self.n_completed = 0
        self._is_away = False
        self._n_at_rest = 0


def detect_cycle(values, n_cycles=2, **options):
    """The iteration at which a recorded training had gone through a number of cycles.

    Parameters
    ----------
    values : iterable of float
        Number of errors or norm of the gradient at each iteration.
    n_cycles : int, default=2
        Cycles to wait for.
    **options : float
        ``tolerance``, ``departure`` and ``patience`` of :class:`CycleDetector`.

    Returns
    -------
    int or None
        Index into ``values``; None if the cycles were not completed.
    """
    detector = CycleDetector(n_cycles, **options)
    for iteration, value in enumerate(values):
        if detector.update(value):
            return iteration
    return None
