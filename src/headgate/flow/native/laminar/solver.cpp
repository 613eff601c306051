#include "solver.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "errors.hpp"
#include "estimate.hpp"

namespace headgate::flow::laminar {

constexpr std::size_t kSeveral = 16;
// New units are few if they are at most this fraction of all.
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

Solver::Solver(const Solver& other)
    : parent_(other.parent_),
      forest_(other.forest_),
      units_(other.units_, forest_),
      zones_(other.zones_, forest_, units_),
      search_(other.search_, zones_),
      free_moves_(other.free_moves_, zones_),
      leaves_(other.leaves_, zones_),
      pending_(other.pending_),
      greedy_(other.greedy_),
      largest_cost_(other.largest_cost_),
      heap_pushes_(other.heap_pushes_) {}

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
            own_cost_changed(t, cost[i]);
        } else if (units_[t].at != kNowhere) {
            option_cost_changed(t, v, cost[i]);
        }
    }
}

// The cost of a unit's own option has changed. If it has risen, another option may be better.
void Solver::own_cost_changed(Unit t, Cost cost) {
    const Cost more = cost - units_[t].paid;
    zones_.set_paid(t, cost);
    if (more <= 0) return;
    if (zones_.least_cost(t) < cost + zones_.price(units_[t].at)) {
        leave(t);
        postpone(t);
    } else {
        zones_.index(t);
        ++heap_pushes_;
    }
}

// The cost of another option of a unit has changed.
void Solver::option_cost_changed(Unit t, Place v, Cost cost) {
    const Cost paid = units_[t].paid;
    const Cost length = cost + zones_.price(v) - paid;
    if (length < zones_.price(units_[t].at)) {
        leave(t);
        postpone(t);
    } else if (zones_.zone_of(v) != zones_.zone_of_unit(t)) {
        if (zones_.lower_move_cost(t, length)) ++heap_pushes_;
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
        zones_.update_zones({place});
    } else {
        zones_.add_deficit(zone, 1);
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
        if (capacity[i] > 0) raise_capacity(v, std::min(capacity[i], kUnlimited));
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
        const Count by = std::min(capacity[i], kUnlimited) - zones_.capacity(leaf);
        if (by > 0) raise_capacity(leaf, by);
        if (by < 0) cut_capacity(leaf, -by);
    }
}

void Solver::raise_capacity(Place leaf, Count by) {
    zones_.open(leaf);
    const Place zone = zones_.zone_of(leaf);
    zones_.change_capacity(leaf, by);
    if (zones_.vertex[zone].price == zones_.sink_price()) {
        zones_.update_zones({leaf});
    } else {
        zones_.add_deficit(zone, by);
    }
    leaves_.capacity_changed(leaf);
}

// Units beyond the remaining capacity lose their places and are placed again.
void Solver::cut_capacity(Place leaf, Count by) {
    zones_.change_capacity(leaf, -by);
    zones_.update_zones({leaf});
    for (Place v = leaf; v != kNowhere; v = forest_.parent(v)) {
        const Count over = zones_.count(v) - zones_.capacity(v);
        if (over > 0 && zones_.deficits(v) > 0) {
            zones_.drop_deficit(v, std::min(over, zones_.deficits(v)));
            zones_.update_zones({v});
        }
        while (zones_.is_over(v)) {
            const Unit t = zones_.cheapest_to_move(v);
            const Place place = units_[t].at;
            zones_.take(t);
            zones_.update_zones({place});
            postpone(t);
        }
    }
    leaves_.capacity_changed(leaf);
}

// A path may contain a move per place, so no augmenting path costs more than this.
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
    undo_greedy();
    std::erase_if(pending_, [&](Unit t) { return !units_[t].alive; });
    units_.compact_if_needed();
    zones_.drop_deficits_at_sink_price();
    if (2 * static_cast<std::int64_t>(pending_.size()) > units_.alive()) start_over();
    if (zones_.move_costs_are_stale() || heap_pushes_ > units_.alive()) {
        zones_.rebuild();  // stale heap entries are dropped, too
        heap_pushes_ = 0;
    }
    search_.begin_round();
    const bool done = place_all() && fill_deficits();
    if (!done) place_greedily();
    leaves_.update();
    Outcome outcome;
    outcome.cost = zones_.cost();
    outcome.unplaced = zones_.unplaced() + static_cast<std::int64_t>(pending_.size()) -
                       static_cast<std::int64_t>(greedy_.size());
    if (!done) outcome.gap = gap();
    outcome.options_read = options_read() - read_before;
    return outcome;
}

