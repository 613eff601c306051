#include "cost_scaling.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace headgate::flow {
namespace {

constexpr int kStep = 8;  // epsilon rises and falls by this factor, and is a power of two

// Tuned on generated scheduling networks of 40 to 60,000 vertices.
constexpr int kStepsToRefinePrices = 2;  // per vertex, before price refinement gives up
constexpr int kRanks = 4;          // per vertex, in units of epsilon: the range of a global update
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

Number power_of_two(Number at_least) {
    return static_cast<Number>(std::bit_ceil(static_cast<std::uint64_t>(at_least)));
}

template <class Price>
Price floor_divide(Price value, Number divisor) {
    return value / divisor - (value % divisor < 0 ? 1 : 0);
}

}  // namespace

template <class Price>
CostScaling<Price>::CostScaling(Residual& graph, std::vector<Number> supply, Number largest,
                                Number scale)
    : graph_(graph),
      vertices_(graph.vertices()),
      largest_(largest),
      scale_(scale),
      highest_epsilon_(std::max<Number>(1, power_of_two(largest * scale) / kStep)),
      price_(vertices_, 0),
      excess_(std::move(supply)),
      current_(vertices_, 0),
      queue_(vertices_),
      buckets_(vertices_) {
    epsilon_ = std::min(highest_epsilon_, power_of_two(std::max<Number>(1, largest / 64)));
}

template <class Price>
bool CostScaling<Price>::run() {
    for (;;) {
        if (!refine()) {
            return false;
        }
        rising_ = false;
        if (epsilon_ == 1) {
            return refine_prices(kNoLimit);
        }
        // Distinguishing costs needs prices much finer than them.
        const auto most_steps = std::int64_t{kStepsToRefinePrices} * vertices_;
        if (epsilon_ / 4 <= largest_ && refine_prices(most_steps)) {
            return true;
        }
        epsilon_ = std::max<Number>(1, epsilon_ / kStep);
    }
}

template <class Price>
std::vector<Number> CostScaling<Price>::potentials() {
    constexpr Price kFits = Price{1} << 61;
    const auto too_large = [&](Price p) {
        p = floor_divide(p, scale_);
        return p <= -kFits || p >= kFits;
    };
    if (std::any_of(price_.begin(), price_.end(), too_large)) {
        // From 0 they fall no lower than the cheapest path through all vertices.
        std::fill(price_.begin(), price_.end(), Price{0});
        refine_prices(kNoLimit);
    }
    std::vector<Number> result(price_.size());
    std::transform(price_.begin(), price_.end(), result.begin(),
                   [&](Price p) { return static_cast<Number>(floor_divide(p, scale_)); });
    return result;
}

// ---------------------------------------------------------------- a phase

// False when the supplies cannot all be sent.
template <class Price>
bool CostScaling<Price>::refine() {
    saturate_negative_arcs();
    queue_.clear();
    effort_ = 0;
    if (!update_prices_globally()) {
        return false;
    }
    for (Index v = 0; v < vertices_; ++v) {
        if (excess_[v] > 0) {
            queue_.put(v);
        }
    }
    while (!queue_.empty()) {
        if (too_fine()) {
            epsilon_ = std::min(highest_epsilon_, epsilon_ * kStep);
            effort_ = 0;
            if (!update_prices_globally()) {
                return false;
            }
        } else if (global_update_is_needed() && !update_prices_globally()) {
            return false;
        }
        const Index v = queue_.take();
        if (!discharge(v)) {
            queue_.put(v);
        }
    }
    return true;
}

template <class Price>
void CostScaling<Price>::saturate_negative_arcs() {
    for (Index v = 0; v < vertices_; ++v) {
        for (Index at = graph_.first(v); at < graph_.live_end(v);) {
            const Residual::Arc arc = graph_.arc(at);
            if (reduced(arc, v) >= 0) {
                ++at;
                continue;
            }
            const Number amount = graph_.left(arc.id);
            excess_[v] -= amount;
            excess_[arc.head] += amount;
            graph_.send(v, at, amount);  // moves another arc to this position
        }
    }
}

// Sends the excess of v along admissible arcs (of negative reduced cost). False when a global price
// update is needed first: v still has excess.
template <class Price>
bool CostScaling<Price>::discharge(Index v) {
    while (excess_[v] > 0) {
        if (global_update_is_needed()) {
            return false;
        }
        if (!find_admissible_arc(v)) {
            if (graph_.live(v).empty()) {
                relabels_ = kNoLimit;  // a global update detects that it is infeasible
                return false;
            }
            relabel(v);
        }
        const Index at = current_[v];
        const Residual::Arc arc = graph_.arc(at);
        const Index head = arc.head;
        if (excess_[head] >= 0 && !find_admissible_arc(head)) {
            // It would have to return the units: raise its price first (look-ahead).
            relabel(head);
            if (reduced(arc, v) >= 0) {
                continue;
            }
        }
        const Number amount = std::min(excess_[v], graph_.left(arc.id));
        graph_.send(v, at, amount);
        excess_[v] -= amount;
        excess_[head] += amount;
        if (excess_[head] > 0) {
            queue_.put(head);
        }
    }
    return true;
}

// Advances v's current arc to the next admissible one, if there is one.
template <class Price>
bool CostScaling<Price>::find_admissible_arc(Index v) {
    const Price price = price_[v];
    const Index end = graph_.live_end(v);
    for (Index at = current_[v]; at < end; ++at) {
        const Residual::Arc& arc = graph_.arc(at);
        if (arc.cost + price_[arc.head] < price) {
            current_[v] = at;
            return true;
        }
    }
    current_[v] = end;
    return false;
}

