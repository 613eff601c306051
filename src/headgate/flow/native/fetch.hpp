// Options of units that fetch items, with copies on leaves that are grouped in regions.
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

// Unit u fetches the items [first[u], first[u + 1]). An item costs its size times price[0] on a
// leaf with a copy, times price[1] in a region with one, times price[2] elsewhere, rounded; an
// item, and all items of a unit together, cost at most `most`. The copies of item i are on the
// leaves copies[copy_first[i], copy_first[i + 1]), none twice; region[leaf] is the region of a
// leaf.
struct Fetch {
    NumbersIn first, size;
    std::array<double, 3> price;
    std::int64_t most;
    NumbersIn copy_first, copies, region;
};

// The places of units. The table `places`, of `rows` rows and `classes` classes, has a row per
// leaf, then per region, then one for everything: the number of its place for each class, negative
// for none. `accepts` has a row per type and a column per class: which classes units of the type
// accept; each of these costs `dearer` more than the one before. Each class has `windows` columns,
// in order: a unit needs its shortest window or a longer one, and each but the last, which is
// unlimited, costs `dearer` more. In addition, each unit has `own` options of its own, unit by
// unit.
struct Where {
    NumbersIn type, shortest, places;
    std::span<const bool> accepts;
    std::int64_t rows, classes, windows, dearer;
    std::size_t own;
    NumbersIn own_place, own_cost;
};

// The options of each unit: on leaves, in regions, anywhere, its own. Leaves and regions only where
// they are cheaper than the place around them. O(copies x log(copies of a unit) x classes x windows).
// Throws BadInput.
OptionLists fetch_options(const Fetch& fetch, const Where& where);

}  // namespace headgate::flow
