// Capacities, who fills them, and the prices that follow.
//
// A place is *hot* when all its capacity is taken; only then can it have a price of its own. What
// is cold belongs to the *zone* of the nearest hot place above it, or of its root: units are
// interchangeable there, so a zone is one vertex of the search, with one price.
//
// Capacity that is taken by nobody, while prices say that somebody would want it, is held by
// *holes* (deficits of flow): what a unit leaves behind when it goes. With holes counted as units,
// prices stay valid whatever ends; a search for a new unit's place ends at a hole.
//
// Invariants, when no search is under way (`check` proves them):
//   - price(place) >= price(zone above) >= price(sink); a root with capacity left has the sink's;
//   - every placed unit t: cost + price is least at its own option, over all its options;
//   - a unit's key, if it has one, is at most the length of its cheapest move out of its zone; in a
//     wide zone each has one. A leaf's key, if it has one, is at most that of any unit there.
#pragma once

#include <algorithm>
#include <vector>

#include "forest.hpp"
#include "heap.hpp"
#include "units.hpp"

namespace headgate::flow::laminar {

struct Vertex {
    Cost price = 0;           // of the zone, where this is one
    Cost distance = 0;        // of the search under way
    Cost key = kNoKey;        // of a leaf, from its units'
    std::uint32_t seen = 0;   // the search that set `distance`
    Place zone = kNowhere;    // which zone the place belongs to
};

// One step of a way towards room: a unit moves to an option, or (kNowhere) a zone within takes
// over.
struct Step {
    Unit unit = kNowhere;
    Place place = kNowhere;  // of the option; or the zone within
    Cost cost = 0;           // of the option
};

class Zones {
public:
    Zones(const Forest& forest, Units& units);

    const Forest& forest;
    Units& units;
    std::vector<Vertex> vertex;  // places, and the sink

    Place zone_of(Place v) const { return vertex[v].zone; }
    Place zone_of_unit(Unit t) const { return vertex[units[t].at].zone; }
    Cost price(Place v) const { return vertex[vertex[v].zone].price; }
    Cost sink_price() const { return vertex[forest.sink()].price; }
    Count capacity(Place v) const { return capacity_[v]; }
    Count count(Place v) const { return count_[v]; }
    Count holes(Place v) const { return holes_[v]; }
    Count holes() const { return all_holes_; }
    Cost cost() const { return cost_; }  // of the options taken, of units that have a place
    std::int64_t unplaced() const {
        return static_cast<std::int64_t>(units.members(forest.sink()).size());
    }

    // What a unit pays that fits nowhere, at the sink itself: more than its place could cost all
    // others together.
    Cost outside = 1;
    // Less than that, price included: keys stay below the truth though the sink's price may fall.
    Cost least_outside() const { return outside / 2 + sink_price(); }
    const std::vector<Place>& places_with_holes() const { return with_holes_; }
    bool is_closed(Place v) const { return vertex[v].price == kClosed; }
    bool is_over(Place v) const { return count_[v] > capacity_[v]; }
    // Whether a unit that comes to this zone can simply stay.
    bool has_room(Place zone) const {
        return holes_[zone] > 0 || (forest.is_root(zone) && count_[zone] < capacity_[zone]);
    }
    // What a unit would pay at least, price included: at its best option, or nowhere.
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

    // Where units go. Callers `settle` afterwards the places they touched.
    void put(Unit t, Place v, Cost cost);
    void take(Unit t);
    // What a placed unit pays where it is. Its key is the caller's to see to.
    void pay(Unit t, Cost cost) {
        cost_ += cost - units[t].paid;
        units[t].paid = cost;
    }
    void add_holes(Place v, Count holes);
    void drop_holes(Place v, Count holes);
    void drop_holes_at_sink_price();

    // Makes zones of places that are full now, and dissolves those of places that no longer are.
    void settle(const std::vector<Place>& touched);
    // Keys for units that moved, after `settle`.
    void index(Unit t);

