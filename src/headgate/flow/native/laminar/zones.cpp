#include "zones.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <string>

namespace headgate::flow::laminar {

Zones::Zones(const Forest& forest_, Units& units_)
    : forest(forest_),
      units(units_) {
    const auto places = static_cast<std::size_t>(forest.size());
    vertex.resize(places + 1);
    for (auto* counts : {&capacity_, &count_, &deficits_}) counts->resize(places + 1);
    saturated_.resize(places + 1);
    deficit_slot_.resize(places + 1);
    unit_heaps_.resize(places);
    zone_heaps_.resize(places);
    queued_price_.resize(places, kUnknown);
    rebuild();
}

Zones::Zones(const Zones& other, const Forest& forest_, Units& units_)
    : ZonesData(other), forest(forest_), units(units_) {}

void Zones::put(Unit t, Place v, Cost cost) {
    units.put(t, v, cost);
    bump(v, 1);
    vertex[v].move_cost = kUnknown;
    if (v != forest.sink()) cost_ += cost;
    note(t);
}

void Zones::take(Unit t) {
    const auto& unit = units[t];
    if (unit.at != forest.sink()) cost_ -= unit.paid;
    bump(unit.at, -1);
    units.take(t);
    units[t].move_cost = kUnknown;
    note(t);
}

void Zones::note(Unit t) {
    if (has_moved.size() <= static_cast<std::size_t>(t)) has_moved.resize(units.size());
    if (has_moved[t]) return;
    has_moved[t] = true;
    moved.push_back(t);
}

void Zones::add_deficit(Place v, Count deficits) {
    if (deficits_[v] == 0) {
        deficit_slot_[v] = static_cast<std::int32_t>(with_deficit_.size());
        with_deficit_.push_back(v);
    }
    deficits_[v] += deficits;
    total_deficit_ += deficits;
    bump(v, deficits);
}

void Zones::drop_deficit(Place v, Count deficits) {
    assert(deficits_[v] >= deficits && deficits > 0);
    deficits_[v] -= deficits;
    total_deficit_ -= deficits;
    bump(v, -deficits);
    if (deficits_[v] > 0) return;
    const Place last = with_deficit_.back();
    with_deficit_[deficit_slot_[v]] = last;
    deficit_slot_[last] = deficit_slot_[v];
    with_deficit_.pop_back();
}

void Zones::drop_deficits_at_sink_price() {
    std::vector<Place> touched;
    for (const Place v : with_deficit_) {
        if (vertex[v].price == sink_price()) touched.push_back(v);
    }
    for (const Place v : touched) drop_deficit(v, deficits_[v]);
    update_zones(touched);
}

void Zones::update_zones(const std::vector<Place>& touched) {
    for (const Place first : touched) {
        for (Place v = first; v != kNowhere; v = forest.parent(v)) update_zone(v);
    }
}

void Zones::update_zone(Place v) {
    const bool saturated = count_[v] >= capacity_[v];
    if (saturated != static_cast<bool>(saturated_[v])) {
        saturated_[v] = saturated;
        if (forest.is_root(v)) {
            assert(saturated || vertex[v].price == sink_price());
        } else if (saturated) {
            saturate(v);
        } else {
            unsaturate(v);
        }
    }
    if (saturated && capacity_[v] == 0 && count_[v] == 0 && forest.is_listed(v)) {
        vertex[v].price = kClosed;
    }
}

void Zones::saturate(Place v) {
    const Place from = vertex[v].zone;
    vertex[v].price = vertex[from].price;
    read_below(v, from, [&](Place x) { vertex[x].zone = v; }, [](Place) {});
    auto index_all = [&](Place x) {
        for (const Unit t : units.members(x)) index(t);
    };
    read_zone(v, index_all, [&](Place x) { queue_zone(x); });
    // Moves within the former zone now lead out of it.
    if (forest.is_wide(from)) {
        offer_moves_into(v);
        queue_zone(v);
    } else {
        read_zone(from, index_all);
    }
}

void Zones::unsaturate(Place v) {
    const Place into = vertex[forest.parent(v)].zone;
    assert(vertex[v].price == vertex[into].price);
    read_zone(
        v, [&](Place x) { vertex[x].zone = into; }, [&](Place x) { queue_zone(x); });
    if (const Count deficits = deficits_[v]; deficits > 0) {
        drop_deficit(v, deficits);
        add_deficit(into, deficits);
    }
    read_below(
        v, into,
        [&](Place x) {
            for (const Unit t : units.members(x)) index(t);
        },
        [](Place) {});
}

void Zones::index(Unit t) {
    const Place zone = vertex[units[t].at].zone;
    if (zone != forest.sink() && forest.is_wide(zone)) {
        set_move_cost(t, cheapest_move(t));
    } else {
        forget_move_cost(t);
    }
}

Cost Zones::cheapest_move(Unit t) const {
    const Place zone = vertex[units[t].at].zone;
    Cost cheapest = least_outside();
    for (const Option& option : units.options(t)) {
        const Place to = vertex[option.what].zone;
        if (to != zone) cheapest = std::min(cheapest, option.cost() + vertex[to].price);
    }
    return cheapest - units[t].paid;
}

const Entry* Zones::first_unit(Place wide_zone) {
    for (Heap& heap = unit_heaps_[wide_zone]; !heap.empty(); heap.pop()) {
        const auto& [key, t] = heap.top();
        const bool is_there = units[t].at != kNowhere && zone_of_unit(t) == wide_zone;
        if (key == units[t].move_cost && is_there) return &heap.top();
    }
    return nullptr;
}

const Entry* Zones::first_zone(Place wide_zone) {
    for (Heap& heap = zone_heaps_[wide_zone]; !heap.empty(); heap.pop()) {
        const auto& [key, zone] = heap.top();
        const bool is_there = zone_of(zone) == zone && above(zone) == wide_zone && count_[zone] > 0;
        if (key == queued_price_[zone] && is_there) return &heap.top();
    }
    return nullptr;
}

Unit Zones::cheapest_to_move(Place zone) {
    if (const Entry* first = first_unit(zone)) return first->what;
    Unit cheapest_to_move = kNowhere;
    Cost shortest = std::numeric_limits<Cost>::max();
    read_zone(zone, [&](Place x) {
        for (const Unit t : units.members(x)) {
            if (const Cost length = cheapest_move(t); length < shortest) {
                shortest = length;
                cheapest_to_move = t;
            }
        }
    });
    assert(cheapest_to_move != kNowhere);
    return cheapest_to_move;
}

void Zones::price_fell(Place zone) {
    queue_zone(zone);
    offer_moves_into(zone);
}

// Lowers the bounds of units elsewhere that have options in this zone.
void Zones::offer_moves_into(Place zone) {
    const Cost price = vertex[zone].price;
    auto offer = [&](Unit t, Cost cost) {
        const auto& unit = units[t];
        if (unit.at != kNowhere && vertex[unit.at].zone != zone) {
            lower_move_cost(t, cost + price - unit.paid);
        }
    };
    if (!forest.is_listed(zone)) {
        each_unlisted([&](Unit t, Place x, Cost cost) {
            if (vertex[x].zone == zone) offer(t, cost);
        });
    }
    read_zone(zone, [&](Place x) { units.each_listed(x, offer); });
}

void Zones::change_capacity(Place leaf, Count by) {
    for (Place v = leaf; v != kNowhere; v = forest.parent(v)) capacity_[v] += by;
}

Cost Zones::least_price(Place v) {
    Cost price = vertex[above(v)].price;
    units.each_listed(v, [&](Unit t, Cost cost) {
        const auto& unit = units[t];
        if (unit.at != kNowhere) {
            price = std::max(price, unit.paid + this->price(unit.at) - cost);
        }
    });
    return price;
}

void Zones::open(Place leaf) {
    std::vector<Place> empty;
    for (Place v = leaf; v != kNowhere && capacity_[v] == 0; v = forest.parent(v)) {
        empty.push_back(v);
    }
    while (!empty.empty()) {  // from above: a place's price is no less than its parent's
        const Place v = empty.back();
        empty.pop_back();
        if (is_closed(v)) {
            vertex[v].price = least_price(v);
            price_fell(v);
        } else {
            vertex[v].price = std::max(vertex[v].price, vertex[above(v)].price);
        }
    }
}

void Zones::rebuild() {
    sink_price_at_rebuild_ = sink_price();
    for (Place v = 0; v < forest.size(); ++v) {
        saturated_[v] = count_[v] >= capacity_[v];
        const bool closed = capacity_[v] == 0 && count_[v] == 0 && forest.is_listed(v);
        vertex[v].zone =
            saturated_[v] || forest.is_root(v) ? v : vertex[forest.parent(v)].zone;
        if (closed) vertex[v].price = kClosed;
        unit_heaps_[v].clear();
        zone_heaps_[v].clear();
        vertex[v].move_cost = queued_price_[v] = kUnknown;
    }
    vertex[forest.sink()].zone = forest.sink();
    std::vector<std::vector<Entry>> entries(forest.size());
    for (Unit t = 0; t < units.size(); ++t) {
        if (!units[t].alive || units[t].at == kNowhere) continue;
        const Place zone = vertex[units[t].at].zone;
        units[t].move_cost = kUnknown;
        if (zone == forest.sink() || !forest.is_wide(zone)) continue;
        units[t].move_cost = cheapest_move(t);
        entries[zone].push_back({units[t].move_cost, t});
    }
    for (Place v = 0; v < forest.size(); ++v) {
        if (!entries[v].empty()) unit_heaps_[v].assign(std::move(entries[v]));
        if (vertex[v].zone == v) queue_zone(v);
    }
}

void Zones::renumber(const std::vector<Place>& now) {
    const auto places = static_cast<std::size_t>(forest.size());
    auto carry = [&](auto& values) {
        std::remove_reference_t<decltype(values)> carried(places + 1);
        for (std::size_t v = 0; v < now.size(); ++v) carried[now[v]] = std::move(values[v]);
        values = std::move(carried);
    };
    carry(vertex);
    carry(capacity_);
    carry(count_);
    carry(deficits_);
    carry(saturated_);
    carry(deficit_slot_);
    for (Place& v : with_deficit_) v = now[v];
    unit_heaps_.assign(places, {});
    zone_heaps_.assign(places, {});
    queued_price_.assign(places, kUnknown);
    for (auto& v : vertex) v.seen = 0;
    rebuild();
    // Where units are no longer listed, the least price cannot be computed later: set it now.
    bool repriced = false;
    for (Place v = 0; v < forest.size(); ++v) {
        if (!is_closed(v) || forest.is_listed(v)) continue;
        Cost least = vertex[above(v)].price;
        each_unlisted([&](Unit t, Place x, Cost cost) {
            if (x == v) least = std::max(least, units[t].paid + price(units[t].at) - cost);
        });
        vertex[v].price = least;
        repriced = true;
    }
    if (repriced) rebuild();
}

void Zones::check() {
    auto must = [](bool holds, const char* what, std::int64_t where) {
        if (!holds) throw std::logic_error(what + (" at " + std::to_string(where)));
    };
    const Cost sink = sink_price();
    for (Place v = 0; v < forest.size(); ++v) {
        Count count = deficits_[v] + static_cast<Count>(units.members(v).size());
        for (Place x = v + 1; x < forest.end(v); x = forest.end(x)) count += count_[x];
        must(count == count_[v], "count", v);
        must(saturated_[v] == (count_[v] >= capacity_[v]), "saturated", v);
        must((vertex[v].zone == v) == (saturated_[v] || forest.is_root(v)), "zone", v);
        if (is_closed(v)) continue;
        must(forest.is_root(v) || price(v) >= price(forest.parent(v)), "price", v);
        must(price(v) >= sink || capacity_[v] == 0, "price below the sink's", v);
        must(!forest.is_root(v) || count_[v] >= capacity_[v] || price(v) == sink, "room", v);
        if (vertex[v].zone == v && !forest.is_root(v) && forest.is_wide(above(v)) && count_[v]) {
            const Cost queued = queued_price_[v];
            must(queued != kUnknown && queued <= vertex[v].price, "queued price", v);
        }
    }
    for (Unit t = 0; t < units.size(); ++t) {
        if (!units[t].alive || units[t].at == kNowhere) continue;
        const Place zone = zone_of_unit(t);
        const Cost pays = units[t].paid + vertex[zone].price;
        must(pays <= outside + sink, "better off nowhere", t);
        Cost move = outside + sink - units[t].paid;
        for (const Option& option : units.options(t)) {
            const Cost cost = option.cost() + price(option.what);
            must(cost >= pays, "a cheaper option", t);
            if (zone_of(option.what) != zone) move = std::min(move, cost - units[t].paid);
        }
        must(units[t].move_cost <= move, "move cost", t);  // kUnknown is the minimum
        if (zone == forest.sink()) continue;
        must(!forest.is_leaf(zone) || vertex[zone].move_cost <= move, "move cost of a leaf", t);
        must(!forest.is_wide(zone) || units[t].move_cost != kUnknown, "no move cost", t);
    }
}

}  // namespace headgate::flow::laminar
