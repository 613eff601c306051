// Min-cost flow by cost scaling: push-relabel phases with decreasing epsilon.
#pragma once

#include <vector>

#include "buckets.hpp"
#include "fifo.hpp"
#include "network.hpp"
#include "residual.hpp"

namespace headgate::flow {

// A price has exceeded its type: solve again with a wider one.
struct PriceTooLarge {};

// Goldberg and Tarjan's method (Finding minimum-cost circulations by successive approximation,
// 1990), with heuristics of Goldberg's (An efficient implementation of a scaling minimum-cost flow
// algorithm, 1997) and two more: epsilon rises first, and optimal flows are detected early.
//
// A flow is epsilon-optimal when no live arc has a reduced cost below -epsilon. A phase (`refine`)
// saturates all live arcs of negative reduced cost, which leaves vertices with excess and deficit,
// and discharges the excess, epsilon-optimal. With costs multiplied by more than
// the number of vertices, 1-optimal is optimal. Three heuristics make it fast:
//
// * Epsilon starts small and rises while the first phase does not end: where capacity is plentiful,
//   one phase with fine prices finds the optimum; where it is scarce, prices must change a lot, and
//   take large steps only then.
// * Price refinement after a phase (`refine_prices`). If that makes every live arc's reduced cost
//   at least 0, the flow is optimal long before epsilon is 1.
// * Global price updates (`update_prices_globally`).
//
// `Price` is an integer type; PriceTooLarge is thrown before one could overflow.
template <class Price>
class CostScaling {
   public:
    // `supply` is what enters at each vertex; `largest` is the network's largest absolute cost and
    // `scale`, by which those of `graph` were multiplied, more than its number of vertices.
    CostScaling(Residual& graph, std::vector<Number> supply, Number largest, Number scale);

    // Sends all supplies at least cost; false when that is infeasible.
    bool run();

    // Potentials in the network's costs. Only after `run` has returned true.
    std::vector<Number> potentials();

   private:
    // Sums of two prices and a cost stay inside the type.
    static constexpr Price kLargest = Price{1} << (8 * sizeof(Price) - 3);

    bool refine();
    void saturate_negative_arcs();
    bool discharge(Index v);
    void relabel(Index v);
    bool find_admissible_arc(Index v);
    bool update_prices_globally();
    void scan_arcs_into(Index v, Index rank, Price far);
    bool all_reach_a_deficit();
    bool refine_prices(std::int64_t most_steps);
    bool lower_by_bellman_ford(std::int64_t most_steps);
    void set(Index v, Price price);

    // Whether epsilon should rise; only during the first phase.
    bool too_fine() const {
        return rising_ && epsilon_ < highest_epsilon_ && effort_ >= vertices_ / 2;
    }
    bool global_update_is_needed() const { return relabels_ >= 2 * std::int64_t{vertices_}; }

    Price reduced(const Residual::Arc& arc, Index tail) const {
        return arc.cost + price_[arc.head] - price_[tail];
    }

    Residual& graph_;
    Index vertices_;
    Number largest_, scale_;
    Number epsilon_, highest_epsilon_;
    bool rising_ = true;
    std::int64_t relabels_ = 0;  // since the last global price update
    std::int64_t effort_ = 0;    // relabels since epsilon last changed
    std::vector<Price> price_, kept_price_;
    std::vector<Number> excess_;
    std::vector<Index> current_;  // the current arc: none before it is admissible
    Fifo queue_;
    Buckets buckets_;
};

}  // namespace headgate::flow
