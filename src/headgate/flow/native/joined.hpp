// Options of units put together from several parts, unit by unit.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "options.hpp"

namespace headgate::flow {

// Whole numbers, one after the other; or one number for all.
using Column =
    std::variant<std::span<const std::int32_t>, std::span<const std::int64_t>, std::int64_t>;

// Options in the order of their units: so many of each one.
struct Part {
    Column counts, place, cost;
};

// Those of a unit part after part. O(options + units x parts). Throws BadInput where a part does not
// match so many units.
OptionLists joined_options(std::int64_t units, std::span<const Part> parts);

}  // namespace headgate::flow
