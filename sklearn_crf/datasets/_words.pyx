"""Parser of the numbers in a text, in one pass over its bytes and without Python objects for single numbers."""

cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    double PyOS_string_to_double(const char*, char**, void*) except? -1.0

cdef enum:
    LONGEST = 400  # maximum length in bytes of a word that represents a number

cdef double SMALLEST_NORMAL = 2.2250738585072014e-308, SMALLEST = 5e-324

# Integers up to 2^53 and these powers of ten are exact, so that their quotients are rounded correctly.
cdef double[23] _POWERS
cdef int _k
_POWERS[0] = 1.0
for _k in range(1, 23):
    _POWERS[_k] = 10.0 * _POWERS[_k - 1]


def read_numbers(
    const unsigned char[::1] text,  # IN ASCII
    Py_ssize_t position,  # where to begin in text
    bint is_last,  # whether a word may end with the text
    double[::1] values,  # OUT
    list tiny,  # OUT
):
    """Fill ``values`` with the numbers of a text, until the text or the array ends.

    Returns the number of words read, the position after them, the number of line ends passed, and whether the next word
    is a number. If the next word is not a number, the first three values tell where this word is. Numbers too small for
    all digits of a double are listed in ``tiny`` with their words, and none of them becomes 0.
    """
    cdef:
        Py_ssize_t n = text.shape[0], n_values = values.shape[0], n_read = 0, start, n_lines = 0
        double value = 0.0
    while n_read < n_values:
        while position < n and _is_space(text[position]):
            n_lines += text[position] == 10
            position += 1
        start = position
        while position < n and not _is_space(text[position]):
            position += 1
        if start == position or (position == n and not is_last):
            return n_read, start, n_lines, True
        if not _parsed(&text[start], position - start, &value):
            return n_read, start, n_lines, False
        if -SMALLEST_NORMAL < value < SMALLEST_NORMAL and _has_digits(&text[start], position - start):
            tiny.append((n_read, bytes(text[start:position])))
            if value == 0.0:
                value = -SMALLEST if text[start] == c"-" else SMALLEST
        values[n_read] = value
        n_read += 1
    return n_read, position, n_lines, True


cdef inline bint _is_space(unsigned char c) noexcept:
    return c == 32 or 9 <= c <= 13


cdef inline bint _has_digits(const unsigned char* word, Py_ssize_t length) noexcept:
    """Return whether a word has a nonzero digit before its exponent."""
    cdef Py_ssize_t k = 0
    while k < length and word[k] != c"e" and word[k] != c"E":
        if c"1" <= word[k] <= c"9":
            return True
        k += 1
    return False


@cython.boundscheck(False)
cdef bint _parsed(const unsigned char* word, Py_ssize_t length, double* value):
    """Parse a word as a number, and return False if it is not a number; NaN and infinity count as numbers."""
    cdef:
        Py_ssize_t k = 0
        uint64_t digits = 0
        int n_digits = 0, exponent = 0
        bint negative = word[0] == c"-", after_point = False
    if word[0] == c"-" or word[0] == c"+":
        k = 1
    while k < length and n_digits < 16:
        if c"0" <= word[k] <= c"9":
            digits = 10 * digits + (word[k] - c"0")
            n_digits += digits > 0
            exponent -= after_point
        elif word[k] == c"." and not after_point:
            after_point = True
        else:
            break
        k += 1
    # Fifteen digits stay below 2^53. Longer numbers and exponents take the slow path.
    if k == length and n_digits < 16 and exponent > -23 and c"0" <= word[length - 1] <= c"9":
        value[0] = <double> digits / _POWERS[-exponent]
        if negative:
            value[0] = -value[0]
        return True
    return _parsed_slowly(word, length, value)


cdef bint _parsed_slowly(const unsigned char* word, Py_ssize_t length, double* value):
    cdef:
        char[LONGEST + 1] copy
        char* end
    if length > LONGEST:
        return False
    memcpy(copy, word, length)
    copy[length] = 0
    try:
        value[0] = PyOS_string_to_double(copy, &end, NULL)
    except ValueError:
        return False
    return end == copy + length
