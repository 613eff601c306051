// Options of units, joined from several parts, unit by unit.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "options.hpp"

namespace headgate::flow {

// Integers, one per entry; or one for all.
using Column =
    std::variant<std::span<const std::int32_t>, std::span<const std::int64_t>, std::int64_t>;

// Options in the order of their units: `counts` of each unit.
struct Part {
    Column counts, place, cost;
};

// Joins the options of each unit, part after part. O(options + units x parts). Throws BadInput
// where a part does not match `units`.
OptionLists joined_options(std::int64_t units, std::span<const Part> parts);

}  // namespace headgate::flow
