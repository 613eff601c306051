// The cheapest augmenting path: Dijkstra's algorithm over zones, never over units.
//
// A unit that enters a full zone displaces another one, which moves to an option of its own, and so
// on, until the path ends at a deficit or at a root with capacity left. The length of an arc is its
// reduced cost, never negative. An arc from one zone to another is the move of any of its units; an
// arc from a zone to one within it has the length price - price, since a unit that leaves the inner
// zone leaves room in both.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backward.hpp"
#include "free_moves.hpp"
#include "heap.hpp"
#include "moves.hpp"
#include "zones.hpp"

namespace headgate::flow::laminar {

class SearchData {
protected:
    enum Kind : std::int32_t { kZone = 0, kUnits = 1, kZones = 2 };

    // The arc by which the search reached a zone: a unit's option, or (kNowhere) the zone around
    // it.
    struct Arrival {
        Unit unit;
        std::int32_t option;
        Place from;
        std::uint32_t path = 0;  // the search whose path contains the zone
    };
    struct Pulled {
        Unit unit;
        Cost move_cost;
    };

    std::vector<Arrival> arrival_;
    Heap queue_;  // key: distance; what: 4 x rank + Kind
    std::uint32_t round_ = 0;
    bool from_sink_ = false;
    const FreeMoves* free_moves_ = nullptr;  // during `raise_prices`
    std::vector<Unit> ends_;  // then: units that could move to where free moves lead to room
    bool bidirectional_ = false;  // whether `backward_` is running
    bool scarce_ = false;     // whether prices may exceed the penalty of units without a place
    Cost typical_ = 0;        // a running mean of the lengths of paths
    Cost bound_ = 0;          // no path is longer than this: the shortest known, or the radius
    Cost at_ = 0;             // the current distance
    Cost floor_ = 0;          // no place below a root has a lower price
    Cost outside_ = 0;        // penalty and price of the sink
    Place goal_ = kNowhere;   // where that path ends, or where both searches met
    bool met_ = false;        // whether both searches met
    std::size_t rotation_ = 0;
    std::int64_t read_ = 0, began_ = 0, back_began_ = 0;
    std::size_t expanded_ = 0;  // number of zones
    std::vector<Place> reached_, read_zones_;
    std::vector<Step> steps_;
    std::vector<Pulled> pulled_;
    std::vector<Unit> to_read_;  // units of the zone that is being read
};

class Search : SearchData {
public:
    explicit Search(Zones& zones);
    Search(const Search& other, Zones& zones);

    // Places a unit; where capacity is short, the most expensive unit goes to the sink instead.
    void place(Unit t);
    // Raises the prices of zones that units want and from which no free move leads to room, until
    // `enough` units prefer zones from which one does; returns the units that must leave their
    // places for that.
    std::vector<Unit> raise_prices(std::span<const Unit> units, const FreeMoves& free_moves,
                            std::size_t enough);
    // Fills one deficit, this or another one, or returns its capacity to the sink if that is
    // cheaper.
    void fill(Place deficit);

    void resize();  // after a change of the forest
    // Call before a round of searches.
    void begin_round();

    std::int64_t options_read() const { return read_ + backward_.options_read(); }

private:
    bool is_scarce(Place v) const;
    void start_from_options(Unit t);
    void fill_nearest();
    void next_round();
    void begin(Cost radius, bool from_sink);
    bool run();
    void step();
    void fetch_next() const;
    void start_backward();
    bool backward_is_next() const;
    void step_backward();
    void expand(Place zone);
    void read_units(Place wide_zone);
    void read_zones(Place wide_zone);
    void read_narrow(Place zone);
    Cost read_unit(Unit t, Place zone, Cost base);
    Cost delay(Place zone) const;
    void reach(Place zone, Cost distance, Unit t, std::int32_t option, Place from);
    void push(Cost distance, Place zone, Kind kind) {
        queue_.push(distance, 4 * zones_.forest.rank(zone) + kind);
    }
    void end_at(Place zone, Cost length, bool met);
    void restore_heaps();
    void update_prices();
    void cut_cycles();
    Place after(Place zone) const;
    void apply();

    Zones& zones_;
    Backward backward_;
    Moves moves_;
};

}  // namespace headgate::flow::laminar
