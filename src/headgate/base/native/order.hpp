// Sorting of integers, and the minimum of each group of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headgate::base {

using Numbers = std::span<const std::int64_t>;

// The indices that sort the values, stably. O(values x digits).
std::vector<std::int64_t> in_order(Numbers values);

// For each value, how many equal ones come before it. O(values x digits).
std::vector<std::int64_t> nth_of_equals(Numbers values);

// The minimum of each group, `[groups]`; `otherwise` for an empty one. Throws std::invalid_argument
// where lengths differ or a group is out of range.
std::vector<std::int64_t> least_of_each(Numbers group, Numbers value, std::int64_t groups,
                                        std::int64_t otherwise);

}  // namespace headgate::base