    void change_capacity(Place leaf, Count by);
    // Gives places without capacity, down to this one, the least price that nobody would pay.
    void open(Place leaf);
    Cost least_price(Place v);

    // All from the counts and prices at hand.
    void rebuild();
    void renumber(const std::vector<Place>& now);

    // Units that were put or taken since this was last emptied, each once.
    std::vector<Unit> moved;
    std::vector<std::uint8_t> has_moved;

    // The unit of a zone whose cheapest move out of it is the shortest, or nearly.
    Unit readiest(Place zone);

    // Whether the sink's price has fallen so far that keys may be wrong (see `cheapest_move`).
    bool keys_are_old() const { return sink_price() < sink_price_of_keys_ - outside / 4; }

    // The cheapest cost + price at any option outside the unit's zone, less what it pays now.
    Cost cheapest_move(Unit t) const;
    // Lowers a key; returns whether a heap has grown by that.
    bool offer_key(Unit t, Cost key) {
        return units[t].key != kNoKey && key < units[t].key && set_key(t, key);
    }
    // Of a unit in a narrow zone, until it is read.
    void forget_key(Unit t) { units[t].key = vertex[units[t].at].key = kNoKey; }
    bool set_key(Unit t, Cost key) {
        units[t].key = key;
        Cost& least = vertex[units[t].at].key;
        least = std::min(least, key);
        const Place zone = zone_of_unit(t);
        if (zone == forest.sink() || !forest.is_wide(zone)) return false;
        keys_[zone].push(key, t);
        return true;
    }
    void set_zone_key(Place zone) {
        const Place around = above(zone);
        if (around == forest.sink() || !forest.is_wide(around)) return;
        zone_key_[zone] = vertex[zone].price;
        zones_[around].push(vertex[zone].price, zone);
    }
    // The zone's price has fallen: moves into it have become shorter.
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

    // Calls `see(x)` for every cold place of a zone (the zone's own place first), and `skip(x)` for
    // the topmost zones within it.
    template <class See, class Skip>
    void read_zone(Place zone, See see, Skip skip) const {
        read_below(zone, zone, see, skip);
    }
    template <class See>
    void read_zone(Place zone, See see) const {
        read_below(zone, zone, see, [](Place) {});
    }

    // The same for that part of a zone which lies at and below one of its places.
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

    // Calls `see(from, length, step)` for each way that leads from elsewhere to this zone. Returns
    // about how many options it has read.
    template <class See>
    std::int64_t each_way_into(Place zone, See see);

    // By key, the first unit of a wide zone, and the first zone within it; null for none. Whoever
    // is found there is there; entries that are out of date are dropped.
    const Entry* first_unit(Place wide_zone);
    const Entry* first_zone(Place wide_zone);
    Heap& keys(Place wide_zone) { return keys_[wide_zone]; }
    Heap& zones(Place wide_zone) { return zones_[wide_zone]; }
    Cost& zone_key(Place zone) { return zone_key_[zone]; }

    // Throws std::logic_error naming the first invariant that does not hold; O(options).
    void check();

private:
    void settle_one(Place v);
    void become_hot(Place v);
    void become_cold(Place v);
    void offer_moves_into(Place zone);
    void note(Unit t);
    void bump(Place v, Count by) {
        if (v == forest.sink()) return;
        for (; v != kNowhere; v = forest.parent(v)) count_[v] += by;
    }

    std::vector<Count> capacity_, count_, holes_;
    std::vector<std::uint8_t> hot_;
    std::vector<Place> with_holes_;
    std::vector<std::int32_t> hole_slot_;
    Count all_holes_ = 0;
    Cost cost_ = 0;
    Cost sink_price_of_keys_ = 0;
    std::vector<Heap> keys_;   // of a wide zone: its units by the length of their cheapest move
    std::vector<Heap> zones_;  // of a wide zone: the zones within it by price
    std::vector<Cost> zone_key_;
};

template <class See>
std::int64_t Zones::each_way_into(Place zone, See see) {
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
