// Types shared by the laminar solver's parts: numbers, options, and limits that keep sums exact.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "wide.hpp"

namespace headgate::flow::laminar {

using Cost = std::int64_t;   // whole units of cost; microseconds in Headgate
using Count = std::int64_t;  // units of flow
using Place = std::int32_t;  // a vertex of the forest, in preorder; `Forest::sink()` is one more
using Unit = std::int32_t;   // one unit of flow that is to be placed

constexpr Place kNowhere = -1;

// No sum of costs along a path reaches these: `Solver::add` rejects costs that are too large.
constexpr Cost kFar = Cost{1} << 62;
constexpr Cost kClosed = Cost{1} << 61;  // the price of a place without capacity
constexpr Cost kMostOutside = Cost{1} << 59;
constexpr Count kUnlimited = Count{1} << 40;  // a larger capacity is no limit
constexpr Cost kUnknown = std::numeric_limits<Cost>::min();

// A 64-bit cost beside a 32-bit number without padding: these are most of the memory used.
struct Priced {
    std::int32_t what;
    std::uint32_t halves[2];

    Priced() = default;
    Priced(std::int32_t what_, Cost cost) : what(what_) { std::memcpy(halves, &cost, sizeof cost); }

    Cost cost() const {
        Cost cost;
        std::memcpy(&cost, halves, sizeof cost);
        return cost;
    }
};
static_assert(sizeof(Priced) == 12);

using Option = Priced;  // of a unit: `what` is a place
using Listed = Priced;  // at a place: `what` is a unit that has an option there

}  // namespace headgate::flow::laminar
