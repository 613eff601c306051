// What units would pay for fetching items, of which there are copies on leaves of regions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headgate::flow {

using Numbers = std::vector<std::int64_t>;
using NumbersIn = std::span<const std::int64_t>;

// Unit u fetches the items [first[u], first[u + 1]), item i costs price[3 * i] on a leaf with a
// copy, price[3 * i + 1] in a region with one, price[3 * i + 2] elsewhere. Its copies are on the
// leaves copies[copy_first[i], copy_first[i + 1]), none twice; region[leaf] is where a leaf is.
struct Fetch {
    NumbersIn first, price, copy_first, copies, region;
};

// Where units pay less than around: leaves by region, and regions, both in the order of units.
struct Fetched {
    Numbers leaf_unit, leaf, leaf_price;
    Numbers region_unit, region, region_price;
    Numbers anywhere;  // what each unit pays elsewhere
};

// O(copies x log(copies of a unit) + leaves). Throws BadInput.
Fetched fetched(const Fetch& fetch);

}  // namespace headgate::flow
