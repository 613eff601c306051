// Queries of the solver, and checks of its input.
#include <algorithm>
#include <string>

#include "errors.hpp"
#include "solver.hpp"

namespace headgate::flow::laminar {

namespace {

std::string number(std::int64_t value) { return std::to_string(value); }

}  // namespace

bool Solver::is_placed(Unit t) const {
    const Place at = units_[t].at;
    return at != kNowhere && at != forest_.sink();
}

template <class Of>
std::vector<std::int64_t> Solver::read(Numbers ids, Of of) const {
    check_units(ids);
    std::vector<std::int64_t> values;
    values.reserve(ids.size());
    for (const auto id : ids) values.push_back(of(static_cast<Unit>(id)));
    return values;
}

std::vector<std::int64_t> Solver::place_of(Numbers ids) const {
    return read(ids, [&](Unit t) { return is_placed(t) ? forest_.outer(units_[t].at) : -1; });
}

std::vector<std::int64_t> Solver::leaf_of(Numbers ids) const {
    return read(ids, [&](Unit t) {
        const Place leaf = leaves_.leaf_of(t);
        return leaf == kNowhere ? -1 : forest_.outer(leaf);
    });
}

std::vector<std::int64_t> Solver::cost_of(Numbers ids) const {
    return read(ids, [&](Unit t) { return is_placed(t) ? units_[t].paid : 0; });
}

std::vector<std::int64_t> Solver::prices() {
    std::vector<std::int64_t> prices(forest_.size());
    for (Place v = 0; v < forest_.size(); ++v) {
        Cost price = zones_.is_closed(v) ? zones_.least_price(v) : zones_.price(v);
        price -= zones_.sink_price();
        if (!forest_.is_root(v)) {
            price = std::max<Cost>(price, prices[forest_.outer(forest_.parent(v))]);
        }
        prices[forest_.outer(v)] = std::max<Cost>(price, 0);
    }
    return prices;
}

// ------------------------------------------------------------------------------------ checks

void Solver::check_units(Numbers ids) const {
    for (const auto id : ids) {
        if (!units_.is_alive(id)) throw BadInput("unit " + number(id) + " is not there");
    }
}

void Solver::check_each_once(Numbers ids) const {
    std::vector<std::uint8_t> named(static_cast<std::size_t>(units_.size()));
    for (const auto id : ids) {
        if (named[static_cast<std::size_t>(id)]++) {
            throw BadInput("unit " + number(id) + " is named twice");
        }
    }
}

void Solver::check_options(Numbers offsets, Numbers place, Numbers cost) const {
    if (place.size() != cost.size()) {
        throw BadInput("place and cost have different lengths: " + std::to_string(place.size()) +
                       " and " + std::to_string(cost.size()));
    }
    const auto options = static_cast<std::int64_t>(place.size());
    if (offsets.empty() || offsets.front() != 0 || offsets.back() != options) {
        throw BadInput("offsets must go from 0 to the number of options, " + number(options));
    }
    for (std::size_t i = 1; i < offsets.size(); ++i) {
        if (offsets[i] < offsets[i - 1] || offsets[i] > options) {
            throw BadInput("offsets must ascend: offset " + std::to_string(i) + " is " +
                           number(offsets[i]) + " after " + number(offsets[i - 1]));
        }
        if (offsets[i] == offsets[i - 1]) {
            throw BadInput("unit " + std::to_string(i - 1) + " has no option");
        }
    }
    for (std::size_t i = 0; i < place.size(); ++i) {
        if (place[i] < 0 || place[i] >= forest_.size()) {
            throw BadInput("option " + std::to_string(i) + " is at place " + number(place[i]) +
                           ", but there are " + number(forest_.size()) + " places");
        }
        check_cost(static_cast<std::int64_t>(i), cost[i]);
    }
}

void Solver::check_cost(std::int64_t option, Cost cost) const {
    const Cost most = kMostOutside / (2 * (static_cast<Cost>(forest_.size()) + 2)) - 1;
    if (cost > most || cost < -most) {
        throw BadInput("option " + number(option) + " costs " + number(cost) +
                       ": too large to be exact with " + number(forest_.size()) +
                       " places (at most " + number(most) + ")");
    }
}

void Solver::check_place(std::int64_t place) const {
    if (place >= 0 && place < forest_.size()) return;
    throw BadInput("place " + number(place) + " is not there: there are " +
                   number(forest_.size()) + " places");
}

void Solver::check_reprice(std::int64_t place, Numbers ids, Numbers cost) const {
    if (ids.size() != cost.size()) {
        throw BadInput("units and cost have different lengths: " + std::to_string(ids.size()) +
                       " and " + std::to_string(cost.size()));
    }
    check_place(place);
    const Place v = forest_.inner(place);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto options = units_.options(static_cast<Unit>(ids[i]));
        if (std::none_of(options.begin(), options.end(), [&](auto& o) { return o.what == v; })) {
            throw BadInput("unit " + number(ids[i]) + " has no option at place " + number(place));
        }
        check_cost(static_cast<std::int64_t>(i), cost[i]);
    }
}

void Solver::check_leaves(Numbers place, Numbers values, const char* what) const {
    if (place.size() != values.size()) {
        throw BadInput("place and " + std::string(what) + " have different lengths: " +
                       std::to_string(place.size()) + " and " + std::to_string(values.size()));
    }
    for (const auto v : place) {
        check_place(v);
        if (!forest_.is_leaf(forest_.inner(v))) {
            throw BadInput("place " + number(v) + " has children: a " + what +
                           " is for leaves");
        }
    }
}

void Solver::check_places(Numbers parent, Numbers capacity) const {
    if (parent.size() != capacity.size()) {
        throw BadInput("parent and capacity have different lengths: " +
                       std::to_string(parent.size()) + " and " + std::to_string(capacity.size()));
    }
    const auto old = static_cast<std::int64_t>(parent_.size());
    const auto places = old + static_cast<std::int64_t>(parent.size());
    const Cost enough = (2 * largest_cost_ + 1) * (places + 2);
    if (places >= std::numeric_limits<Place>::max() / 8 || enough > kMostOutside) {
        throw BadInput(number(places) + " places are too many to be exact");
    }
    for (std::size_t i = 0; i < parent.size(); ++i) {
        const std::string place = "place " + number(old + static_cast<std::int64_t>(i));
        if (capacity[i] < 0) {
            throw BadInput(place + " has the negative capacity " + number(capacity[i]));
        }
        if (parent[i] < -1 || parent[i] >= places) {
            throw BadInput(place + " has the parent " + number(parent[i]) + ", but there are " +
                           number(places) + " places");
        }
    }
    for (const auto above : parent) {
        if (above < 0) continue;
        const Count has = above >= old ? capacity[static_cast<std::size_t>(above - old)]
                          : forest_.is_leaf(forest_.inner(above))
                              ? zones_.capacity(forest_.inner(above))
                              : 0;
        if (has > 0) {
            throw BadInput("place " + number(above) + " has children and a capacity of its own, " +
                           number(has));
        }
    }
}

}  // namespace headgate::flow::laminar
