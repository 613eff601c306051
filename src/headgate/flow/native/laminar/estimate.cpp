#include "estimate.hpp"

#include <algorithm>

namespace headgate::flow::laminar {

namespace {

constexpr int kSweeps = 3;

// A unit that could be placed in a tree.
struct Candidate {
    Place pool = kNowhere;  // the cheapest, kNowhere for none
    Cost wait = kFar;       // its cost
    Cost go = kFar;         // the least cost in a tree, its block's surcharge included
    std::size_t first = 0;  // its costs by block: [first, end)
    std::size_t end = 0;

    Cost gain() const { return wait - go; }
};

struct InBlock {
    std::int32_t block;
    Cost cost;
};

// Trees are split into blocks with a price each: the places below a root, where these are trees of
// some depth themselves (classes of GPUs, say), else the root.
class Estimate {
public:
    Estimate(Zones& zones, std::span<const Unit> pending) : zones_(zones) {
        find_blocks();
        for (const Unit t : pending) add_candidate(t);
    }

    void run() {
        divide();
        // Which units are placed depends on the prices of blocks, and vice versa.
        if (blocks_.size() > 1) {
            for (int sweep = 0; sweep < kSweeps; ++sweep) {
                for (std::size_t b = 0; b < blocks_.size(); ++b) balance(static_cast<int>(b));
            }
            const Cost least = *std::min_element(dearer_.begin(), dearer_.end());
            for (Cost& each : dearer_) each -= least;
            for (Candidate& candidate : candidates_) candidate.go = cheapest(candidate, kNoBlock);
            divide();
        }
        fill();
    }

private:
    static constexpr int kNoBlock = -1;

    void find_blocks() {
        const auto& forest = zones_.forest;
        block_of_.assign(forest.size(), kNoBlock);
        for (const Place tree : forest.trees()) {
            std::vector<Place> tops;
            bool deep = true;
            for (Place v = tree + 1; v < forest.end(tree); v = forest.end(v)) {
                tops.push_back(v);
                deep = deep && !forest.is_leaf(v) && !forest.is_leaf(v + 1);
            }
            if (!deep) tops.assign(1, tree);
            for (const Place top : tops) {
                if (zones_.capacity(top) == 0) continue;
                std::fill(block_of_.begin() + top, block_of_.begin() + forest.end(top),
                          static_cast<int>(blocks_.size()));
                blocks_.push_back(top);
            }
        }
        dearer_.assign(blocks_.size(), 0);
    }

    void add_candidate(Unit t) {
        const auto& forest = zones_.forest;
        Candidate candidate;
        candidate.first = costs_.size();
        for (const Option& option : zones_.units.options(t)) {
            if (forest.is_pool(option.what)) {
                if (option.cost() < candidate.wait) {
                    candidate.wait = option.cost();
                    candidate.pool = option.what;
                }
                continue;
            }
            if (zones_.capacity(option.what) == 0) continue;
            candidate.go = std::min(candidate.go, option.cost());
            if (blocks_.size() > 1) add_cost(candidate, option);
        }
        candidate.end = costs_.size();
        if (candidate.go < kFar) candidates_.push_back(candidate);
    }

    void add_cost(const Candidate& candidate, const Option& option) {
        const auto& forest = zones_.forest;
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            const bool here = static_cast<int>(b) == block_of_[option.what];
            if (!here && !forest.contains(option.what, blocks_[b])) continue;
            auto i = candidate.first;
            while (i < costs_.size() && costs_[i].block != static_cast<int>(b)) ++i;
            if (i == costs_.size()) costs_.push_back({static_cast<std::int32_t>(b), kFar});
            costs_[i].cost = std::min(costs_[i].cost, option.cost());
        }
    }

    Cost cheapest(const Candidate& candidate, int without) const {
        Cost least = kFar;
        for (auto i = candidate.first; i < candidate.end; ++i) {
            if (costs_[i].block == without) continue;
            least = std::min(least, costs_[i].cost + dearer_[costs_[i].block]);
        }
        return least;
    }

