// A first guess at prices: what a good start needs, and exactness does not.
#pragma once

#include <span>
#include <vector>

#include "units.hpp"
#include "zones.hpp"

namespace headgate::flow::laminar {

// Gives all places of trees one price, pools others, and all that is then wanted holes: as if a
// tree were one place. Its price is what the first unit would pay that has to wait, when each pool
// takes those first who gain least by being placed. No unit is placed yet; zones are to be rebuilt
// afterwards. O(options + units x log).
void estimate_prices(Zones& zones, std::span<const Unit> pending);

}  // namespace headgate::flow::laminar
