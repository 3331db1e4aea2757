"""Reader that converts tokens, given as dictionaries or lists of names, to columns and values in one pass.

Most values are strings, and few of them differ. A hash table therefore stores the column of each pair of a name and a
string value. The full name of a column is built once for each pair, not for each token. Tokens mostly list their names
in one order, and most of the time is spent waiting for memory. Names are therefore compared with the names of the last
token first, and memory that the next tokens need is prefetched.
"""

from array import array
from collections.abc import Mapping
from numbers import Number

cimport cython
from cpython cimport array as c_array
from cpython.dict cimport PyDict_GetItemWithError
from cpython.ref cimport PyObject
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t

import numpy as np

cdef extern from "string_columns.h":
    ctypedef struct StringColumns:
        pass
    int string_columns_init(StringColumns*, Py_ssize_t) except -1
    void string_columns_free(StringColumns*)
    bint string_columns_get(const StringColumns*, object, int32_t, int32_t*)
    int string_columns_set(StringColumns*, object, int32_t, int32_t) except -1
    void prefetch_token "PREFETCH"(PyObject*)
    void prefetch_dict(object)
    void prefetch_strings(object)
    void prefetch_slots(const StringColumns*, object, const int32_t*, Py_ssize_t)


@cython.final
cdef class _Name:
    """A name, with the names that occur inside of its values."""

    cdef str full  # including the names in which it is nested
    cdef str prefix  # the full name followed by the separator
    cdef int32_t number_of_name
    cdef dict parts  # column of each name in an iterable
    cdef dict nested  # _Name of each name in a mapping
    cdef object number  # column of numbers; None until it is needed
    cdef list usual  # names in the order of the last mapping
    cdef list entries  # _Name of each usual name
    cdef c_array.array numbers  # number_of_name of each usual name

    def __cinit__(self, str full, str separator, int32_t name):
        self.full = full
        self.prefix = full + separator
        self.number_of_name = name
        self.usual = []
        self.entries = []
        self.numbers = array("i")
        self.parts = {}
        self.nested = {}
        self.number = None


