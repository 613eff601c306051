// Orders of whole numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headgate::base {

using Numbers = std::span<const std::int64_t>;

// The indices of values, the least first; of equals, the first one first. O(values x digits).
std::vector<std::int64_t> in_order(Numbers values);

// How many equal values come before each one. O(values x digits).
std::vector<std::int64_t> nth_of_equals(Numbers values);

}  // namespace headgate::base
