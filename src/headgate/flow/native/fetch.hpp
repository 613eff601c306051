// What units may take that fetch items, of which there are copies on leaves of regions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "options.hpp"

namespace headgate::flow {

using Numbers = std::vector<std::int64_t>;
using NumbersIn = std::span<const std::int64_t>;

// Unit u fetches the items [first[u], first[u + 1]). One costs its size times price[0] on a leaf
// with a copy, times price[1] in a region with one, times price[2] elsewhere, rounded; no more than
// `most`, nor does a unit for all that it fetches. The copies of item i are on the leaves
// copies[copy_first[i], copy_first[i + 1]), none twice; region[leaf] is where a leaf is.
struct Fetch {
    NumbersIn first, size;
    std::array<double, 3> price;
    std::int64_t most;
    NumbersIn copy_first, copies, region;
};

// Where units may go. In the table `at`, of so many rows and classes, the leaves come first, then the
// regions, then all there is: the number of each one's place for a class, or a negative one. A unit
// needs its smallest class; each above it costs `dearer` more. Besides, each unit has so many options
// of its `own`, one unit's after another's.
struct Where {
    NumbersIn smallest, at;
    std::int64_t rows, classes, dearer;
    std::size_t own;
    NumbersIn own_place, own_cost;
};

// The options of each unit: on leaves, in regions, anywhere, its own. Leaves and regions only where
// they are cheaper than what is around them. O(copies x log(copies of a unit) x classes). Throws
// BadInput.
OptionLists fetch_options(const Fetch& fetch, const Where& where);

}  // namespace headgate::flow
