// Orders of whole numbers, and the least of each group of them.
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

// The least value of each of so many groups; `otherwise` where it has none. Throws
// std::invalid_argument where a value has no group, or one that is not there.
std::vector<std::int64_t> least_of_each(Numbers group, Numbers value, std::int64_t groups,
                                        std::int64_t otherwise);

}  // namespace headgate::base
