// Pointers to the arrays of a network, which Python owns.
#pragma once

#include "flow_topologies.hpp"

namespace crf {

// For lattices, residual, label and parent include guard elements at both ends.
template <class Cap>
struct Buffers {
    Cap *residual, *excess;
    i32 *label, *next, *lists, *bucket;  // lists: four lists of n_listed nodes
    void* parent;
    u8* flag;
    i64 n_nodes, n_arcs, n_listed, n_buckets;
};

}  // namespace crf
