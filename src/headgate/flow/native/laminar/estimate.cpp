#include "estimate.hpp"

#include <algorithm>

namespace headgate::flow::laminar {

namespace {

struct Wish {
    Place pool;  // the cheapest, kNowhere for none
    Cost gain;   // of a place in a tree over it
};

// Who could be placed in a tree.
std::vector<Wish> wishes(const Zones& zones, std::span<const Unit> pending) {
    std::vector<Wish> wishes;
    for (const Unit t : pending) {
        Cost wait = kFar, go = kFar;
        Place pool = kNowhere;
        for (const Option& option : zones.units.options(t)) {
            if (!zones.forest.is_pool(option.what)) {
                go = std::min(go, option.cost());
            } else if (option.cost() < wait) {
                wait = option.cost();
                pool = option.what;
            }
        }
        if (go < kFar) wishes.push_back({pool, wait - go});
    }
    return wishes;
}

struct Demand {
    Count room = 0;            // left in the trees by those who must be placed
    std::vector<Cost> others;  // gains of those who need not be
    std::vector<Cost> last;    // by pool: the least gain of those who must
};

Demand demand(const Zones& zones, std::vector<Wish> wishes) {
    Demand demand;
    demand.last.assign(zones.forest.size(), kFar);
    for (const Place tree : zones.forest.trees()) demand.room += zones.capacity(tree);
    std::sort(wishes.begin(), wishes.end(), [](const Wish& a, const Wish& b) {
        return a.pool != b.pool ? a.pool < b.pool : a.gain > b.gain;
    });
    for (std::size_t i = 0; i < wishes.size();) {
        const Place pool = wishes[i].pool;
        auto end = i;
        while (end < wishes.size() && wishes[end].pool == pool) ++end;
        const auto wanting = static_cast<Count>(end - i);
        const Count must = pool == kNowhere ? wanting : wanting - zones.capacity(pool);
        for (Count n = 0; i < end; ++i, ++n) {
            if (n < must) {
                --demand.room;
                if (pool != kNowhere) demand.last[pool] = wishes[i].gain;
            } else if (wishes[i].gain > 0) {
                demand.others.push_back(wishes[i].gain);
            }
        }
    }
    return demand;
}

Cost price_in_trees(const Zones& zones, Demand& demand) {
    Cost price = 0;
    if (demand.room <= 0) {  // nobody else is placed: then it may be as high as some must pay
        for (const Place pool : zones.forest.roots()) {
            if (demand.last[pool] < kFar) price = std::max(price, demand.last[pool]);
        }
    }
    auto& others = demand.others;
    if (!others.empty() && demand.room < static_cast<Count>(others.size())) {
        const auto nth = others.begin() + std::max<Count>(demand.room, 0);
        std::nth_element(others.begin(), nth, others.end(), std::greater<>{});
        price = std::max(price, *nth);
    }
    return price;
}

}  // namespace

void estimate_prices(Zones& zones, std::span<const Unit> pending) {
    const auto& forest = zones.forest;
    auto wanted = demand(zones, wishes(zones, pending));
    const Cost price = price_in_trees(zones, wanted);
    for (const Place tree : forest.trees()) {
        for (Place v = tree; v < forest.end(tree); ++v) {
            zones.vertex[v].price = price;
            if (forest.is_leaf(v) && zones.capacity(v) > 0) zones.add_holes(v, zones.capacity(v));
        }
    }
    for (const Place pool : forest.roots()) {
        if (wanted.last[pool] < price && zones.capacity(pool) > 0) {
            zones.vertex[pool].price = price - wanted.last[pool];
            zones.add_holes(pool, zones.capacity(pool));
        }
    }
}

}  // namespace headgate::flow::laminar