@cython.final
cdef class _TokenReader:
    """Columns and values of the tokens that have been read."""

    cdef dict vocabulary
    cdef str separator
    cdef bint learns
    cdef double largest
    cdef c_array.array columns
    cdef c_array.array values  # None while all values are one
    cdef c_array.array ends
    cdef c_array.array last_token  # by column: last token whose iterables contain its name, counted from 1
    cdef Py_ssize_t n_entries
    cdef Py_ssize_t n_held
    cdef Py_ssize_t n_tokens
    cdef _Name root
    cdef StringColumns categories  # column of each pair of a name and a string value
    cdef int32_t n_names

    def __cinit__(self, dict vocabulary, str separator, bint learns, double largest):
        self.vocabulary = vocabulary
        self.separator = separator
        self.learns = learns
        self.largest = largest
        self.columns = array("i", [0]) * 1024
        self.ends = array("q", [0]) * 128
        self.last_token = array("q")
        self.n_entries = self.n_tokens = 0
        self.n_held = 1024
        self.root = _Name("", separator, 0)
        self.n_names = 1
        string_columns_init(&self.categories, 0 if learns else len(vocabulary))

    def __dealloc__(self):
        string_columns_free(&self.categories)

    cdef int32_t column_of(self, str full) except? -2:
        cdef PyObject* known = PyDict_GetItemWithError(self.vocabulary, full)
        if known != NULL:
            return <object> known
        if not self.learns:
            return -1
        cdef int32_t column = <int32_t> len(self.vocabulary)
        self.vocabulary[full] = column
        return column

    cdef inline int add(self, int32_t column, double value) except -1:
        if column < 0 or value == 0.0:
            return 0
        if self.n_entries == self.n_held:
            self.n_held += self.n_held // 2
            c_array.resize(self.columns, self.n_held)
            if self.values is not None:
                c_array.resize(self.values, self.n_held)
        self.columns.data.as_ints[self.n_entries] = column
        if self.values is not None:
            self.values.data.as_doubles[self.n_entries] = value
        elif value != 1.0:
            self.values = array("d", [1.0]) * self.n_held
            self.values.data.as_doubles[self.n_entries] = value
        self.n_entries += 1
        return 0

    cdef int read(self, object token) except -1:
        if type(token) is dict:
            self.add_mapping(<dict> token, self.root)
        elif type(token) is not list and isinstance(token, Mapping):
            self.add_mapping(dict(token), self.root)
        else:
            if isinstance(token, str) or not hasattr(token, "__iter__"):
                use = f": pass {{'word': {token!r}}} or [{token!r}]" if isinstance(token, str) else ""
                raise TypeError(f"features must be a mapping or an iterable of strings, got {token!r}{use}.")
            self.add_names(token, self.root)
        self.n_tokens += 1
        if self.n_tokens == len(self.ends):
            c_array.resize(self.ends, 2 * self.n_tokens)
        self.ends.data.as_longlongs[self.n_tokens] = self.n_entries
        return 0

    cdef int add_mapping(self, dict token, _Name parent) except -1:
        cdef _Name entry
        cdef Py_ssize_t k = 0
        for name, value in token.items():
            if k < len(parent.usual) and parent.usual[k] is name:
                entry = <_Name> parent.entries[k]
            else:
                entry = self.entry_of(name, parent, k)
            k += 1
            if type(value) is str:
                self.add_category(<str> value, entry)
            elif type(value) is bool or type(value) is float or type(value) is int:
                self.add_number(value, entry)
            else:
                self.add_other(value, entry)
        return 0

    cdef _Name entry_of(self, object name, _Name parent, Py_ssize_t k):
        """Return the entry of the k-th name of a mapping."""
        # Only strings are cached, because 1 and True are equal keys with different names.
        cdef _Name entry = <_Name> parent.nested.get(name) if type(name) is str else None
        if entry is None:
            full = f"{parent.full}:{name}" if parent is not self.root else f"{name}"
            entry = _Name(full, self.separator, self.n_names)
            self.n_names += 1
            if type(name) is not str:
                return entry
            parent.nested[name] = entry
        if k < len(parent.usual):
            parent.usual[k], parent.entries[k], parent.numbers.data.as_ints[k] = name, entry, entry.number_of_name
        elif k == len(parent.usual):
            parent.usual.append(name)
            parent.entries.append(entry)
            parent.numbers.append(entry.number_of_name)
        return entry

    cdef inline int add_category(self, str value, _Name entry) except -1:
        cdef int32_t column
        if not string_columns_get(&self.categories, value, entry.number_of_name, &column):
            column = self.column_of(entry.prefix + value)
            string_columns_set(&self.categories, value, entry.number_of_name, column)
        return self.add(column, 1.0)

    cdef int add_number(self, object value, _Name entry) except -1:
        cdef double number
        try:
            number = value
        except OverflowError:  # an int of more than 1024 bits, which may have too many digits for an error message
            number = INFINITY
        if not fabs(number) <= self.largest:
            raise ValueError(f"the value of {entry.full!r} must be finite, not NaN or infinity, got {number!r}.")
        if entry.number is None:
            entry.number = self.column_of(entry.full)
        return self.add(entry.number, number)

    cdef int add_other(self, object value, _Name entry) except -1:
        if isinstance(value, str):
            return self.add(self.column_of(f"{entry.full}{self.separator}{value}"), 1.0)
        if isinstance(value, (Number, np.bool_)):
            return self.add_number(value, entry)
        if isinstance(value, Mapping):
            return self.add_mapping(dict(value), entry)
        # Arrays without axes have __iter__, but cannot be iterated.
        if isinstance(value, bytes) or not hasattr(value, "__iter__") or getattr(value, "ndim", 1) == 0:
            raise TypeError(
                f"the value of {entry.full!r} must be a string, a number, a mapping or an iterable of strings, "
                f"got {value!r}."
            )
        return self.add_names(value, entry)

    cdef int add_names(self, object names, _Name parent) except -1:
        # The order of a set depends on the process.
        for name in sorted(names, key=str) if isinstance(names, (set, frozenset)) else names:
            column = parent.parts.get(name) if type(name) is str else None
            if column is None:
                if not isinstance(name, str):
                    inside = "" if parent is self.root else f" of {parent.full!r}"
                    raise TypeError(f"a feature in an iterable{inside} must be a string, got {name!r}.")
                column = self.column_of(f"{name}" if parent is self.root else f"{parent.full}:{name}")
                if type(name) is str:
                    parent.parts[name] = column
            if self.is_new(column):
                self.add(column, 1.0)
        return 0

    cdef bint is_new(self, int32_t column) except -1:
        """Return whether this is the first time that the iterables of the current token contain this name."""
        cdef Py_ssize_t n_held = len(self.last_token)
        if column < 0:
            return False
        if column >= n_held:
            self.last_token.extend(array("q", [0]) * (column + 1024))
        if self.last_token.data.as_longlongs[column] == self.n_tokens + 1:
            return False
        self.last_token.data.as_longlongs[column] = self.n_tokens + 1
        return True

    cdef tuple arrays(self):
        c_array.resize(self.columns, self.n_entries)
        if self.values is not None:
            c_array.resize(self.values, self.n_entries)
        c_array.resize(self.ends, self.n_tokens + 1)
        return (
            np.frombuffer(self.columns, dtype=np.int32),
            None if self.values is None else np.frombuffer(self.values, dtype=np.float64),
            np.frombuffer(self.ends, dtype=np.int64),
        )


def read_tokens(
    object X,  # IN iterable of sequences of tokens
    dict vocabulary,  # IN OUT column of each name
    str separator,
    bint learns,  # whether to add unknown names to the vocabulary instead of dropping them
    double largest,  # absolute value above which a number counts as infinite
):
    """Return columns and values of all tokens in order, the end of each token, and the length of each sequence.

    Values are None if all of them are one.
    """
    cdef:
        _TokenReader reader = _TokenReader(vocabulary, separator, learns, largest)
        Py_ssize_t i = 0
        Py_ssize_t first, t, n_ahead
        list tokens
        c_array.array names
    lengths = []
    for sequence in X:
        first = reader.n_tokens
        if isinstance(sequence, str):
            raise ValueError(f"X[{i}] is the string {sequence!r}: split it into tokens, a dict of features for each.")
        tokens = sequence if type(sequence) is list else list(sequence)
        t = 0
        # The list may shrink while values of user-defined types are read.
        while t < len(tokens):
            token, n_ahead = tokens[t], len(tokens) - t
            if n_ahead > 6:
                prefetch_token(<PyObject*> tokens[t + 6])
                prefetch_dict(tokens[t + 4])
            if n_ahead > 2:
                prefetch_strings(tokens[t + 2])
            if n_ahead > 1:
                names = reader.root.numbers
                prefetch_slots(&reader.categories, tokens[t + 1], <const int32_t*> names.data.as_ints, len(names))
            t += 1
            try:
                reader.read(token)
            except (TypeError, ValueError) as error:
                raise ValueError(f"X[{i}][{reader.n_tokens - first}]: {error}") from error
        lengths.append(reader.n_tokens - first)
        i += 1
    return *reader.arrays(), np.array(lengths, dtype=np.int64)