    // Determines which units must be placed, since their pools are too small, and at which price
    // others are.
    void divide() {
        const auto& forest = zones_.forest;
        last_.assign(forest.size(), kFar);
        others_.clear();
        Count room = 0;
        for (const Place tree : forest.trees()) room += zones_.capacity(tree);
        std::sort(candidates_.begin(), candidates_.end(),
                  [](const Candidate& a, const Candidate& b) {
                      return a.pool != b.pool ? a.pool < b.pool : a.gain() > b.gain();
                  });
        for (std::size_t i = 0; i < candidates_.size();) {
            const Place pool = candidates_[i].pool;
            auto end = i;
            while (end < candidates_.size() && candidates_[end].pool == pool) ++end;
            const auto wanting = static_cast<Count>(end - i);
            const Count must = pool == kNowhere ? wanting : wanting - zones_.capacity(pool);
            for (Count n = 0; i < end; ++i, ++n) {
                if (n < must) {
                    --room;
                    if (pool != kNowhere) last_[pool] = candidates_[i].gain();
                } else if (candidates_[i].gain() > 0) {
                    others_.push_back(candidates_[i].gain());
                }
            }
        }
        set_price(room);
    }

    void set_price(Count room) {
        price_ = 0;
        if (room <= 0) {  // no other unit is placed: the price may be that of those that must be
            for (const Place pool : zones_.forest.roots()) {
                if (last_[pool] < kFar) price_ = std::max(price_, last_[pool]);
            }
        }
        if (!others_.empty() && room < static_cast<Count>(others_.size())) {
            const auto nth = others_.begin() + std::max<Count>(room, 0);
            std::nth_element(others_.begin(), nth, others_.end(), std::greater<>{});
            price_ = std::max(price_, *nth);
        }
    }

    bool is_placed(const Candidate& candidate) const {
        return candidate.pool == kNowhere ||
               candidate.gain() >= std::min(price_, last_[candidate.pool]);
    }

    // Raises a block's price until no more of the placed units want it than it has room for.
    void balance(int block) {
        margins_.clear();
        for (const Candidate& candidate : candidates_) {
            if (!is_placed(candidate)) continue;
            for (auto i = candidate.first; i < candidate.end; ++i) {
                if (costs_[i].block == block) {
                    margins_.push_back(cheapest(candidate, block) - costs_[i].cost);
                }
            }
        }
        const auto room = static_cast<std::size_t>(zones_.capacity(blocks_[block]));
        if (margins_.size() <= room) {
            dearer_[block] = 0;
            return;
        }
        const auto nth = margins_.begin() + static_cast<std::ptrdiff_t>(room);
        std::nth_element(margins_.begin(), nth, margins_.end(), std::greater<>{});
        dearer_[block] = *nth < kFar / 4 ? std::max<Cost>(*nth, 0) : 0;
    }

    // Sets prices, and adds deficits in all places that units want at them.
    void fill() {
        const auto& forest = zones_.forest;
        for (const Place tree : forest.trees()) {
            for (Place v = tree; v < forest.end(tree); ++v) {
                const int block = block_of_[v];
                zones_.vertex[v].price = price_ + (block == kNoBlock ? 0 : dearer_[block]);
                if (forest.is_leaf(v) && zones_.capacity(v) > 0) {
                    zones_.add_deficit(v, zones_.capacity(v));
                }
            }
        }
        for (const Place pool : forest.roots()) {
            if (last_[pool] < price_ && zones_.capacity(pool) > 0) {
                zones_.vertex[pool].price = price_ - last_[pool];
                zones_.add_deficit(pool, zones_.capacity(pool));
            }
        }
    }

    Zones& zones_;
    std::vector<Place> blocks_;
    std::vector<int> block_of_;     // by place
    std::vector<Cost> dearer_;      // by block: its price above that of the cheapest one
    std::vector<Candidate> candidates_;
    std::vector<InBlock> costs_;
    std::vector<Cost> last_;        // by pool: the least gain of the units that must be placed
    std::vector<Cost> others_;      // gains of the units that need not be
    std::vector<Cost> margins_;
    Cost price_ = 0;
};

}  // namespace

void estimate_prices(Zones& zones, std::span<const Unit> pending) {
    Estimate(zones, pending).run();
}

}  // namespace headgate::flow::laminar
