// A first estimate of prices: a good start for the search, not needed for exactness.
#pragma once

#include <span>
#include <vector>

#include "units.hpp"
#include "zones.hpp"

namespace headgate::flow::laminar {

// Gives all places of trees one price, as if a tree were one place, and other prices to pools, and
// adds deficits wherever units want to be at these prices. A tree's price is that of the first unit
// that has to wait, when each pool takes first the units that gain least by being placed. No unit
// is placed yet; the caller rebuilds the zones afterwards. O(options + units x log).
void estimate_prices(Zones& zones, std::span<const Unit> pending);

}  // namespace headgate::flow::laminar
