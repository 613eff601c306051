// Capacities, the units that use them, and dual prices.
//
// A place is *saturated* when all its capacity is used; only then can it have a price of its own.
// Any other place belongs to the *zone* of the nearest saturated place above it, or of its root:
// units are interchangeable there, so a zone is one vertex of the search, with one dual price.
//
// Free capacity at a positive price violates complementary slackness, so it is recorded as a
// *deficit*: what a removed unit leaves behind. With deficits counted as units, prices stay dual
// feasible after any removal; the augmenting path of a new unit ends at a deficit.
//
// Invariants between searches (`check` verifies them):
//   - price(place) >= price(zone above) >= price(sink); a root with capacity left has the sink's;
//   - every placed unit t: cost + price is least at its own option, over all its options;
//   - a unit's `move_cost`, if known, is a lower bound on cost + price at any option outside its
//     zone, less its own cost; in a wide zone it is known. A leaf's, if known, is at most that of
//     any unit there.
#pragma once

#include <algorithm>
#include <vector>

#include "forest.hpp"
#include "heap.hpp"
#include "units.hpp"

namespace headgate::flow::laminar {

struct Vertex {
    Cost price = 0;           // of the zone, where this is one
    Cost distance = 0;        // of the current search
    Cost move_cost = kUnknown;        // of a leaf: the least of its units'
    std::uint32_t seen = 0;   // the search that set `distance`
    Place zone = kNowhere;    // which zone the place belongs to
};

// One arc of an augmenting path: a unit moves to an option, or (kNowhere) into a zone within.
struct Step {
    Unit unit = kNowhere;
    Place place = kNowhere;  // of the option; or the zone within
    Cost cost = 0;           // of the option
};

class ZonesData {
public:
    std::vector<Vertex> vertex;  // places, and the sink
    // The penalty of a unit without a place (it is at the sink): more than any augmenting path
    // costs.
    Cost outside = 1;
    // Units put or taken since this was last cleared, each once.
    std::vector<Unit> moved;
    std::vector<std::uint8_t> has_moved;

protected:
    std::vector<Count> capacity_, count_, deficits_;
    std::vector<std::uint8_t> saturated_;
    std::vector<Place> with_deficit_;
    std::vector<std::int32_t> deficit_slot_;
    Count total_deficit_ = 0;
    Cost cost_ = 0;
    Cost sink_price_at_rebuild_ = 0;
    std::vector<Heap> unit_heaps_;  // of a wide zone: its units by `move_cost`
    std::vector<Heap> zone_heaps_;  // of a wide zone: the zones within it by price
    std::vector<Cost> queued_price_;
};

class Zones : public ZonesData {
public:
    Zones(const Forest& forest, Units& units);
    Zones(const Zones& other, const Forest& forest, Units& units);

    const Forest& forest;
    Units& units;

    Place zone_of(Place v) const { return vertex[v].zone; }
    Place zone_of_unit(Unit t) const { return vertex[units[t].at].zone; }
    Cost price(Place v) const { return vertex[vertex[v].zone].price; }
    Cost sink_price() const { return vertex[forest.sink()].price; }
    Count capacity(Place v) const { return capacity_[v]; }
    Count count(Place v) const { return count_[v]; }
    Count deficits(Place v) const { return deficits_[v]; }
    Count deficits() const { return total_deficit_; }
    Cost cost() const { return cost_; }  // of the options taken, of units that have a place
    std::int64_t unplaced() const {
        return static_cast<std::int64_t>(units.members(forest.sink()).size());
    }

    // Less than that, price included: a lower bound, though the sink's price may fall.
    Cost least_outside() const { return outside / 2 + sink_price(); }
    const std::vector<Place>& places_with_deficit() const { return with_deficit_; }
    bool is_closed(Place v) const { return vertex[v].price == kClosed; }
    bool is_over(Place v) const { return count_[v] > capacity_[v]; }
    // Whether an augmenting path may end at this zone.
    bool has_room(Place zone) const {
        return deficits_[zone] > 0 || (forest.is_root(zone) && count_[zone] < capacity_[zone]);
    }
    // The least cost + price over a unit's options and the sink.
    Cost least_cost(Unit t) const {
        Cost least = outside + sink_price();
        for (const Option& option : units.options(t)) {
            least = std::min(least, option.cost() + price(option.what));
        }
        return least;
    }
    // No place below a root has a lower price.
    Cost floor_price() const {
        Cost floor = kFar;
        for (const Place tree : forest.trees()) floor = std::min(floor, vertex[tree].price);
        return floor;
    }
    bool has_root_with_room() const {
        const auto& roots = forest.roots();
        return std::any_of(roots.begin(), roots.end(),
                           [&](Place root) { return count_[root] < capacity_[root]; });
    }
    Place above(Place zone) const {
        return forest.is_root(zone) ? forest.sink() : vertex[forest.parent(zone)].zone;
    }

    // Move units. The caller calls `update_zones` afterwards for the places touched.
    void put(Unit t, Place v, Cost cost);
    void take(Unit t);
    // Sets the cost of a placed unit's option. The caller updates its `move_cost`.
    void set_paid(Unit t, Cost cost) {
        cost_ += cost - units[t].paid;
        units[t].paid = cost;
    }
    void add_deficit(Place v, Count deficits);
    void drop_deficit(Place v, Count deficits);
    void drop_deficits_at_sink_price();

    // Creates zones for places that are saturated now and removes those of places that are not.
    void update_zones(const std::vector<Place>& touched);
    // Updates the `move_cost` of a unit that moved; after `update_zones`.
    void index(Unit t);

