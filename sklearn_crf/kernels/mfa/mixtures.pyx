"""Posteriors of the components of labelled mixtures of factor analysers, and what is weighted by them.

With scores ``r_s = log P(c, s, x) = (|z_s|^2 - q_s) / 2 + l_s`` of a sample with class ``c`` and weight ``w``, the
criterion ``a log sum_{s in c} exp r_s - b log sum_s exp r_s`` has the derivative ``a_s = a P(s | c, x) - b P(s | x)``.
"""

from libc.stdint cimport int64_t

cdef extern from "mixtures.h" nogil:
    const Py_ssize_t MIXTURE_TILE
    double weigh_tile(double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const int64_t*, const double*,
                      Py_ssize_t, Py_ssize_t, double, double, Py_ssize_t, double*)


def weigh_components(
    double[:, :, ::1] projected,  # IN (S, p + 1, n) z and l; OUT w a_s z and w a_s
    const double[:, ::1] quadratic,  # IN (G, n) q of each group of components
    const int64_t[::1] group,  # IN (S,) row of quadratic and sums
    const double[::1] weight,  # IN (n,)
    Py_ssize_t first,
    Py_ssize_t last,  # components first to last are those of the class of the samples
    double joint,  # a
    double features,  # b
    double[:, ::1] sums,  # IN OUT (G, n) w a_s are added
):
    """Replace projections by their weighted ones; the sum over samples of w times the criterion."""
    cdef:
        Py_ssize_t tile, start, n = projected.shape[2]
        double value = 0
    with nogil:
        for tile in range((n + MIXTURE_TILE - 1) // MIXTURE_TILE):
            start = tile * MIXTURE_TILE
            value += weigh_tile(
                &projected[0, 0, start], projected.shape[0], projected.shape[1] - 1, n, &quadratic[0, start], &group[0],
                &weight[start], first, last, joint, features, min(MIXTURE_TILE, n - start), &sums[0, start]
            )
    return value
