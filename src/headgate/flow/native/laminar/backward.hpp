// The search from its other end: which zones could send a unit on towards a hole, and how far it
// is.
//
// Dijkstra's algorithm against the direction of moves, from some holes. Who could come to a zone is
// known from the lists of those who have options there; for wide zones there are none, and all
// units are read through, which is worth it only when a search has become long.
#pragma once

#include <vector>

#include "heap.hpp"
#include "zones.hpp"

namespace headgate::flow::laminar {

class Backward {
public:
    struct Label {
        Cost distance = 0;
        std::uint32_t seen = 0, done = 0;
        Step step;
    };

    explicit Backward(Zones& zones) : zones_(zones), labels_(zones.forest.size() + 1) {}

    void resize() { labels_.assign(zones_.forest.size() + 1, {}); }
    void begin();
    void add_source(Place zone) { reach(zone, 0, kFar, Step{}); }

    bool idle() const { return queue_.empty(); }
    // No zone that is not settled is nearer to a hole than this.
    Cost radius() const { return queue_.empty() ? kFar : queue_.top().key; }
    // The zone that `step` would settle next.
    Place next() const { return zones_.forest.of_rank(queue_.top().what); }

    // About so many options are read to settle a zone, at least.
    std::int64_t work(Place zone) const {
        return zones_.forest.is_listed(zone) ? zones_.units.listed_at(zone)
                                             : zones_.units.alive() / 4;
    }

    // Settles the next zone and calls `meet(zone, distance)` for all that it gives a label; none
    // that is further away than `most` gets one.
    template <class Meet>
    void step(Cost most, Meet meet);

    bool knows(Place zone) const { return labels_[zone].seen == round_; }
    const Label& label(Place zone) const { return labels_[zone]; }

    // Lowers prices: each zone's by what it is nearer than `radius`.
    void lower_prices(Cost radius);

    // The cheapest way from the sink to one hole; prices are lowered so that it is free. Returns
    // the root where it starts, or the sink; kNowhere, changing nothing, where it may lead through
    // a wide zone, or so many options have been read in vain.
    Place find_sink(Place hole, std::int64_t most_read);

    std::int64_t options_read() const { return read_; }

private:
    bool reach(Place zone, Cost distance, Cost most, const Step& step);

    Zones& zones_;
    std::vector<Label> labels_;
    std::vector<Place> settled_;
    Heap queue_;  // key: distance; what: rank
    std::uint32_t round_ = 0;
    std::int64_t read_ = 0;
};

template <class Meet>
void Backward::step(Cost most, Meet meet) {
    const Cost distance = radius();
    const Place zone = next();
    queue_.pop();
    Label& label = labels_[zone];
    if (label.done == round_ || distance != label.distance) return;
    label.done = round_;
    settled_.push_back(zone);
    read_ += zones_.each_way_into(zone, [&](Place from, Cost further, const Step& step) {
        if (reach(from, distance + further, most, step)) meet(from, distance + further);
    });
}

}  // namespace headgate::flow::laminar
