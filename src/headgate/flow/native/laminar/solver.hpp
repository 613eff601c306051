// Min-cost assignment of units to a laminar family of capacities, re-optimized after changes.
//
// Successive shortest augmenting paths over zones (zones.hpp, search.hpp), bidirectional
// (backward.hpp). Source: Ford and Fulkerson's successive shortest paths with potentials; the
// contraction of a laminar family to its full places, and deficits that keep dual prices feasible,
// are Headgate's own.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "forest.hpp"
#include "free_moves.hpp"
#include "leaves.hpp"
#include "search.hpp"
#include "units.hpp"
#include "zones.hpp"

namespace headgate::flow::laminar {

using Numbers = std::span<const std::int64_t>;

struct Outcome {
    Cost cost = 0;              // of the options taken
    std::int64_t unplaced = 0;  // units without a place
    Cost gap = 0;               // an upper bound on the plan's cost above the optimum
    std::int64_t options_read = 0;  // the work done: the same on any machine
};

class Solver {
public:
    Solver(Numbers parent, Numbers capacity);
    // A copy takes the same decisions as the original. Each part's `Data` is what it copies of it;
    // references lead to its own parts.
    Solver(const Solver& other);
    Solver& operator=(const Solver&) = delete;

    // All of these check their input first; they throw BadInput and then change nothing.
    std::vector<std::int64_t> add(Numbers offsets, Numbers place, Numbers cost);
    void remove(Numbers units);
    void replace(Numbers units, Numbers offsets, Numbers place, Numbers cost);
    void reprice(std::int64_t place, Numbers units, Numbers cost);
    void reprice_all(Numbers place, Numbers cost);
    std::vector<std::int64_t> add_places(Numbers parent, Numbers capacity);
    void set_capacity(Numbers place, Numbers capacity);

    Outcome solve(std::optional<double> budget_s);

    // By the caller's numbers of places; -1 for none.
    std::vector<std::int64_t> place_of(Numbers units) const;
    std::vector<std::int64_t> leaf_of(Numbers units) const;
    std::vector<std::int64_t> cost_of(Numbers units) const;
    std::vector<std::int64_t> prices();
    // Units whose place or leaf may have changed since the last call.
    std::vector<std::int64_t> moved() { return leaves_.moved(); }

    void check() { zones_.check(); }

private:
    using Clock = std::chrono::steady_clock;

    void check_units(Numbers units) const;
    void check_each_once(Numbers units) const;
    void check_options(Numbers offsets, Numbers place, Numbers cost) const;
    void note_costs(Numbers cost);
    void check_cost(std::int64_t option, Cost cost) const;
    void check_place(std::int64_t place) const;
    void check_reprice(std::int64_t place, Numbers units, Numbers cost) const;
    void check_leaves(Numbers place, Numbers values, const char* what) const;
    void check_places(Numbers parent, Numbers capacity) const;
    bool is_placed(Unit t) const;
    template <class Of>
    std::vector<std::int64_t> read(Numbers ids, Of of) const;

    void postpone(Unit t);
    void leave(Unit t);
    void change_costs(Place v, Numbers units, Numbers cost);
    void own_cost_changed(Unit t, Cost cost);
    void option_cost_changed(Unit t, Place v, Cost cost);
    void raise_capacity(Place leaf, Count by);
    void cut_capacity(Place leaf, Count by);
    void widen_outside();
    void start_over();
    bool place_if_free(Unit t);
    void put_where_room_is(Unit t, const Option& option);
    bool place_all();
    std::int64_t first_budget() const;
    std::pair<std::int64_t, std::int64_t> place_together();
    std::int64_t options_read() const {
        return search_.options_read() + free_moves_.options_read();
    }
    bool fill_deficits();
    void place_greedily();
    void undo_greedy();
    Cost gap() const;
    bool is_out_of_time() const { return deadline_ && Clock::now() >= *deadline_; }

    std::vector<std::int64_t> parent_;  // the caller's numbers
    Forest forest_;
    Units units_;
    Zones zones_;
    Search search_;
    FreeMoves free_moves_;
    Leaves leaves_;
    std::vector<Unit> pending_;  // units to be placed; removed ones are skipped
    std::vector<Unit> greedy_;  // units placed after the deadline, where there was room
    Cost largest_cost_ = 0;
    std::int64_t heap_pushes_ = 0;  // by `reprice`, since the heaps were last rebuilt
    std::optional<Clock::time_point> deadline_;
};

}  // namespace headgate::flow::laminar
