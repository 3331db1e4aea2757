// The arrays of a network, as Python owns them.
#pragma once

#include "flow_topologies.hpp"

namespace crf {

// Lattices: residual, label and parent carry their guards.
template <class Cap>
struct Buffers {
    Cap *residual, *excess;
    i32 *label, *next, *lists, *bucket;  // lists: four of n_listed nodes
    void* parent;
    u8* flag;
    i64 n_nodes, n_arcs, n_listed, n_buckets;
};

}  // namespace crf
