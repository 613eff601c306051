#include "search.hpp"

#include <algorithm>
#include <cassert>

namespace headgate::flow::laminar {

// Zones that the forward search reads before the backward search starts, and its number of sources.
constexpr std::size_t kAlone = 8;
constexpr std::size_t kSources = 256;
// Relative cost of reading backward: the whole list of a place is read, and again when prices fall.
constexpr std::int64_t kBackward = 2;
// Options that a backward search from a deficit reads before the search becomes bidirectional.
constexpr std::int64_t kNearby = 16'384;
// Ratio of a search's radius to the mean length of paths.
constexpr Cost kSpread = 4;
// The index of the option that every unit has: the sink.
constexpr std::int32_t kOutside = -1;

Search::Search(Zones& zones) : zones_(zones), backward_(zones), moves_(zones) {
    arrival_.resize(zones.forest.size() + 1);
}

Search::Search(const Search& other, Zones& zones)
    : SearchData(other), zones_(zones), backward_(other.backward_, zones), moves_(zones) {}

void Search::resize() {
    arrival_.assign(zones_.forest.size() + 1, {});
    backward_.resize();
}

void Search::next_round() {
    if (++round_ != 0) return;
    round_ = 1;  // the counter has wrapped around
    for (auto& v : zones_.vertex) v.seen = 0;
    for (auto& arrival : arrival_) arrival.path = 0;
    for (Unit t = 0; t < zones_.units.size(); ++t) zones_.units[t].read = 0;
}

void Search::begin(Cost radius, bool from_sink) {
    next_round();
    from_sink_ = from_sink;
    bidirectional_ = met_ = false;
    began_ = read_;
    bound_ = radius;
    goal_ = kNowhere;
    at_ = 0;
    outside_ = zones_.outside + zones_.sink_price();
    floor_ = zones_.floor_price();
    queue_.clear();
    reached_.clear();
    expanded_ = 0;
    pulled_.clear();
    read_zones_.clear();
}

// After a round with unplaced units, prices may still be near the penalty: then the sink's price
// must not fall.
void Search::begin_round() {
    scarce_ = false;
    for (Place v = 0; v < zones_.forest.size() && !scarce_; ++v) {
        scarce_ = !zones_.is_closed(v) && is_scarce(v);
    }
}

bool Search::is_scarce(Place v) const {
    return zones_.vertex[v].price - zones_.sink_price() > zones_.outside / 2;
}

// Starts from the options of a unit without a place; the best one is at distance 0.
void Search::start_from_options(Unit t) {
    const auto& vertex = zones_.vertex;
    const auto options = zones_.units.options(t);
    const Cost best = zones_.least_cost(t);
    read_ += static_cast<std::int64_t>(options.size());
    for (std::size_t i = 0; i < options.size(); ++i) {
        const Place zone = vertex[options[i].what].zone;
        const Cost length = options[i].cost() + vertex[zone].price - best;
        reach(zone, length, t, static_cast<std::int32_t>(i), kNowhere);
    }
    reach(zones_.forest.sink(), outside_ - best, t, kOutside, kNowhere);
}

void Search::place(Unit t) {
    // A small radius keeps the queue short; a search that finds nothing is repeated with a larger
    // one.
    for (Cost radius = std::max(kSpread * typical_, Cost{1024});; radius *= 16) {
        radius = std::min(radius, kFar / 16);
        begin(radius, false);
        start_from_options(t);
        if (run()) {
            if (zones_.unplaced() > 0) scarce_ = true;
            typical_ += (std::min(bound_, zones_.outside) - typical_) / 16;
            return;
        }
        assert(radius < kFar / 16);
    }
}

std::vector<Unit> Search::raise_prices(std::span<const Unit> units, const FreeMoves& free_moves,
                                std::size_t enough) {
    begin(outside_ / 2, false);
    free_moves_ = &free_moves;
    ends_.clear();
    for (const Unit t : units) start_from_options(t);
    std::vector<Unit> leaving;
    Cost risen = 0;
    for (std::size_t found = 0; found < enough && !queue_.empty();) {
        const auto [distance, code] = queue_.top();
        if (distance >= bound_) break;
        if (code >= 0) {
            step();
            continue;
        }
        queue_.pop();
        risen = distance;
        ++found;
        const Unit t = ends_[-1 - code];
        if (zones_.units[t].at != kNowhere) leaving.push_back(t);
    }
    free_moves_ = nullptr;
    bound_ = risen;
    restore_heaps();
    update_prices();
    for (const Place zone : reached_) scarce_ = scarce_ || is_scarce(zone);
    std::sort(leaving.begin(), leaving.end());
    leaving.erase(std::unique(leaving.begin(), leaving.end()), leaving.end());
    return leaving;
}

void Search::fill(Place deficit) {
    goal_ = backward_.find_sink(deficit, kNearby);
    if (goal_ == kNowhere) {
        fill_nearest();
        return;
    }
    met_ = true;
    next_round();
    arrival_[goal_] = {kNowhere, 0, kNowhere};
    apply();
}

void Search::fill_nearest() {
    const Place sink = zones_.forest.sink();
    begin(kFar, true);
    reach(sink, 0, kNowhere, 0, kNowhere);
    run();
}

bool Search::run() {
    while (!queue_.empty() && queue_.top().key < bound_) {
        if (!bidirectional_ && expanded_ == kAlone && !scarce_) start_backward();
        if (bidirectional_) {
            // The backward search does not see paths on which a unit ends at the sink.
            const bool enough = (goal_ == kNowhere || met_) && bound_ < zones_.outside / 4;
            const Cost ahead = std::min(backward_.radius(), zones_.outside);
            if (enough && queue_.top().key + ahead >= bound_) break;
            if (backward_is_next()) {
                step_backward();
                continue;
            }
        }
        step();
    }
    restore_heaps();
    if (goal_ == kNowhere) return false;
    update_prices();
    apply();
    return true;
}

void Search::step() {
    const auto [distance, code] = queue_.top();
    const Place zone = zones_.forest.of_rank(code >> 2);
    at_ = distance;
    queue_.pop();
    fetch_next();
    if ((code & 3) == kUnits) {
        if (zones_.forest.is_wide(zone)) {
            read_units(zone);
        } else {
            read_narrow(zone);
        }
    } else if ((code & 3) == kZones) {
        read_zones(zone);
    } else if (distance == zones_.vertex[zone].distance + delay(zone)) {
        ++expanded_;
        expand(zone);
    }
}

// Prefetches the options that are most likely read next.
void Search::fetch_next() const {
    if (queue_.empty() || queue_.top().what < 0 || (queue_.top().what & 3) != kZone) return;
    const Place zone = zones_.forest.of_rank(queue_.top().what >> 2);
    if (const Unit t = zones_.units.only_member(zone); t != kNowhere) {
        zones_.units.fetch_options(t);
    }
}

// Starts from some deficits: any subset is correct, since the shortest path to these is as good as
// to all. Roots with room are ends, too; if they are few, they are reached through the sink.
void Search::start_backward() {
    std::size_t roots = 0;
    if (!from_sink_) {
        for (const Place root : zones_.forest.roots()) {
            if (zones_.count(root) >= zones_.capacity(root)) continue;
            if (!zones_.forest.is_listed(root)) return;
            ++roots;
        }
    }
    const auto& deficits = zones_.places_with_deficit();
    if (deficits.empty() && roots == 0) return;
    bidirectional_ = true;
    back_began_ = backward_.options_read();
    backward_.begin();
    for (std::size_t n = std::min(deficits.size(), kSources); n > 0; --n) {
        if (++rotation_ >= deficits.size()) rotation_ = 0;
        backward_.add_source(deficits[rotation_]);
    }
    if (0 < roots && roots <= kSources) backward_.add_source(zones_.forest.sink());
}

// Balances the work of both halves; reading the units of a wide zone is a large step.
bool Search::backward_is_next() const {
    if (backward_.idle()) return false;
    const Place next = backward_.next();
    if (next == zones_.forest.sink()) return !from_sink_;
    const auto read = backward_.options_read() - back_began_;
    return kBackward * (read + backward_.work(next)) <= read_ - began_;
}

void Search::step_backward() {
    backward_.step(bound_, [&](Place zone, Cost distance) {
        const auto& v = zones_.vertex[zone];
        if (v.seen == round_) end_at(zone, v.distance + distance, true);
    });
}

void Search::reach(Place zone, Cost distance, Unit t, std::int32_t option, Place from) {
    if (distance >= bound_) return;
    const bool outside = zone == zones_.forest.sink();
    if (free_moves_ != nullptr && t != kNowhere && (outside || free_moves_->lead_from(zone))) {
        queue_.push(distance, -1 - static_cast<std::int32_t>(ends_.size()));
        ends_.push_back(t);
        return;
    }
    auto& v = zones_.vertex[zone];
    if (v.seen == round_ && distance >= v.distance) return;
    const bool first = v.seen != round_;
    v.seen = round_;
    v.distance = distance;
    arrival_[zone] = {t, option, from};
    if (bidirectional_ && backward_.knows(zone)) {
        end_at(zone, distance + backward_.label(zone).distance, true);
    }
    const bool room = zone == zones_.forest.sink() || zones_.has_room(zone);
    if (free_moves_ == nullptr && (zones_.deficits(zone) > 0 || (!from_sink_ && room))) {
        end_at(zone, distance, false);
        return;  // all zones beyond are further away
    }
    if (first) reached_.push_back(zone);
    const Cost earliest = distance + delay(zone);
    if (earliest >= bound_) return;
    push(earliest, zone, kZone);
    if (const Unit there = zones_.units.only_member(zone); there != kNowhere) {
        zones_.units.fetch(there);
    }
}

// A lower bound on the distance from a zone to the next one.
Cost Search::delay(Place zone) const {
    const auto& v = zones_.vertex[zone];
    return v.move_cost == kUnknown ? 0 : std::max(Cost{0}, v.move_cost - v.price);
}

// Records a path that ends at this zone, or on which both halves met there, if it is the shortest.
void Search::end_at(Place zone, Cost length, bool met) {
    if (length >= bound_) return;
    bound_ = length;
    goal_ = zone;
    met_ = met;
}

// Returns a lower bound on the distance to the nearest zone that the unit could move to.
Cost Search::read_unit(Unit t, Place zone, Cost base) {
    const auto& vertex = zones_.vertex;
    const auto& unit = zones_.units[t];
    const Option* option = zones_.units.option_data() + unit.first;
    const Cost from = base - unit.paid;
    read_ += unit.size;
    if (from + outside_ < bound_ && !from_sink_) {
        reach(zones_.forest.sink(), from + outside_, t, kOutside, zone);
    }
    Cost nearest = from + zones_.least_outside();
    auto see = [&](std::int32_t i) {
        const Place to = vertex[option[i].what].zone;
        if (to == zone) return;
        const Cost length = from + option[i].cost() + vertex[to].price;
        nearest = std::min(nearest, length);
        reach(to, length, t, i, zone);
    };
    std::int32_t i = 0;
    for (; i < unit.wide; ++i) see(i);
    const Cost least = from + floor_;
    for (; i < unit.size; ++i) {
        const Cost length = least + option[i].cost();
        if (length >= bound_) return std::min(nearest, length);  // the following ones cost no less
        see(i);
    }
    return nearest;
}

void Search::expand(Place zone) {
    const auto& forest = zones_.forest;
    if (zone == forest.sink()) {
        for (const Place root : forest.roots()) {
            if (zones_.count(root) > 0) {
                const Cost length = zones_.vertex[root].price - zones_.sink_price();
                reach(root, at_ + length, kNowhere, 0, zone);
            }
        }
        const Cost base = at_ - zones_.sink_price();
        for (const Unit t : zones_.units.members(zone)) read_unit(t, zone, base);
        return;
    }
    if (forest.is_wide(zone)) {
        read_units(zone);
        if (!forest.is_leaf(zone)) read_zones(zone);
        return;
    }
    zones_.read_zone(
        zone, [](Place) {},
        [&](Place x) {
            const Cost length = at_ - zones_.vertex[zone].price + zones_.vertex[x].price;
            if (zones_.count(x) > 0) reach(x, length, kNowhere, 0, zone);
        });
    read_narrow(zone);
}

// Reads the units of a narrow zone whose cheapest move may be within the bound, and queues the zone
// again for the others.
void Search::read_narrow(Place zone) {
    auto& units = zones_.units;
    auto& vertex = zones_.vertex[zone];
    const Cost base = vertex.distance - vertex.price;
    Cost least = kFar, next = kFar;  // move costs of units read; of the others
    to_read_.clear();
    auto look = [&](Unit t) {
        const auto& unit = units[t];
        if (unit.read == round_) {
            least = std::min(least, unit.move_cost);
        } else if (unit.move_cost == kUnknown || base + unit.move_cost <= at_) {
            units.fetch_options(t);
            to_read_.push_back(t);
        } else {
            next = std::min(next, unit.move_cost);
        }
    };
    const bool is_leaf = zones_.forest.is_leaf(zone);
    if (const Unit only = units.only_member(zone); is_leaf && only != kNowhere) {
        look(only);
    } else {
        zones_.read_zone(zone, [&](Place x) {
            const auto& members = units.members(x);
            for (const Unit t : members) units.fetch(t);
            for (const Unit t : members) look(t);
        });
    }
    for (const Unit t : to_read_) {
        units[t].read = round_;
        units[t].move_cost = read_unit(t, zone, base) - base;
        least = std::min(least, units[t].move_cost);
    }
    if (is_leaf) vertex.move_cost = std::min(least, next);
    if (next < kFar && base + next < bound_) push(base + next, zone, kUnits);
}

// Reads the units of a wide zone whose cheapest move may be within the bound, and queues the zone
// again for the others.
void Search::read_units(Place wide_zone) {
    Heap& heap = zones_.unit_heap(wide_zone);
    const Cost base = zones_.vertex[wide_zone].distance - zones_.vertex[wide_zone].price;
    while (const Entry* first = zones_.first_unit(wide_zone)) {
        const auto [key, t] = *first;
        if (base + key >= bound_) return;
        if (base + key > at_) {
            push(base + key, wide_zone, kUnits);
            return;
        }
        heap.pop();
        zones_.units[t].move_cost = kUnknown;
        pulled_.push_back({t, read_unit(t, wide_zone, base) - base});
    }
}

// The same for the zones within a wide zone.
void Search::read_zones(Place wide_zone) {
    Heap& heap = zones_.zone_heap(wide_zone);
    const Cost base = zones_.vertex[wide_zone].distance - zones_.vertex[wide_zone].price;
    while (const Entry* first = zones_.first_zone(wide_zone)) {
        const auto [key, zone] = *first;
        if (base + key >= bound_) return;
        if (base + key > at_) {
            push(base + key, wide_zone, kZones);
            return;
        }
        heap.pop();
        const Cost price = zones_.vertex[zone].price;
        if (price > key) {
            zones_.queued_price(zone) = price;
            heap.push(price, zone);
            continue;
        }
        zones_.queued_price(zone) = kUnknown;
        read_zones_.push_back(zone);
        ++read_;
        reach(zone, base + price, kNowhere, 0, wide_zone);
    }
}

// Before prices rise: heap entries are lower bounds and must never exceed the exact move cost.
void Search::restore_heaps() {
    for (const auto& [t, cost] : pulled_) zones_.set_move_cost(t, cost);
    for (const Place zone : read_zones_) zones_.queue_zone(zone);
}

// Raises prices around the start and lowers them around the deficit where the backward search
// started, so that every arc of the path has reduced cost 0.
void Search::update_prices() {
    auto& vertex = zones_.vertex;
    Cost risen = bound_;
    if (met_ && !queue_.empty()) risen = std::min(risen, queue_.top().key);
    for (const Place zone : reached_) {
        if (vertex[zone].distance < risen) vertex[zone].price += risen - vertex[zone].distance;
    }
    if (from_sink_ && risen > 0) {
        for (const Place root : zones_.forest.roots()) {  // empty roots were not reached
            if (zones_.count(root) < zones_.capacity(root)) {
                vertex[root].price = zones_.sink_price();
            }
        }
    }
    if (met_ && risen < bound_) backward_.lower_prices(bound_ - risen);
}

// Where the two halves of the path share a zone, the part between is a cycle of length 0: removed.
void Search::cut_cycles() {
    for (Place zone = goal_; zone != kNowhere; zone = arrival_[zone].from) {
        arrival_[zone].path = round_;
    }
    for (Place zone = goal_; zone != kNowhere; zone = after(zone)) {
        if (arrival_[zone].path == round_) goal_ = zone;
    }
}

// The next zone on the backward half of the path; kNowhere at a deficit.
Place Search::after(Place zone) const {
    const Step& step = backward_.label(zone).step;
    return step.unit == kNowhere ? step.place : zones_.zone_of(step.place);
}

void Search::apply() {
    if (met_) cut_cycles();
    Place end = goal_;
    for (Place next = end; met_ && (next = after(end)) != kNowhere; end = next) {
        steps_.push_back(backward_.label(end).step);
    }
    for (const Step& step : steps_) {
        if (step.unit != kNowhere) moves_.move(step.unit, step.place, step.cost);
    }
    steps_.clear();
    moves_.fill(end);
    for (Place zone = goal_; zone != kNowhere;) {
        const auto [t, option, from, path] = arrival_[zone];
        if (t != kNowhere && option == kOutside) {
            moves_.move(t, zones_.forest.sink(), zones_.outside);
        } else if (t != kNowhere) {
            const Option& chosen = zones_.units.options(t)[option];
            moves_.move(t, chosen.what, chosen.cost());
        }
        if (from == kNowhere) moves_.touch(zone);
        zone = from;
    }
    moves_.finish([](Unit) {});
}

}  // namespace headgate::flow::laminar
