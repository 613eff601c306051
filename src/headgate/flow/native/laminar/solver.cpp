#include "solver.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "errors.hpp"
#include "estimate.hpp"

namespace headgate::flow::laminar {

constexpr std::size_t kSeveral = 16;
// New units are few if there are at least so many times as many in all.
constexpr std::int64_t kFew = 8;

Solver::Solver(Numbers parent, Numbers capacity)
    : forest_({}),
      units_(forest_),
      zones_(forest_, units_),
      search_(zones_),
      free_moves_(zones_),
      leaves_(zones_) {
    add_places(parent, capacity);
}

// ------------------------------------------------------------------------------------ changes

std::vector<std::int64_t> Solver::add(Numbers offsets, Numbers place, Numbers cost) {
    check_options(offsets, place, cost);
    note_costs(cost);
    const auto added = units_.add(offsets, place, cost);
    for (const Unit t : added) postpone(t);
    return {added.begin(), added.end()};
}

void Solver::remove(Numbers ids) {
    check_units(ids);
    check_each_once(ids);
    for (const auto id : ids) {
        const auto t = static_cast<Unit>(id);
        if (units_[t].at != kNowhere) leave(t);
        units_.remove(t);
    }
}

void Solver::replace(Numbers ids, Numbers offsets, Numbers place, Numbers cost) {
    check_units(ids);
    check_each_once(ids);
    check_options(offsets, place, cost);
    if (offsets.size() != ids.size() + 1) {
        throw BadInput("units and offsets have different lengths: " + std::to_string(ids.size()) +
                       " units need " + std::to_string(ids.size() + 1) + " offsets, not " +
                       std::to_string(offsets.size()));
    }
    note_costs(cost);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto t = static_cast<Unit>(ids[i]);
        if (units_[t].at != kNowhere) {
            leave(t);
            postpone(t);
        }
        const auto first = static_cast<std::size_t>(offsets[i]);
        const auto size = static_cast<std::size_t>(offsets[i + 1]) - first;
        units_.replace(t, place.subspan(first, size), cost.subspan(first, size));
    }
}

void Solver::reprice(std::int64_t place, Numbers ids, Numbers cost) {
    check_units(ids);
    check_each_once(ids);
    check_reprice(place, ids, cost);
    note_costs(cost);
    change_costs(forest_.inner(place), ids, cost);
}

void Solver::reprice_all(Numbers place, Numbers cost) {
    check_leaves(place, cost, "cost");
    for (std::size_t i = 0; i < cost.size(); ++i) check_cost(static_cast<std::int64_t>(i), cost[i]);
    note_costs(cost);
    for (std::size_t i = 0; i < place.size(); ++i) {
        const Place v = forest_.inner(place[i]);
        std::vector<std::int64_t> ids;
        units_.each_listed(v, [&](Unit t, Cost) { ids.push_back(t); });
        change_costs(v, ids, std::vector<std::int64_t>(ids.size(), cost[i]));
    }
}

void Solver::change_costs(Place v, Numbers ids, Numbers cost) {
    units_.reprice(v, ids, cost);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto t = static_cast<Unit>(ids[i]);
        if (units_[t].at == v) {
            pay(t, cost[i]);
        } else if (units_[t].at != kNowhere) {
            offer(t, v, cost[i]);
        }
    }
}

// Its own option costs a unit something else now. If that is more, it may be better off elsewhere.
void Solver::pay(Unit t, Cost cost) {
    const Cost more = cost - units_[t].paid;
    zones_.pay(t, cost);
    if (more <= 0) return;
    if (zones_.least_cost(t) < cost + zones_.price(units_[t].at)) {
        leave(t);
        postpone(t);
    } else {
        zones_.index(t);
        ++keys_set_;
    }
}

// Another option costs a unit something else now.
void Solver::offer(Unit t, Place v, Cost cost) {
    const Cost paid = units_[t].paid;
    const Cost length = cost + zones_.price(v) - paid;
    if (length < zones_.price(units_[t].at)) {
        leave(t);
        postpone(t);
    } else if (zones_.zone_of(v) != zones_.zone_of_unit(t)) {
        if (zones_.offer_key(t, length)) ++keys_set_;
    }
}

void Solver::note_costs(Numbers cost) {
    for (const Cost each : cost) largest_cost_ = std::max(largest_cost_, each < 0 ? -each : each);
    widen_outside();
}

void Solver::postpone(Unit t) {
    if (units_[t].pending) return;
    units_[t].pending = true;
    pending_.push_back(t);
}

void Solver::leave(Unit t) {
    const Place place = units_[t].at;
    zones_.take(t);
    if (place == forest_.sink()) return;
    const Place zone = zones_.zone_of(place);
    if (zones_.vertex[zone].price == zones_.sink_price()) {
        zones_.settle({place});
    } else {
        zones_.add_holes(zone, 1);
    }
}

