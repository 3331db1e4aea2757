/* Columns of string values, by the name that has the value: a hash table with open addressing.
 *
 * With a dictionary for each name, a lookup would cause four cache misses: index, entry, string and number.
 * Here, a slot holds a short string and its column. */
#ifndef STRING_COLUMNS_H
#define STRING_COLUMNS_H

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

/* Characters of a short string, and its length behind them. */
#define SHORT_TEXT 16

typedef struct {
    Py_hash_t hash;
    union {
        char text[SHORT_TEXT]; /* a short string of one-byte characters, zeros, and its length */
        PyObject* string;      /* any other string, an owned reference */
    } key;
    int32_t column;
    int32_t name; /* 2 * (number of the name) + (1 if the string is short), or -1 if the slot is empty */
} StringSlot;

typedef struct {
    StringSlot* slots;
    size_t n;
    size_t n_used;
} StringColumns;

static StringSlot* empty_slots(size_t n) {
    StringSlot* slots = (StringSlot*)malloc(n * sizeof(StringSlot));
    if (!slots) PyErr_NoMemory();
    for (size_t i = 0; slots && i < n; i++) slots[i].name = -1;
    return slots;
}

/* Allocate slots for some of the expected strings; the table grows if more are added. */
static int string_columns_init(StringColumns* columns, Py_ssize_t n_expected) {
    columns->n = n_expected < 1024 ? 1024 : n_expected < 16384 ? (size_t)n_expected : 16384;
    columns->n_used = 0;
    columns->slots = empty_slots(columns->n);
    return columns->slots ? 0 : -1;
}

static void string_columns_free(StringColumns* columns) {
    for (size_t i = 0; columns->slots && i < columns->n; i++) {
        StringSlot* slot = columns->slots + i;
        if (slot->name >= 0 && !(slot->name & 1)) Py_DECREF(slot->key.string);
    }
    free(columns->slots);
    columns->slots = NULL;
}

static inline size_t first_slot(const StringColumns* columns, Py_hash_t hash, int32_t name) {
    const uint64_t mixed = ((uint64_t)hash ^ ((uint64_t)name << 32 | (uint64_t)name)) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)((mixed >> 32) * columns->n >> 32);
}

static inline size_t next_slot(const StringColumns* columns, size_t i) { return i + 1 < columns->n ? i + 1 : 0; }

static inline int is_short(PyObject* string) {
    return PyUnicode_KIND(string) == PyUnicode_1BYTE_KIND && PyUnicode_GET_LENGTH(string) < SHORT_TEXT;
}

/* The length distinguishes strings that end with zero characters from shorter strings. */
static inline void write_text(PyObject* string, char* text) {
    const Py_ssize_t length = PyUnicode_GET_LENGTH(string);
    memset(text, 0, SHORT_TEXT);
    memcpy(text, PyUnicode_DATA(string), (size_t)length);
    text[SHORT_TEXT - 1] = (char)length;
}

/* Return the slot of a string, whose type must be exactly str, or the empty slot where the string belongs. */
static inline StringSlot* find_slot(const StringColumns* columns, PyObject* string, Py_hash_t hash, int32_t name) {
    size_t i = first_slot(columns, hash, name);
    char text[SHORT_TEXT];
    const int short_text = is_short(string);
    name = 2 * name + short_text;
    if (short_text) write_text(string, text);
    for (;; i = next_slot(columns, i)) {
        StringSlot* slot = columns->slots + i;
        if (slot->name < 0) return slot;
        if (slot->hash != hash || slot->name != name) continue;
        if (short_text ? !memcmp(slot->key.text, text, SHORT_TEXT)
                       : slot->key.string == string || PyUnicode_Compare(slot->key.string, string) == 0)
            return slot;
    }
}

static int string_columns_grow(StringColumns* columns) {
    StringColumns larger = {NULL, columns->n + columns->n / 2, columns->n_used};
    larger.slots = empty_slots(larger.n);
    if (!larger.slots) return -1;
    for (size_t i = 0; i < columns->n; i++) {
        const StringSlot* slot = columns->slots + i;
        if (slot->name < 0) continue;
        size_t k = first_slot(&larger, slot->hash, slot->name >> 1);
        while (larger.slots[k].name >= 0) k = next_slot(&larger, k);
        larger.slots[k] = *slot;
    }
    free(columns->slots);
    *columns = larger;
    return 0;
}

/* Return whether the column of a string is known; if so, write it to column. */
static inline int string_columns_get(
    const StringColumns* columns, PyObject* string, int32_t name, int32_t* column) {
    const Py_hash_t hash = PyObject_Hash(string);
    const StringSlot* slot = find_slot(columns, string, hash, name);
    if (slot->name < 0) return 0;
    *column = slot->column;
    return 1;
}

/* Store the column of a string that has none yet. Return -1 if memory is insufficient, else 0. */
static int string_columns_set(StringColumns* columns, PyObject* string, int32_t name, int32_t column) {
    if (3 * columns->n_used > 2 * columns->n && string_columns_grow(columns)) return -1;
    const Py_hash_t hash = PyObject_Hash(string);
    StringSlot* slot = find_slot(columns, string, hash, name);
    slot->hash = hash;
    slot->column = column;
    slot->name = 2 * name + is_short(string);
    if (slot->name & 1) {
        write_text(string, slot->key.text);
    } else {
        Py_INCREF(string);
        slot->key.string = string;
    }
    columns->n_used++;
    return 0;
}

/* Tokens that will be read soon are prefetched in three steps. The first step prefetches the table of the dictionary.
 * If several threads can run Python at once, another thread could change the dictionary, so nothing is prefetched. */
#ifdef Py_GIL_DISABLED
#define MAY_LOOK_AHEAD(token) 0
#else
#define MAY_LOOK_AHEAD(token) PyDict_CheckExact(token)
#endif

static inline void prefetch_dict(PyObject* token) {
    if (!MAY_LOOK_AHEAD(token)) return;
    const char* keys = (const char*)((PyDictObject*)token)->ma_keys;
    for (int line = 0; line < 4; line++) PREFETCH(keys + 64 * line);
}

/* The second step prefetches the headers and characters of the strings in the dictionary. */
static inline void prefetch_strings(PyObject* token) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    if (!MAY_LOOK_AHEAD(token)) return;
    while (PyDict_Next(token, &at, &name, &value)) {
        PREFETCH(value);
        PREFETCH((const char*)value + sizeof(PyASCIIObject));
    }
}

/* The third step prefetches the slots of these strings, if the dictionary has the usual names in their order. */
static inline void prefetch_slots(const StringColumns* columns, PyObject* token, const int32_t* names, Py_ssize_t n) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    if (!MAY_LOOK_AHEAD(token)) return;
    for (Py_ssize_t k = 0; k < n && PyDict_Next(token, &at, &name, &value); k++)
        if (PyUnicode_CheckExact(value)) PREFETCH(columns->slots + first_slot(columns, PyObject_Hash(value), names[k]));
}

#endif
