"""Functions of core/rows.hpp, for both precisions."""

cdef extern from "core/rows.hpp" namespace "crf" nogil:
    void exponentiate_all[T](T*, Py_ssize_t)
    void logarithms[T](const T*, Py_ssize_t, T*)
    void row_quotient[T](const T*, const T*, Py_ssize_t, T*)
    T row_below_best[T](const T*, Py_ssize_t, Py_ssize_t, T*)
    void sum_of_rows[T](const T*, const T*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, T*)
    void sum_product[T](const T*, const T*, Py_ssize_t, Py_ssize_t, T*)
