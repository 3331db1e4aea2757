"""Random numbers of the optimizers that draw an order."""

import numpy as np


def random_state_of(random_state):
    """The ``RandomState`` given, or one made from a seed or None."""
    return random_state if isinstance(random_state, np.random.RandomState) else np.random.RandomState(random_state)
