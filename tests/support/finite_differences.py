"""Derivatives by finite differences."""

import numpy as np


def five_point(function, x, step=1e-3):
    """Return the derivative of a scalar function with respect to each entry of x; the error is O(step ** 4)."""
    gradient = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        move = np.zeros(x.shape)
        move[index] = step
        ahead, behind = function(x + move) - function(x - move), function(x + 2 * move) - function(x - 2 * move)
        gradient[index] = (8 * ahead - behind) / (12 * step)
    return gradient


def five_point_along(function, x, directions, step=1e-3):
    """Return the derivative of a scalar function along each direction, (n_directions, x.size); quick if x is long."""
    steps = np.zeros(len(directions))
    return five_point(lambda steps: function(x + (steps @ directions).reshape(x.shape)), steps, step)
