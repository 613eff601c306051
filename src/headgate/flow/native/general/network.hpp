// The input and the output of the general solver.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wide.hpp"

namespace headgate::flow {

using Number = std::int64_t;  // costs, capacities, amounts of flow
using Index = std::int32_t;   // vertices, positions of arcs

// Arc a leads from tail[a] to head[a] and carries up to capacity[a] units at cost[a] each;
// supply[v] units enter at vertex v (leave, where negative). The caller has
// checked that all arrays of arcs have one length, that the vertices exist, that no capacity is
// negative, and that the largest absolute cost times (vertices + 3) is below 2^61.
struct Network {
    std::span<const Number> tail, head, capacity, cost, supply;

    Index vertices() const { return static_cast<Index>(supply.size()); }
    Index arcs() const { return static_cast<Index>(tail.size()); }
};

// The potentials prove the flow optimal: the reduced cost cost[a] + potential[head] -
// potential[tail] is at least 0 on arcs with residual capacity and at most 0 on arcs with flow.
struct Flow {
    std::vector<Number> flow, potential;
    Wide cost = 0;
    Number unsent = 0;
};

// Sends as many units as possible, at the least cost. Supplies need not add up to 0. Throws
// BadInput for sizes with which sums could overflow.
Flow min_cost_flow(const Network& network);

}  // namespace headgate::flow