std::vector<std::int64_t> Solver::add_places(Numbers parent, Numbers capacity) {
    check_places(parent, capacity);
    const auto old = parent_.size();
    std::vector<std::int64_t> above = parent_;
    above.insert(above.end(), parent.begin(), parent.end());
    Forest grown(above);
    std::vector<Place> moved(old + 1);
    for (std::size_t v = 0; v < old; ++v) moved[forest_.inner(v)] = grown.inner(v);
    moved[forest_.sink()] = grown.sink();
    parent_ = std::move(above);
    forest_ = std::move(grown);
    units_.renumber(moved);
    zones_.renumber(moved);
    search_.resize();
    leaves_.renumber(moved);
    widen_outside();
    std::vector<std::int64_t> added(parent.size());
    for (std::size_t i = 0; i < added.size(); ++i) added[i] = static_cast<std::int64_t>(old + i);
    for (std::size_t i = 0; i < added.size(); ++i) {
        const Place v = forest_.inner(added[i]);
        if (capacity[i] > 0) raise_capacity(v, std::min(capacity[i], kEndless));
    }
    return added;
}

void Solver::set_capacity(Numbers place, Numbers capacity) {
    check_leaves(place, capacity, "capacity");
    for (std::size_t i = 0; i < place.size(); ++i) {
        if (capacity[i] < 0) {
            throw BadInput("place " + std::to_string(place[i]) + " gets the negative capacity " +
                           std::to_string(capacity[i]));
        }
    }
    for (std::size_t i = 0; i < place.size(); ++i) {
        const Place leaf = forest_.inner(place[i]);
        const Count by = std::min(capacity[i], kEndless) - zones_.capacity(leaf);
        if (by > 0) raise_capacity(leaf, by);
        if (by < 0) cut_capacity(leaf, -by);
    }
}

void Solver::raise_capacity(Place leaf, Count by) {
    zones_.open(leaf);
    const Place zone = zones_.zone_of(leaf);
    zones_.change_capacity(leaf, by);
    if (zones_.vertex[zone].price == zones_.sink_price()) {
        zones_.settle({leaf});
    } else {
        zones_.add_holes(zone, by);
    }
    leaves_.capacity_changed(leaf);
}

// Units beyond what is left lose their places, and are placed anew.
void Solver::cut_capacity(Place leaf, Count by) {
    zones_.change_capacity(leaf, -by);
    zones_.settle({leaf});
    for (Place v = leaf; v != kNowhere; v = forest_.parent(v)) {
        const Count over = zones_.count(v) - zones_.capacity(v);
        if (over > 0 && zones_.holes(v) > 0) {
            zones_.drop_holes(v, std::min(over, zones_.holes(v)));
            zones_.settle({v});
        }
        while (zones_.is_over(v)) {
            const Unit t = zones_.readiest(v);
            const Place place = units_[t].at;
            zones_.take(t);
            zones_.settle({place});
            postpone(t);
        }
    }
    leaves_.capacity_changed(leaf);
}

// A unit may have to move at every place on a way, so no way to a place costs more than this.
void Solver::widen_outside() {
    const Cost enough = (2 * largest_cost_ + 1) * (forest_.size() + 2);
    if (zones_.outside >= enough) return;
    zones_.outside = std::min(2 * enough, kMostOutside);
    const auto unplaced = units_.members(forest_.sink());
    for (const Unit t : unplaced) {
        zones_.take(t);
        postpone(t);
    }
}

// ------------------------------------------------------------------------------------ solving

Outcome Solver::solve(std::optional<double> budget_s) {
    deadline_.reset();
    if (budget_s) {
        deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(*budget_s));
    }
    const auto read_before = options_read();
    undo_hurry();
    std::erase_if(pending_, [&](Unit t) { return !units_[t].alive; });
    units_.compact_if_due();
    zones_.drop_holes_at_sink_price();
    if (2 * static_cast<std::int64_t>(pending_.size()) > units_.alive()) start_over();
    if (zones_.keys_are_old() || keys_set_ > units_.alive()) {
        zones_.rebuild();  // keys of old are gone, too
        keys_set_ = 0;
    }
    search_.begin_round();
    const bool done = place_all() && fill_holes();
    if (!done) place_in_a_hurry();
    leaves_.update();
    Outcome outcome;
    outcome.cost = zones_.cost();
    outcome.unplaced = zones_.unplaced() + static_cast<std::int64_t>(pending_.size()) -
                       static_cast<std::int64_t>(hurried_.size());
    if (!done) outcome.gap = gap();
    outcome.options_read = options_read() - read_before;
    return outcome;
}

// Units are searched for one by one. Whenever that has read about as much as looking for ways for
// all that are left at once, the latter is done, for as long as it takes less for each unit.
bool Solver::place_all() {
    for (const Unit t : pending_) units_[t].pending = false;
    std::erase_if(pending_, [&](Unit t) { return place_if_free(t); });
    std::int64_t patience = first_patience(), spent = 0, searches = 0;
    while (!pending_.empty() && !is_late()) {
        // The clock is read once for several units.
        const auto several = std::min<std::size_t>(kSeveral, pending_.size());
        const auto before = search_.options_read();
        for (std::size_t i = 0; i < several; ++i) search_.place(pending_[i]);
        pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(several));
        spent += search_.options_read() - before;
        searches += static_cast<std::int64_t>(several);
        while (spent > patience && pending_.size() > kSeveral && !is_late()) {
            const auto [read, placed] = place_together();
            if (read * searches < placed * spent) continue;
            patience = 2 * read;
            spent = searches = 0;
        }
    }
    for (const Unit t : pending_) units_[t].pending = true;  // there was no time for them
    zones_.drop_holes_at_sink_price();
    return pending_.empty();
}

