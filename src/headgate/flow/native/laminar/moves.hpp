// Moves of several units that belong together: zones and keys follow when all have been made.
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
    // Where nobody moves, but something else has changed.
    void touch(Place v) { touched_.push_back(v); }
    // A hole there, if there is one, is filled by who comes.
    void fill(Place zone) {
        if (zones_.holes(zone) == 0) return;
        zones_.drop_holes(zone, 1);
        touch(zone);
    }

    // Calls `see(unit)` for each that has moved.
    template <class See>
    void finish(See see) {
        std::erase_if(touched_, [&](Place v) { return v == zones_.forest.sink(); });
        zones_.settle(touched_);
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