    void change_capacity(Place leaf, Count by);
    // Gives places without capacity, down to this one, the least price at which no unit wants them.
    void open(Place leaf);
    Cost least_price(Place v);

    // Rebuilds zones and heaps from counts and prices.
    void rebuild();
    void renumber(const std::vector<Place>& now);

    // The unit of a zone with the cheapest move out of it, or nearly so.
    Unit cheapest_to_move(Place zone);

    // Whether the sink's price has fallen so far that bounds may be invalid (see `cheapest_move`).
    bool move_costs_are_stale() const {
        return sink_price() < sink_price_at_rebuild_ - outside / 4;
    }

    // The least cost + price at any option outside the unit's zone, less its current cost.
    Cost cheapest_move(Unit t) const;
    // Lowers a bound; returns whether that pushed an entry onto a heap.
    bool lower_move_cost(Unit t, Cost cost) {
        const Cost known = units[t].move_cost;
        return known != kUnknown && cost < known && set_move_cost(t, cost);
    }
    // For a unit in a narrow zone, until it is read.
    void forget_move_cost(Unit t) { units[t].move_cost = vertex[units[t].at].move_cost = kUnknown; }
    bool set_move_cost(Unit t, Cost cost) {
        units[t].move_cost = cost;
        Cost& least = vertex[units[t].at].move_cost;
        least = std::min(least, cost);
        const Place zone = zone_of_unit(t);
        if (zone == forest.sink() || !forest.is_wide(zone)) return false;
        unit_heaps_[zone].push(cost, t);
        return true;
    }
    void queue_zone(Place zone) {
        const Place around = above(zone);
        if (around == forest.sink() || !forest.is_wide(around)) return;
        queued_price_[zone] = vertex[zone].price;
        zone_heaps_[around].push(vertex[zone].price, zone);
    }
    // Updates bounds after the zone's price has fallen: moves into it have become cheaper.
    void price_fell(Place zone);

    // Calls `see(unit, place, cost)` for every placed unit's options at places where units are not
    // listed; O(units).
    template <class See>
    void each_unlisted(See see) const {
        for (Unit t = 0; t < units.size(); ++t) {
            if (!units[t].alive || units[t].at == kNowhere) continue;
            const Option* option = units.option_data() + units[t].first;
            for (std::int32_t i = 0; i < units[t].wide; ++i) {
                if (!forest.is_listed(option[i].what)) see(t, option[i].what, option[i].cost());
            }
        }
    }

    // Calls `see(x)` for every place that belongs to a zone (its own place first), and `skip(x)`
    // for the topmost zones within it.
    template <class See, class Skip>
    void read_zone(Place zone, See see, Skip skip) const {
        read_below(zone, zone, see, skip);
    }
    template <class See>
    void read_zone(Place zone, See see) const {
        read_below(zone, zone, see, [](Place) {});
    }

    // The same for the part of a zone at and below one of its places.
    template <class See, class Skip>
    void read_below(Place v, Place zone, See see, Skip skip) const {
        for (Place x = v, end = forest.end(v); x < end;) {
            if (vertex[x].zone == zone) {
                see(x);
                ++x;
            } else {
                skip(x);
                x = forest.end(x);
            }
        }
    }

    // Calls `see(from, length, step)` for each arc from another zone to this one. Returns the
    // approximate number of options read.
    template <class See>
    std::int64_t each_arc_into(Place zone, See see);

    // The top of a wide zone's heap of units, and of its heap of inner zones; null for none. Stale
    // entries are dropped, so the one returned is current.
    const Entry* first_unit(Place wide_zone);
    const Entry* first_zone(Place wide_zone);
    Heap& unit_heap(Place wide_zone) { return unit_heaps_[wide_zone]; }
    Heap& zone_heap(Place wide_zone) { return zone_heaps_[wide_zone]; }
    Cost& queued_price(Place zone) { return queued_price_[zone]; }

    // Throws std::logic_error naming the first invariant that does not hold; O(options).
    void check();

private:
    void update_zone(Place v);
    void saturate(Place v);
    void unsaturate(Place v);
    void offer_moves_into(Place zone);
    void note(Unit t);
    void bump(Place v, Count by) {
        if (v == forest.sink()) return;
        for (; v != kNowhere; v = forest.parent(v)) count_[v] += by;
    }
};

template <class See>
std::int64_t Zones::each_arc_into(Place zone, See see) {
    if (zone == forest.sink()) {  // roots with room send units there
        for (const Place root : forest.roots()) {
            if (has_room(root)) see(root, 0, Step{});
        }
        return 0;
    }
    std::int64_t read = 0;
    const Cost base = vertex[zone].price;
    if (!forest.is_listed(zone)) {
        read += units.alive() / 4;
        each_unlisted([&](Unit t, Place x, Cost cost) {
            const Place from = zone_of_unit(t);
            if (vertex[x].zone == zone && from != zone) {
                see(from, base + cost - units[t].paid - vertex[from].price, {t, x, cost});
            }
        });
    }
    read_zone(zone, [&](Place x) {
        read += units.each_listed(x, [&](Unit t, Cost cost) {
            const auto& unit = units[t];
            if (unit.at == kNowhere) return;
            const Place from = vertex[unit.at].zone;
            if (from != zone) see(from, base + cost - unit.paid - vertex[from].price, {t, x, cost});
        });
    });
    const Place around = above(zone);
    see(around, base - vertex[around].price, Step{kNowhere, zone, 0});
    return read;
}

}  // namespace headgate::flow::laminar
