// Min-cost flow by cost scaling: push-relabel steps at ever finer prices.
#pragma once

#include <vector>

#include "buckets.hpp"
#include "fifo.hpp"
#include "network.hpp"
#include "residual.hpp"

namespace headgate::flow {

// A price grew beyond its type: solve again with a wider one.
struct PriceTooLarge {};

// Goldberg and Tarjan's method (Finding minimum-cost circulations by successive approximation,
// 1990), with heuristics of Goldberg's (An efficient implementation of a scaling minimum-cost flow
// algorithm, 1997) and two more: epsilon rises first, and flows are found optimal early.
//
// A flow is epsilon-optimal when no live arc has a reduced cost below -epsilon. A phase (`refine`)
// sends units along all live arcs of negative reduced cost, which leaves vertices with too much and
// too little, and brings all back into balance, epsilon-optimal. With costs multiplied by more than
// the number of vertices, 1-optimal is optimal. Three things make it fast:
//
// * Epsilon starts small and rises while the first phase does not come to its end: where capacity
//   is plenty, one phase at fine prices finds the optimum; where it is scarce, prices must go a
//   long way, and take large steps only then.
// * After a phase, prices alone are mended (`settle`). If that makes every live arc's reduced cost
//   at least 0, the flow is optimal long before epsilon is 1.
// * From time to time all prices rise as far as they can at once (`raise_all`).
//
// `Price` is an integer type; PriceTooLarge is thrown before one could overflow.
template <class Price>
class CostScaling {
   public:
    // `supply` is what enters at each vertex; `largest` is the network's largest absolute cost and
    // `scale`, by which those of `graph` were multiplied, more than its number of vertices.
    CostScaling(Residual& graph, std::vector<Number> supply, Number largest, Number scale);

    // Send all supplies at least cost; false when that is not possible.
    bool run();

    // Potentials in the network's costs. Only after `run` has returned true.
    std::vector<Number> potentials();

   private:
    // Sums of two prices and a cost stay inside the type.
    static constexpr Price kLargest = Price{1} << (8 * sizeof(Price) - 3);

    bool refine();
    void send_all_that_saves();
    bool discharge(Index v);
    void relabel(Index v);
    bool find_way(Index v);
    bool raise_all();
    void reach_back(Index v, Index rank, Price far);
    bool all_reach_a_deficit();
    bool settle(std::int64_t most_steps);
    bool lower_behind(std::int64_t most_steps);
    void set(Index v, Price price);

    // Epsilon rises, until the first phase has ended.
    bool too_fine() const {
        return rising_ && epsilon_ < highest_epsilon_ && effort_ >= vertices_ / 2;
    }
    bool raising_is_due() const { return relabels_ >= 2 * std::int64_t{vertices_}; }

    Price reduced(const Residual::Arc& arc, Index tail) const {
        return arc.cost + price_[arc.head] - price_[tail];
    }

    Residual& graph_;
    Index vertices_;
    Number largest_, scale_;
    Number epsilon_, highest_epsilon_;
    bool rising_ = true;
    std::int64_t relabels_ = 0;  // since prices were last raised all at once
    std::int64_t effort_ = 0;    // relabels since epsilon last changed
    std::vector<Price> price_, kept_price_;
    std::vector<Number> excess_;
    std::vector<Index> current_;  // no arc before it has a negative reduced cost
    Fifo queue_;
    Buckets buckets_;
};

}  // namespace headgate::flow