// Raises the price of v, which has no admissible arc, as far as epsilon allows.
template <class Price>
void CostScaling<Price>::relabel(Index v) {
    ++relabels_;
    ++effort_;
    const Index first = graph_.first(v), end = graph_.live_end(v);
    if (first == end) {  // a dead end: a price so high that no arc into it is admissible
        set(v, price_[v] + Price{largest_} * scale_ + epsilon_);
        return;
    }
    Price best = 2 * kLargest;
    Index best_at = first;
    for (Index at = first; at < end; ++at) {
        const Residual::Arc& arc = graph_.arc(at);
        const Price price = arc.cost + price_[arc.head];
        if (price < best) {
            best = price;
            best_at = at;
        }
    }
    graph_.move_to_front(v, best_at);
    current_[v] = first;
    set(v, best + epsilon_);
}

template <class Price>
void CostScaling<Price>::set(Index v, Price price) {
    if (price >= kLargest || price <= -kLargest) {
        throw PriceTooLarge{};
    }
    price_[v] = price;
}

// ---------------------------------------------------------------- global price updates

// Raises each price by epsilon times a lower bound on the number of relabels between the vertex and
// a deficit, so that most vertices need not be relabelled step by step. False when no path leads
// from a vertex with excess to any deficit.
template <class Price>
bool CostScaling<Price>::update_prices_globally() {
    relabels_ = 0;
    const auto ranks = static_cast<Index>(
        std::min({std::int64_t{kRanks} * vertices_, (std::int64_t{1} << 60) / epsilon_,
                  std::int64_t{std::numeric_limits<Index>::max()}}));
    const Price far = Price{epsilon_} * ranks;
    buckets_.reset(ranks);
    Index active = 0;
    for (Index v = 0; v < vertices_; ++v) {
        if (excess_[v] < 0) {
            buckets_.put(v, 0);
        } else if (excess_[v] > 0) {
            ++active;
        }
    }
    Index rank = 0;
    while (active > 0 && rank < ranks) {
        const Index v = buckets_.take(rank);
        if (v == Buckets::kNone) {
            ++rank;
            continue;
        }
        scan_arcs_into(v, rank, far);
        set(v, price_[v] + Price{epsilon_} * rank);
        current_[v] = graph_.first(v);
        if (excess_[v] > 0) {
            --active;
        }
    }
    if (active > 0 && !all_reach_a_deficit()) {
        return false;
    }
    for (Index v = 0; v < vertices_; ++v) {
        if (buckets_.rank(v) >= 0) {
            set(v, price_[v] + Price{epsilon_} * rank);
            current_[v] = graph_.first(v);
        }
    }
    return true;
}

// Queues the vertices with live arcs to v, which leaves the buckets at `rank`.
template <class Price>
void CostScaling<Price>::scan_arcs_into(Index v, Index rank, Price far) {
    const int shift = std::countr_zero(static_cast<std::uint64_t>(epsilon_));
    const Price price = price_[v];
    for (const Residual::Arc& arc : graph_.all(v)) {
        if (!arc.reversible || buckets_.rank(arc.head) <= rank) {
            continue;
        }
        const Price reduced_cost = price - arc.cost - price_[arc.head];
        if (reduced_cost >= far) {
            continue;
        }
        const Index behind =
            reduced_cost < 0 ? 0 : 1 + static_cast<Index>(reduced_cost >> shift);
        if (behind < buckets_.rank(arc.head) - rank) {
            buckets_.put(arc.head, rank + behind);
        }
    }
}

template <class Price>
bool CostScaling<Price>::all_reach_a_deficit() {
    std::vector<char> reached(vertices_, 0);
    std::vector<Index> stack;
    const auto reach = [&](Index v) {
        if (!reached[v]) {
            reached[v] = 1;
            stack.push_back(v);
        }
    };
    for (Index v = 0; v < vertices_; ++v) {
        if (excess_[v] < 0) {
            reach(v);
        }
    }
    while (!stack.empty()) {
        const Index v = stack.back();
        stack.pop_back();
        for (const Residual::Arc& arc : graph_.all(v)) {
            if (arc.reversible) {
                reach(arc.head);
            }
        }
    }
    for (Index v = 0; v < vertices_; ++v) {
        if (excess_[v] > 0 && !reached[v]) {
            return false;
        }
    }
    return true;
}

// ---------------------------------------------------------------- price refinement

// Lowers prices until every live arc's reduced cost is at least 0, which proves the flow optimal.
// False, with prices unchanged, after `most_steps`: the flow may not be optimal.
template <class Price>
bool CostScaling<Price>::refine_prices(std::int64_t most_steps) {
    kept_price_ = price_;
    queue_.clear();
    for (Index v = 0; v < vertices_; ++v) {
        Price best = price_[v];
        for (const Residual::Arc& arc : graph_.live(v)) {
            best = std::min(best, arc.cost + price_[arc.head]);
        }
        if (best < price_[v]) {
            set(v, best);
            queue_.put(v);
        }
    }
    if (lower_by_bellman_ford(most_steps)) {
        return true;
    }
    price_.swap(kept_price_);
    return false;
}

// Bellman and Ford's algorithm from the vertices in the queue, whose prices have fallen.
template <class Price>
bool CostScaling<Price>::lower_by_bellman_ford(std::int64_t most_steps) {
    for (std::int64_t step = 0; !queue_.empty(); ++step) {
        if (step == most_steps) {
            return false;
        }
        const Index v = queue_.take();
        const Price price = price_[v];
        for (const Residual::Arc& arc : graph_.all(v)) {
            const Price through = price - arc.cost;
            if (through < price_[arc.head] && arc.reversible) {
                set(arc.head, through);
                queue_.put(arc.head);
            }
        }
    }
    return true;
}

template class CostScaling<Number>;
template class CostScaling<Wide>;

}  // namespace headgate::flow
