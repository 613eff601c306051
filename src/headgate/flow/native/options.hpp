// Options of units, as the solvers read them (CSR).
#pragma once

#include <cstdint>
#include <vector>

namespace headgate::flow {

// The options of unit u are [offsets[u], offsets[u + 1]).
struct OptionLists {
    std::vector<std::int64_t> offsets, place, cost;
};

}  // namespace headgate::flow