// Searches an augmenting path per unit. Whenever these searches have read about as many options as
// a joint search for all units left would, runs the joint search, as long as it reads less per
// unit.
bool Solver::place_all() {
    for (const Unit t : pending_) units_[t].pending = false;
    std::erase_if(pending_, [&](Unit t) { return place_if_free(t); });
    std::int64_t budget = first_budget(), spent = 0, searches = 0;
    while (!pending_.empty() && !is_out_of_time()) {
        // The clock is read once for several units.
        const auto several = std::min<std::size_t>(kSeveral, pending_.size());
        const auto before = search_.options_read();
        for (std::size_t i = 0; i < several; ++i) search_.place(pending_[i]);
        pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(several));
        spent += search_.options_read() - before;
        searches += static_cast<std::int64_t>(several);
        while (spent > budget && pending_.size() > kSeveral && !is_out_of_time()) {
            const auto [read, placed] = place_together();
            if (read * searches < placed * spent) continue;
            budget = 2 * read;
            spent = searches = 0;
        }
    }
    for (const Unit t : pending_) units_[t].pending = true;  // after the deadline
    zones_.drop_deficits_at_sink_price();
    return pending_.empty();
}

// Where few units are new, prices are nearly optimal and each search ends nearby.
std::int64_t Solver::first_budget() const {
    const auto many = std::max<std::int64_t>(1, static_cast<std::int64_t>(pending_.size()));
    return units_.options_in_use() * std::max<std::int64_t>(1, units_.alive() / (kFew * many));
}

// Places many units jointly; some others may have to be placed again. Returns the number of options
// read and the number of units fewer that are pending.
std::pair<std::int64_t, std::int64_t> Solver::place_together() {
    const auto read_before = options_read();
    const auto many = pending_.size();
    free_moves_.label_zones();
    // A unit that moves to a root with room stays there, and its place may remain a deficit to be
    // filled later; without such a root, as many deficits are filled as are created.
    const std::size_t enough = zones_.has_root_with_room() ? many / 2 : 2 * many;
    for (const Unit t : search_.raise_prices(pending_, free_moves_, enough)) {
        leave(t);
        pending_.push_back(t);
    }
    zones_.drop_deficits_at_sink_price();
    free_moves_.place(pending_);
    return {options_read() - read_before,
            static_cast<std::int64_t>(many) - static_cast<std::int64_t>(pending_.size())};
}

bool Solver::fill_deficits() {
    while (zones_.deficits() > 0) {
        if (is_out_of_time()) return false;
        search_.fill(zones_.places_with_deficit().back());
        zones_.drop_deficits_at_sink_price();
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
    const bool filled = zones_.deficits(zone) > 0;
    if (filled) zones_.drop_deficit(zone, 1);
    zones_.put(t, place, option.cost());
    if (!filled || zone != place) zones_.update_zones({place});  // else its count is unchanged
    zones_.index(t);
}

// Where most units are new, old prices are of little use: all units are placed again.
void Solver::start_over() {
    for (Unit t = 0; t < units_.size(); ++t) {
        if (units_[t].alive && units_[t].at != kNowhere) {
            zones_.take(t);
            postpone(t);
        }
    }
    const auto with_deficit = zones_.places_with_deficit();
    for (const Place v : with_deficit) zones_.drop_deficit(v, zones_.deficits(v));
    for (auto& v : zones_.vertex) v.price = 0;
    estimate_prices(zones_, pending_);
    zones_.rebuild();
}

// ------------------------------------------------------------------- after the deadline

// Each pending unit takes its best option with room, if there is one, until the next round.
void Solver::place_greedily() {
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
        greedy_.push_back(t);
    }
}

void Solver::undo_greedy() {
    for (const Unit t : greedy_) {
        if (units_[t].alive && units_[t].at != kNowhere) leave(t);
    }
    greedy_.clear();
}

// The duality gap: the plan's cost minus the dual value, which is the sum of each unit's least cost
// + price, minus the value of all capacity at these prices. Units without a place count with the
// penalty.
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
