// Topologies for max_flow.hpp, which define the neighbours of nodes. A lattice computes them and stores no arcs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/types.hpp"

namespace crf {

using u8 = std::uint8_t;

// Array that checks its indices if compiled with SKLEARN_CRF_BOUNDSCHECK=1.
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

// Number that one thread may read while another thread writes it. Boxes solved in parallel read across their borders.
// These values have no effect, since the arcs between boxes have no capacity.
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

// A topology numbers the arcs of node i by first(i) <= k < last(i). For each arc it defines the head, the index of its
// residual capacity (out), the index for the opposite arc (in), and the opposite arc's number at the head (back).

// Nodes of a lattice in C order; delta[k] leads to neighbour k, delta[D - 1 - k] = -delta[k]. Arcs that would leave
// the lattice have no capacity in either direction, so no path uses them wherever their head wraps to. residual, label
// and parent have a guard of max |delta| nodes at both ends, so that these heads can be read.
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

// Lattice with any number of neighbours.
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

// Calls an action with the topology for a number of neighbours. Numbers known at compile time are faster.
template <class Action>
bool on_lattice(int degree, Action action) {
    switch (degree) {
        case 4: return action(Lattice<4>());
        case 6: return action(Lattice<6>());
        case 8: return action(Lattice<8>());
        default: return action(AnyLattice());
    }
}

// General graph, given by the slots of Graph.incidence.
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

// Two copies of a graph: node i and its mirror i + n_nodes. An edge with cross = 0 connects i to j, and the mirror of i
// to the mirror of j. An edge with cross = 1 connects i to the mirror of j, and the mirror of i to j.
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
