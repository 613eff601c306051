// Moves of several units along one augmenting path: zones and move costs are updated at its end.
#pragma once

#include <algorithm>
#include <vector>

#include "zones.hpp"

namespace headgate::flow::laminar {

class Moves {
public:
    explicit Moves(Zones& zones) : zones_(zones) {}

    void move(Unit t, Place to, Cost cost) {
        if (const Place at = zones_.units[t].at; at != kNowhere) {
            touched_.push_back(at);
            zones_.take(t);
        }
        zones_.put(t, to, cost);
        touched_.push_back(to);
        moved_.push_back(t);
    }
    // Marks a place that changed though no unit moved to or from it.
    void touch(Place v) { touched_.push_back(v); }
    // Removes one unit of deficit from a zone that has some: the arriving unit fills it.
    void fill(Place zone) {
        if (zones_.deficits(zone) == 0) return;
        zones_.drop_deficit(zone, 1);
        touch(zone);
    }

    // Calls `see(unit)` for each that has moved.
    template <class See>
    void finish(See see) {
        std::erase_if(touched_, [&](Place v) { return v == zones_.forest.sink(); });
        zones_.update_zones(touched_);
        for (const Unit t : moved_) {
            zones_.index(t);
            see(t);
        }
        touched_.clear();
        moved_.clear();
    }

private:
    Zones& zones_;
    std::vector<Place> touched_;
    std::vector<Unit> moved_;
};

}  // namespace headgate::flow::laminar
