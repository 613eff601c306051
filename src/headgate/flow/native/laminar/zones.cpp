#include "zones.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <string>

namespace headgate::flow::laminar {

Zones::Zones(const Forest& forest_, Units& units_)
    : forest(forest_),
      units(units_),
      vertex(forest_.size() + 1),
      capacity_(forest_.size() + 1),
      count_(forest_.size() + 1),
      holes_(forest_.size() + 1),
      hot_(forest_.size() + 1),
      hole_slot_(forest_.size() + 1),
      keys_(forest_.size()),
      zones_(forest_.size()),
      zone_key_(forest_.size(), kNoKey) {
    rebuild();
}

void Zones::put(Unit t, Place v, Cost cost) {
    units.put(t, v, cost);
    bump(v, 1);
    vertex[v].key = kNoKey;
    if (v != forest.sink()) cost_ += cost;
    note(t);
}

void Zones::take(Unit t) {
    const auto& unit = units[t];
    if (unit.at != forest.sink()) cost_ -= unit.paid;
    bump(unit.at, -1);
    units.take(t);
    units[t].key = kNoKey;
    note(t);
}

void Zones::note(Unit t) {
    if (has_moved.size() <= static_cast<std::size_t>(t)) has_moved.resize(units.size());
    if (has_moved[t]) return;
    has_moved[t] = true;
    moved.push_back(t);
}

void Zones::add_holes(Place v, Count holes) {
    if (holes_[v] == 0) {
        hole_slot_[v] = static_cast<std::int32_t>(with_holes_.size());
        with_holes_.push_back(v);
    }
    holes_[v] += holes;
    all_holes_ += holes;
    bump(v, holes);
}

void Zones::drop_holes(Place v, Count holes) {
    assert(holes_[v] >= holes && holes > 0);
    holes_[v] -= holes;
    all_holes_ -= holes;
    bump(v, -holes);
    if (holes_[v] > 0) return;
    const Place last = with_holes_.back();
    with_holes_[hole_slot_[v]] = last;
    hole_slot_[last] = hole_slot_[v];
    with_holes_.pop_back();
}

void Zones::drop_holes_at_sink_price() {
    std::vector<Place> touched;
    for (const Place v : with_holes_) {
        if (vertex[v].price == sink_price()) touched.push_back(v);
    }
    for (const Place v : touched) drop_holes(v, holes_[v]);
    settle(touched);
}

void Zones::settle(const std::vector<Place>& touched) {
    for (const Place first : touched) {
        for (Place v = first; v != kNowhere; v = forest.parent(v)) settle_one(v);
    }
}

void Zones::settle_one(Place v) {
    const bool hot = count_[v] >= capacity_[v];
    if (hot != static_cast<bool>(hot_[v])) {
        hot_[v] = hot;
        if (forest.is_root(v)) {
            assert(hot || vertex[v].price == sink_price());
        } else if (hot) {
            become_hot(v);
        } else {
            become_cold(v);
        }
    }
    if (hot && capacity_[v] == 0 && count_[v] == 0 && forest.is_listed(v)) {
        vertex[v].price = kClosed;
    }
}

void Zones::become_hot(Place v) {
    const Place from = vertex[v].zone;
    vertex[v].price = vertex[from].price;
    read_below(v, from, [&](Place x) { vertex[x].zone = v; }, [](Place) {});
    auto index_all = [&](Place x) {
        for (const Unit t : units.members(x)) index(t);
    };
    read_zone(v, index_all, [&](Place x) { set_zone_key(x); });
    // What was a move within a zone is now one out of it.
    if (forest.is_wide(from)) {
        offer_moves_into(v);
        set_zone_key(v);
    } else {
        read_zone(from, index_all);
    }
}

void Zones::become_cold(Place v) {
    const Place into = vertex[forest.parent(v)].zone;
    assert(vertex[v].price == vertex[into].price);
    read_zone(
        v, [&](Place x) { vertex[x].zone = into; }, [&](Place x) { set_zone_key(x); });
    if (const Count holes = holes_[v]; holes > 0) {
        drop_holes(v, holes);
        add_holes(into, holes);
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
        set_key(t, cheapest_move(t));
    } else {
        forget_key(t);
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
    for (Heap& keys = keys_[wide_zone]; !keys.empty(); keys.pop()) {
        const auto& [key, t] = keys.top();
        const bool is_there = units[t].at != kNowhere && zone_of_unit(t) == wide_zone;
        if (key == units[t].key && is_there) return &keys.top();
    }
    return nullptr;
}

const Entry* Zones::first_zone(Place wide_zone) {
    for (Heap& zones = zones_[wide_zone]; !zones.empty(); zones.pop()) {
        const auto& [key, zone] = zones.top();
        const bool is_there = zone_of(zone) == zone && above(zone) == wide_zone && count_[zone] > 0;
        if (key == zone_key_[zone] && is_there) return &zones.top();
    }
    return nullptr;
}

Unit Zones::readiest(Place zone) {
    if (const Entry* first = first_unit(zone)) return first->what;
    Unit readiest = kNowhere;
    Cost shortest = std::numeric_limits<Cost>::max();
    read_zone(zone, [&](Place x) {
        for (const Unit t : units.members(x)) {
            if (const Cost length = cheapest_move(t); length < shortest) {
                shortest = length;
                readiest = t;
            }
        }
    });
    assert(readiest != kNowhere);
    return readiest;
}

void Zones::price_fell(Place zone) {
    set_zone_key(zone);
    offer_moves_into(zone);
}

// Keys of units elsewhere may have to follow moves into this zone.
void Zones::offer_moves_into(Place zone) {
    const Cost price = vertex[zone].price;
    auto offer = [&](Unit t, Cost cost) {
        const auto& unit = units[t];
        if (unit.at != kNowhere && vertex[unit.at].zone != zone) {
            offer_key(t, cost + price - unit.paid);
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
    while (!empty.empty()) {  // from above: a place is worth no less than what is around it
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
    sink_price_of_keys_ = sink_price();
    for (Place v = 0; v < forest.size(); ++v) {
        hot_[v] = count_[v] >= capacity_[v];
        const bool closed = capacity_[v] == 0 && count_[v] == 0 && forest.is_listed(v);
        vertex[v].zone =
            hot_[v] || forest.is_root(v) ? v : vertex[forest.parent(v)].zone;
        if (closed) vertex[v].price = kClosed;
        keys_[v].clear();
        zones_[v].clear();
        vertex[v].key = zone_key_[v] = kNoKey;
    }
    vertex[forest.sink()].zone = forest.sink();
    std::vector<std::vector<Entry>> keys(forest.size());
    for (Unit t = 0; t < units.size(); ++t) {
        if (!units[t].alive || units[t].at == kNowhere) continue;
        const Place zone = vertex[units[t].at].zone;
        units[t].key = kNoKey;
        if (zone == forest.sink() || !forest.is_wide(zone)) continue;
        units[t].key = cheapest_move(t);
        keys[zone].push_back({units[t].key, t});
    }
    for (Place v = 0; v < forest.size(); ++v) {
        if (!keys[v].empty()) keys_[v].assign(std::move(keys[v]));
        if (vertex[v].zone == v) set_zone_key(v);
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
    carry(holes_);
    carry(hot_);
    carry(hole_slot_);
    for (Place& v : with_holes_) v = now[v];
    keys_.assign(places, {});
    zones_.assign(places, {});
    zone_key_.assign(places, kNoKey);
    for (auto& v : vertex) v.seen = 0;
    rebuild();
    // Where units are listed no longer, there is no way to tell a price later: it is told now.
    bool told = false;
    for (Place v = 0; v < forest.size(); ++v) {
        if (!is_closed(v) || forest.is_listed(v)) continue;
        Cost least = vertex[above(v)].price;
        each_unlisted([&](Unit t, Place x, Cost cost) {
            if (x == v) least = std::max(least, units[t].paid + price(units[t].at) - cost);
        });
        vertex[v].price = least;
        told = true;
    }
    if (told) rebuild();
}

void Zones::check() {
    auto must = [](bool holds, const char* what, std::int64_t where) {
        if (!holds) throw std::logic_error(what + (" at " + std::to_string(where)));
    };
    const Cost sink = sink_price();
    for (Place v = 0; v < forest.size(); ++v) {
        Count count = holes_[v] + static_cast<Count>(units.members(v).size());
        for (Place x = v + 1; x < forest.end(v); x = forest.end(x)) count += count_[x];
        must(count == count_[v], "count", v);
        must(hot_[v] == (count_[v] >= capacity_[v]), "hot", v);
        must((vertex[v].zone == v) == (hot_[v] || forest.is_root(v)), "zone", v);
        if (is_closed(v)) continue;
        must(forest.is_root(v) || price(v) >= price(forest.parent(v)), "price", v);
        must(price(v) >= sink || capacity_[v] == 0, "price below the sink's", v);
        must(!forest.is_root(v) || count_[v] >= capacity_[v] || price(v) == sink, "room", v);
        if (vertex[v].zone == v && !forest.is_root(v) && forest.is_wide(above(v)) && count_[v]) {
            must(zone_key_[v] != kNoKey && zone_key_[v] <= vertex[v].price, "zone key", v);
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
        must(units[t].key <= move, "key", t);  // kNoKey is least of all
        if (zone == forest.sink()) continue;
        must(!forest.is_leaf(zone) || vertex[zone].key <= move, "key of a leaf", t);
        must(!forest.is_wide(zone) || units[t].key != kNoKey, "no key", t);
    }
}

}  // namespace headgate::flow::laminar