// Where few are new, the prices of all others are right, and each search finds room nearby.
std::int64_t Solver::first_patience() const {
    const auto many = std::max<std::int64_t>(1, static_cast<std::int64_t>(pending_.size()));
    return units_.options_in_use() * std::max<std::int64_t>(1, units_.alive() / (kFew * many));
}

// Places many units at once, though some others may have to be placed anew for that. Returns how
// many options that has read, and how many units fewer are left.
std::pair<std::int64_t, std::int64_t> Solver::place_together() {
    const auto read_before = options_read();
    const auto many = pending_.size();
    free_moves_.label_zones();
    // Who leaves for a root with room stays there, and its place may remain a hole that has to be
    // filled later; where there is no such root, as many holes are filled as are left behind.
    const std::size_t enough = zones_.has_root_with_room() ? many / 2 : 2 * many;
    for (const Unit t : search_.raise(pending_, free_moves_, enough)) {
        leave(t);
        pending_.push_back(t);
    }
    zones_.drop_holes_at_sink_price();
    free_moves_.place(pending_);
    return {options_read() - read_before,
            static_cast<std::int64_t>(many) - static_cast<std::int64_t>(pending_.size())};
}

bool Solver::fill_holes() {
    while (zones_.holes() > 0) {
        if (is_late()) return false;
        search_.fill(zones_.places_with_holes().back());
        zones_.drop_holes_at_sink_price();
    }
    return true;
}

bool Solver::place_if_free(Unit t) {
    const Option* best = nullptr;
    Cost least = zones_.outside + zones_.sink_price();
    for (const Option& option : units_.options(t)) {
        const Cost cost = option.cost() + zones_.price(option.what);
        if (cost < least) {
            least = cost;
            best = &option;
        }
    }
    if (best == nullptr) return false;
    if (!zones_.has_room(zones_.zone_of(best->what))) return false;
    put_where_room_is(t, *best);
    return true;
}

void Solver::put_where_room_is(Unit t, const Option& option) {
    const Place place = option.what;
    const Place zone = zones_.zone_of(place);
    const bool filled = zones_.holes(zone) > 0;
    if (filled) zones_.drop_holes(zone, 1);
    zones_.put(t, place, option.cost());
    if (!filled || zone != place) zones_.settle({place});  // else it holds as many as before
    zones_.index(t);
}

// Where most is new, prices of old say little: all units are placed anew.
void Solver::start_over() {
    for (Unit t = 0; t < units_.size(); ++t) {
        if (units_[t].alive && units_[t].at != kNowhere) {
            zones_.take(t);
            postpone(t);
        }
    }
    const auto with_holes = zones_.places_with_holes();
    for (const Place v : with_holes) zones_.drop_holes(v, zones_.holes(v));
    for (auto& v : zones_.vertex) v.price = 0;
    estimate_prices(zones_, pending_);
    zones_.rebuild();
}

// ------------------------------------------------------------------------------------ out of time

// Each unit that is left takes its best option with room, if there is one, until the next round.
void Solver::place_in_a_hurry() {
    for (const Unit t : pending_) {
        const Option* best = nullptr;
        for (const Option& option : units_.options(t)) {
            if (zones_.has_room(zones_.zone_of(option.what)) &&
                (best == nullptr || option.cost() < best->cost())) {
                best = &option;
            }
        }
        if (best == nullptr) continue;
        put_where_room_is(t, *best);
        hurried_.push_back(t);
    }
}

void Solver::undo_hurry() {
    for (const Unit t : hurried_) {
        if (units_[t].alive && units_[t].at != kNowhere) leave(t);
    }
    hurried_.clear();
}

// The plan's cost less the value of the dual: what all units pay at least at these prices, less
// what all capacity is worth at them. Units without a place count with what that costs.
Cost Solver::gap() const {
    Wide gap = zones_.cost();
    const Cost sink = zones_.sink_price();
    for (Unit t = 0; t < units_.size(); ++t) {
        if (!units_[t].alive) continue;
        if (units_[t].at == kNowhere || units_[t].at == forest_.sink()) gap += zones_.outside;
        gap -= zones_.least_cost(t) - sink;
    }
    for (Place v = 0; v < forest_.size(); ++v) {
        if (forest_.is_leaf(v) && zones_.capacity(v) > 0) {
            gap += static_cast<Wide>(zones_.capacity(v)) * (zones_.price(v) - sink);
        }
    }
    return static_cast<Cost>(std::min<Wide>(gap, std::numeric_limits<Cost>::max()));
}

}  // namespace headgate::flow::laminar
