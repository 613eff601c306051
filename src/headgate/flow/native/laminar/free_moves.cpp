#include "free_moves.hpp"

#include <algorithm>

namespace headgate::flow::laminar {

// Augmenting paths may become longer than the longest of the initial shortest ones by this much.
// Where no path is left, labels grow up to that length, and each growth reads all moves.
constexpr std::int32_t kDetour = 2;

void FreeMoves::place(std::vector<Unit>& units) {
    // New prices may have opened paths from zones that had none.
    for (Place v = 0; v < zones_.forest.size(); ++v) {
        if (label_[v] == kNever) label_[v] = zones_.has_room(v) ? 0 : 1;
    }
    floor_ = zones_.floor_price();
    wide_.resize(zones_.forest.size() + 1);
    std::erase_if(units, [&](Unit t) { return place_one(t); });
    restore_heaps();
}

// Breadth-first search against the direction of moves. Places that are not zones now may become
// zones: they start from the lowest label.
void FreeMoves::label_zones() {
    const auto& forest = zones_.forest;
    label_.assign(forest.size() + 1, 0);
    next_.assign(forest.size() + 1, 0);
    order_.clear();
    for (Place v = 0; v < forest.size(); ++v) {
        if (zones_.zone_of(v) != v) continue;
        if (zones_.has_room(v)) {
            order_.push_back(v);
        } else {
            label_[v] = kNever;
        }
    }
    label_[forest.sink()] = kNever;
    for (std::size_t i = 0; i < order_.size(); ++i) {
        const Label further = label_[order_[i]] + 1;
        read_ += zones_.each_arc_into(order_[i], [&](Place from, Cost length, const Step&) {
            if (length > 0 || label_[from] != kNever || from == forest.sink()) return;
            label_[from] = further;
            order_.push_back(from);
        });
    }
    most_ = (order_.empty() ? 0 : label_[order_.back()]) + kDetour;
}

bool FreeMoves::place_one(Unit t) {
    const auto options = zones_.units.options(t);
    const Cost best = zones_.least_cost(t);
    while (true) {
        Move start{t, kNowhere, 0, kNowhere};
        for (const Option& option : options) {
            const Place zone = zones_.zone_of(option.what);
            if (option.cost() + zones_.vertex[zone].price != best) continue;
            if (start.zone == kNowhere || label_[zone] < label_[start.zone]) {
                start = {t, option.what, option.cost(), zone};
            }
        }
        read_ += static_cast<std::int64_t>(options.size());
        if (start.zone == kNowhere || label_[start.zone] > most_) return false;
        path_.assign(1, start);
        if (find_path(start.zone)) return true;
    }
}

// Advances from a zone to lower labels; where none is left, relabels the zone and retreats.
bool FreeMoves::find_path(Place zone) {
    Move move;
    while (!zones_.has_room(zone)) {
        if (next_move(zone, move)) {
            path_.push_back(move);
            zone = move.zone;
            continue;
        }
        path_.pop_back();
        if (path_.empty()) return false;
        zone = path_.back().zone;
    }
    apply(zone);
    return true;
}

// Finds a free move from a zone to one of a lower label, or relabels the zone.
bool FreeMoves::next_move(Place zone, Move& found) {
    nearest_ = most_;
    const bool is_wide = zones_.forest.is_wide(zone);
    if (is_wide ? next_of_wide(zone, found) : next_of_narrow(zone, found)) return true;
    label_[zone] = nearest_ + 1;
    next_[zone] = 0;
    return false;
}

bool FreeMoves::lower(Place zone, const Move& move, Move& found) {
    nearest_ = std::min(nearest_, label_[move.zone]);
    if (label_[move.zone] >= label_[zone]) return false;
    found = move;
    return true;
}

bool FreeMoves::move_of(Unit t, Place zone, Move& found) {
    const auto& unit = zones_.units[t];
    const Cost pays = unit.paid + zones_.vertex[zone].price;
    if (unit.move_cost > zones_.vertex[zone].price) return false;
    const auto options = zones_.units.options(t);
    for (std::int32_t i = 0; i < unit.size; ++i) {
        const Option& option = options[i];
        if (i >= unit.wide && option.cost() + floor_ > pays) break;  // and so do the following ones
        ++read_;
        const Place to = zones_.zone_of(option.what);
        if (to == zone || option.cost() + zones_.vertex[to].price != pays) continue;
        if (lower(zone, {t, option.what, option.cost(), to}, found)) return true;
    }
    return false;
}

bool FreeMoves::move_within(Place around, Place zone, Move& found) {
    if (zones_.count(zone) == 0 || zones_.price(zone) != zones_.price(around)) return false;
    return lower(around, {kNowhere, zone, 0, zone}, found);
}

bool FreeMoves::next_of_narrow(Place zone, Move& found) {
    const auto& forest = zones_.forest;
    if (forest.is_leaf(zone)) return next_of(zones_.units.members(zone), next_[zone], zone, found);
    for (Place x = zone; x < forest.end(zone);) {
        if (zones_.zone_of(x) != zone) {
            if (move_within(zone, x, found)) return true;
            x = forest.end(x);
            continue;
        }
        for (const Unit t : zones_.units.members(x)) {
            if (move_of(t, zone, found)) return true;
        }
        ++x;
    }
    return false;
}

// Continues where it stopped; after relabelling, all units are read again.
bool FreeMoves::next_of(const std::vector<Unit>& units, std::uint32_t& next, Place zone,
                        Move& found) {
    for (bool all = next == 0;; all = true, next = 0) {
        for (; next < units.size(); ++next) {
            const Unit t = units[next];
            if (next + 4 < units.size()) zones_.units.fetch(units[next + 4]);
            if (zones_.zone_of_unit(t) == zone && move_of(t, zone, found)) return true;
        }
        if (all) return false;
    }
}

bool FreeMoves::next_of_wide(Place zone, Move& found) {
    Wide& wide = wide_[zone];
    if (!wide.known) find_wide(zone, wide);
    for (const Place within : wide.within) {
        if (zones_.zone_of(within) == within && zones_.above(within) == zone &&
            move_within(zone, within, found)) {
            return true;
        }
    }
    return next_of(wide.units, next_[zone], zone, found);
}

// Takes the free moves from the heaps of a wide zone; `restore_heaps` puts them back.
void FreeMoves::find_wide(Place zone, Wide& wide) {
    wide.known = true;
    wide_known_.push_back(zone);
    const Cost price = zones_.vertex[zone].price;
    Heap& heap = zones_.unit_heap(zone);
    for (auto* first = zones_.first_unit(zone); first && first->key <= price;
         first = zones_.first_unit(zone)) {
        const Unit t = first->what;
        heap.pop();
        const Cost exact = zones_.cheapest_move(t);
        read_ += zones_.units[t].size;
        if (exact > price) {
            zones_.set_move_cost(t, exact);
        } else {
            zones_.forget_move_cost(t);
            wide.units.push_back(t);
        }
    }
    Heap& inner = zones_.zone_heap(zone);
    for (auto* first = zones_.first_zone(zone); first && first->key <= price;
         first = zones_.first_zone(zone)) {
        const Place x = first->what;
        inner.pop();
        if (zones_.vertex[x].price > price) {
            zones_.queue_zone(x);
        } else {
            zones_.queued_price(x) = kUnknown;
            wide.within.push_back(x);
        }
    }
}

void FreeMoves::restore_heaps() {
    for (const Place zone : wide_known_) {
        Wide& wide = wide_[zone];
        for (const Unit t : wide.units) {
            const auto& unit = zones_.units[t];
            if (unit.move_cost == kUnknown && unit.at != kNowhere) zones_.index(t);
        }
        for (const Place x : wide.within) {
            if (zones_.queued_price(x) == kUnknown && zones_.zone_of(x) == x) zones_.queue_zone(x);
        }
        wide = Wide{};
    }
    wide_known_.clear();
}

void FreeMoves::apply(Place end) {
    moves_.fill(end);
    for (auto move = path_.rbegin(); move != path_.rend(); ++move) {
        if (move->unit != kNowhere) moves_.move(move->unit, move->place, move->cost);
    }
    moves_.finish([&](Unit t) {
        Wide& wide = wide_[zones_.zone_of_unit(t)];
        if (wide.known) wide.units.push_back(t);
    });
}

}  // namespace headgate::flow::laminar
