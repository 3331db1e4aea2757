# distutils: language = c++
"""Extrapolation of messages towards the fixed point of sweeps."""

from cython cimport floating
from libc.stdint cimport int64_t

cdef extern from "messages/extrapolation.hpp" namespace "crf" nogil:
    cdef cppclass SweepPlan:
        int64_t n_combined, first, between
        double ridge, largest_growth

    void shares_of_products(const double*, int64_t, double, double*)

    cdef cppclass Extrapolation[Real]:
        Extrapolation(Real*, int64_t, int64_t, int64_t, int, SweepPlan) except +
        void advance()


cdef class SweepExtrapolation:
    """History of the latest sweeps over an array of messages, which is modified in place."""

    cdef:
        Extrapolation[float]* single
        Extrapolation[double]* wide
        object _values

    def __dealloc__(self):
        del self.single
        del self.wide

    def advance(self):
        """Record the messages after a sweep, and extrapolate them every few sweeps."""
        with nogil:
            if self.single != NULL:
                self.single.advance()
            if self.wide != NULL:
                self.wide.advance()


def extrapolate(
    floating[:, ::1] values,  # INOUT (n, width) messages
    int64_t n_columns,
    int form,  # 0: log-odds, 1: probabilities, 2: scores
    tuple plan,  # the fields of SweepPlan
):
    """Return an extrapolation of sweeps that start from the given messages."""
    cdef:
        SweepExtrapolation made = SweepExtrapolation()
        SweepPlan as_kept
        int64_t n = values.shape[0], width = values.shape[1]
    as_kept.n_combined, as_kept.first, as_kept.between, as_kept.ridge, as_kept.largest_growth = plan
    made._values = values
    if floating is float:
        made.single = new Extrapolation[float](&values[0, 0], n, n_columns, width, form, as_kept)
    else:
        made.wide = new Extrapolation[double](&values[0, 0], n, n_columns, width, form, as_kept)
    return made


def shares_of_changes(
    const double[:, ::1] products,  # IN (m, m) inner products of the changes of m sweeps
    double ridge,
    double[::1] shares,  # OUT (m,)
):
    """Compute coefficients with sum 1 of the shortest combination of the changes."""
    shares_of_products(&products[0, 0], products.shape[0], ridge, &shares[0])
