#include "backward.hpp"

#include <algorithm>
#include <cassert>

namespace headgate::flow::laminar {

void Backward::begin() {
    if (++round_ == 0) {  // the counter has wrapped around
        for (auto& label : labels_) label.seen = label.done = 0;
        round_ = 1;
    }
    queue_.clear();
    settled_.clear();
}

bool Backward::reach(Place zone, Cost distance, Cost most, const Step& step) {
    assert(distance >= 0);
    if (distance >= most) return false;
    Label& label = labels_[zone];
    if (label.seen == round_ && distance >= label.distance) return false;
    label.distance = distance;
    label.seen = round_;
    label.step = step;
    queue_.push(distance, zones_.forest.rank(zone));
    return true;
}

void Backward::lower_prices(Cost radius) {
    auto lowered = [&](Place zone) { return labels_[zone].distance < radius; };
    for (const Place zone : settled_) {
        if (lowered(zone)) zones_.vertex[zone].price -= radius - labels_[zone].distance;
    }
    for (const Place zone : settled_) {
        if (lowered(zone) && zone != zones_.forest.sink()) zones_.price_fell(zone);
    }
}

Place Backward::find_sink(Place deficit, std::int64_t most_read) {
    const auto& forest = zones_.forest;
    const Place sink = forest.sink();
    const std::int64_t most = read_ + most_read;
    begin();
    add_source(deficit);
    Cost shortest = kFar;
    Place start = kNowhere;
    auto meet = [&](Place zone, Cost distance) {
        if (zone != sink && !forest.is_root(zone)) return;
        const Cost whole = distance + zones_.vertex[zone].price - zones_.sink_price();
        if (whole < shortest) {
            shortest = whole;
            start = zone;
        }
    };
    meet(deficit, 0);
    while (radius() < shortest) {
        if (read_ > most || (next() != sink && !forest.is_listed(next()))) return kNowhere;
        step(shortest, meet);
    }
    if (start != kNowhere) lower_prices(shortest);
    return start;
}

}  // namespace headgate::flow::laminar
