#include "free_moves.hpp"

#include <algorithm>

namespace headgate::flow::laminar {

// Ways may become so much longer than the longest of the shortest ways at the start. Where there is
// no way left, labels grow up to there, each time reading all moves.
constexpr std::int32_t kDetour = 2;

void FreeMoves::place(std::vector<Unit>& units) {
    // New prices may have opened ways from where there was none.
    for (Place v = 0; v < zones_.forest.size(); ++v) {
        if (label_[v] == kNever) label_[v] = zones_.has_room(v) ? 0 : 1;
    }
    floor_ = zones_.floor_price();
    wide_.resize(zones_.forest.size() + 1);
    std::erase_if(units, [&](Unit t) { return place_one(t); });
    restore_keys();
}

// Breadth first, against the direction of moves. Places that are no zones now may become some: they
// start from the lowest label.
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
        read_ += zones_.each_way_into(order_[i], [&](Place from, Cost length, const Step&) {
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
        way_.assign(1, start);
        if (find_way(start.zone)) return true;
    }
}

// Goes on from a zone to lower labels. Where none is left the label grows, and the way goes back.
bool FreeMoves::find_way(Place zone) {
    Move move;
    while (!zones_.has_room(zone)) {
        if (next_move(zone, move)) {
            way_.push_back(move);
            zone = move.zone;
            continue;
        }
        way_.pop_back();
        if (way_.empty()) return false;
        zone = way_.back().zone;
    }
    apply(zone);
    return true;
}

// Finds a free move from a zone to one of a lower label, or gives the zone a higher label.
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
    if (unit.key > zones_.vertex[zone].price) return false;
    const auto options = zones_.units.options(t);
    for (std::int32_t i = 0; i < unit.size; ++i) {
        const Option& option = options[i];
        if (i >= unit.wide && option.cost() + floor_ > pays) break;  // as do those that follow
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

// Goes on where it stopped; but for a new label all units count, those passed over among them.
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

// Takes from the heaps of a wide zone what is free; `restore_keys` gives it back.
void FreeMoves::find_wide(Place zone, Wide& wide) {
    wide.known = true;
    wide_known_.push_back(zone);
    const Cost price = zones_.vertex[zone].price;
    Heap& keys = zones_.keys(zone);
    for (auto* first = zones_.first_unit(zone); first && first->key <= price;
         first = zones_.first_unit(zone)) {
        const Unit t = first->what;
        keys.pop();
        const Cost exact = zones_.cheapest_move(t);
        read_ += zones_.units[t].size;
        if (exact > price) {
            zones_.set_key(t, exact);
        } else {
            zones_.forget_key(t);
            wide.units.push_back(t);
        }
    }
    Heap& zones = zones_.zones(zone);
    for (auto* first = zones_.first_zone(zone); first && first->key <= price;
         first = zones_.first_zone(zone)) {
        const Place x = first->what;
        zones.pop();
        if (zones_.vertex[x].price > price) {
            zones_.set_zone_key(x);
        } else {
            zones_.zone_key(x) = kNoKey;
            wide.within.push_back(x);
        }
    }
}

void FreeMoves::restore_keys() {
    for (const Place zone : wide_known_) {
        Wide& wide = wide_[zone];
        for (const Unit t : wide.units) {
            if (zones_.units[t].key == kNoKey && zones_.units[t].at != kNowhere) zones_.index(t);
        }
        for (const Place x : wide.within) {
            if (zones_.zone_key(x) == kNoKey && zones_.zone_of(x) == x) zones_.set_zone_key(x);
        }
        wide = Wide{};
    }
    wide_known_.clear();
}

void FreeMoves::apply(Place end) {
    moves_.fill(end);
    for (auto move = way_.rbegin(); move != way_.rend(); ++move) {
        if (move->unit != kNowhere) moves_.move(move->unit, move->place, move->cost);
    }
    moves_.finish([&](Unit t) {
        Wide& wide = wide_[zones_.zone_of_unit(t)];
        if (wide.known) wide.units.push_back(t);
    });
}

}  // namespace headgate::flow::laminar
