// The backward half of the bidirectional search: distances of zones to the nearest deficit.
//
// Dijkstra's algorithm against the direction of moves, from some deficits. The units that could
// move to a zone are those listed there as having an option; wide zones have no such list, so all
// units are read, which pays off only when a search has become long.
#pragma once

#include <vector>

#include "heap.hpp"
#include "zones.hpp"

namespace headgate::flow::laminar {

class BackwardData {
public:
    struct Label {
        Cost distance = 0;
        std::uint32_t seen = 0, done = 0;
        Step step;
    };

protected:
    std::vector<Label> labels_;
    std::vector<Place> settled_;
    Heap queue_;  // key: distance; what: rank
    std::uint32_t round_ = 0;
    std::int64_t read_ = 0;
};

class Backward : public BackwardData {
public:
    explicit Backward(Zones& zones) : zones_(zones) { resize(); }
    Backward(const Backward& other, Zones& zones) : BackwardData(other), zones_(zones) {}

    void resize() { labels_.assign(zones_.forest.size() + 1, {}); }
    void begin();
    void add_source(Place zone) { reach(zone, 0, kFar, Step{}); }

    bool idle() const { return queue_.empty(); }
    // No zone that is not settled is nearer to a deficit than this.
    Cost radius() const { return queue_.empty() ? kFar : queue_.top().key; }
    // The zone that `step` would settle next.
    Place next() const { return zones_.forest.of_rank(queue_.top().what); }

    // Approximate number of options that settling a zone reads, at least.
    std::int64_t work(Place zone) const {
        return zones_.forest.is_listed(zone) ? zones_.units.listed_at(zone)
                                             : zones_.units.alive() / 4;
    }

    // Settles the next zone and calls `meet(zone, distance)` for each zone that it labels; none
    // further away than `most` is labelled.
    template <class Meet>
    void step(Cost most, Meet meet);

    bool knows(Place zone) const { return labels_[zone].seen == round_; }
    const Label& label(Place zone) const { return labels_[zone]; }

    // Lowers the price of each settled zone by `radius` minus its distance.
    void lower_prices(Cost radius);

    // Finds the cheapest path from the sink to one deficit and lowers prices so that its reduced
    // cost is 0. Returns the root where it starts, or the sink; kNowhere, changing nothing, where
    // it may lead through a wide zone, or after `most_read` options.
    Place find_sink(Place deficit, std::int64_t most_read);

    std::int64_t options_read() const { return read_; }

private:
    bool reach(Place zone, Cost distance, Cost most, const Step& step);

    Zones& zones_;
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
    read_ += zones_.each_arc_into(zone, [&](Place from, Cost further, const Step& step) {
        if (reach(from, distance + further, most, step)) meet(from, distance + further);
    });
}

}  // namespace headgate::flow::laminar
