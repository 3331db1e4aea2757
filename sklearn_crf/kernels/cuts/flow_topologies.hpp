// Who is joined to whom: topologies on which max_flow.hpp runs. A lattice computes its neighbours and stores no arcs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/types.hpp"

namespace crf {

using u8 = std::uint8_t;

// An array that checks its indices when the suite is run with SKLEARN_CRF_BOUNDSCHECK=1.
template <class T>
struct Array {
    T* data;
    i64 low, high;  // valid indices low <= i < high

    Array() : data(nullptr), low(0), high(0) {}
    Array(T* data_, i64 size, i64 guard = 0) : data(data_ + guard), low(-guard), high(size - guard) {}
    Array part(i64 start, i64 size) const { return Array(data + start, size); }

    T& operator[](i64 i) const {
#ifdef SKLEARN_CRF_BOUNDSCHECK
        if (i < low || i >= high) std::abort();
#endif
        return data[i];
    }
};

// One number that a thread may read while another one writes it. Boxes that are solved at once look over their borders:
// what they find there never counts, as the arcs between them have no capacity.
template <class T>
struct Relaxed {
    T& value;

#if defined(__GNUC__) || defined(__clang__)
    operator T() const { return __atomic_load_n(&value, __ATOMIC_RELAXED); }
    void operator=(T other) const { __atomic_store_n(&value, other, __ATOMIC_RELAXED); }
#else
    operator T() const { return const_cast<const volatile T&>(value); }
    void operator=(T other) const { const_cast<volatile T&>(value) = other; }
#endif
};

template <class T>
struct SharedArray : Array<T> {
    using Array<T>::Array;
    Relaxed<T> operator[](i64 i) const { return {Array<T>::operator[](i)}; }
};

// A topology numbers the arcs that leave a node by k in first(i) <= k < last(i) and says for each: its head, the
// index of its residual capacity, that of the opposite arc, and the opposite arc's number at the head.

// Nodes of a lattice in C order; delta[k] leads to neighbour k, delta[D - 1 - k] = -delta[k]. Arcs that would leave
// the lattice have no capacity in either direction, so wherever their head wraps to, no path goes through them;
// residual, label and parent carry a guard of max |delta| nodes at both ends so that it may be looked at.
template <int D>
struct Lattice {
    using Parent = u8;
    i64 delta[D];
    void set(const i64* deltas, int) { std::copy(deltas, deltas + D, delta); }
    int first(i64) const { return 0; }
    int last(i64) const { return D; }
    i64 head(i64 i, int k) const { return i + delta[k]; }
    i64 out(i64 i, int k) const { return i * D + k; }
    i64 in(i64 i, int k) const { return (i + delta[k]) * D + (D - 1 - k); }
    Parent back(i64, int k) const { return static_cast<Parent>(D - 1 - k); }
};

// The same for any number of neighbours.
struct AnyLattice {
    using Parent = u8;
    const i64* delta;
    int degree;
    void set(const i64* deltas, int degree_) { delta = deltas, degree = degree_; }
    int first(i64) const { return 0; }
    int last(i64) const { return degree; }
    i64 head(i64 i, int k) const { return i + delta[k]; }
    i64 out(i64 i, int k) const { return i * degree + k; }
    i64 in(i64 i, int k) const { return (i + delta[k]) * degree + (degree - 1 - k); }
    Parent back(i64, int k) const { return static_cast<Parent>(degree - 1 - k); }
};

// What to do with a lattice, by the number of its neighbours: topologies with that known to the compiler are faster.
template <class Action>
bool on_lattice(int degree, Action action) {
    switch (degree) {
        case 4: return action(Lattice<4>());
        case 6: return action(Lattice<6>());
        case 8: return action(Lattice<8>());
        default: return action(AnyLattice());
    }
}

// Slots of Graph.incidence.
struct Slots {
    using Parent = i32;
    Array<const i64> ptr;
    Array<const i32> neighbor, reverse;
    i64 first(i64 i) const { return ptr[i]; }
    i64 last(i64 i) const { return ptr[i + 1]; }
    i64 head(i64, i64 k) const { return neighbor[k]; }
    i64 out(i64, i64 k) const { return k; }
    i64 in(i64, i64 k) const { return reverse[k]; }
    Parent back(i64, i64 k) const { return reverse[k]; }
};

// Two copies of a graph, node i and its mirror i + n_nodes. An edge with cross = 0 joins i to j and mirror to mirror,
// one with cross = 1 joins i to the mirror of j and the mirror of i to j.
struct Mirrored {
    using Parent = i32;
    Slots base;
    Array<const u8> cross;  // by slot
    i64 n_nodes, n_slots;
    i64 layer(i64 v) const { return v >= n_nodes; }
    i64 node(i64 v) const { return v >= n_nodes ? v - n_nodes : v; }
    i64 first(i64 v) const { return base.first(node(v)); }
    i64 last(i64 v) const { return base.last(node(v)); }
    i64 head(i64 v, i64 k) const { return base.head(0, k) + n_nodes * (layer(v) ^ cross[k]); }
    i64 out(i64 v, i64 k) const { return k + n_slots * layer(v); }
    i64 in(i64 v, i64 k) const { return base.in(0, k) + n_slots * (layer(v) ^ cross[k]); }
    Parent back(i64, i64 k) const { return base.back(0, k); }
};

}  // namespace crf
