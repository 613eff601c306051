// The cheapest way to make room: Dijkstra's algorithm over zones, never over units.
//
// A unit that comes to a full zone pushes another one out, which goes to an option of its own, and
// so on, until a hole takes the last one, or a root with capacity left. Lengths are costs with
// prices, never negative. From one zone to another leads the move of any unit of it; from a zone to
// one within it a way of length price - price, since whoever leaves that one leaves room in both.
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

class Search {
public:
    explicit Search(Zones& zones);

    // Places a unit, if need be at the sink in place of whoever is dearest.
    void place(Unit t);
    // Raises prices where units want to go from which no free move leads to room, until `enough`
    // units would rather go where one does; returns those who must leave their places for that.
    std::vector<Unit> raise(std::span<const Unit> units, const FreeMoves& free_moves,
                            std::size_t enough);
    // Fills a hole, or gives its capacity back if that is cheapest: this one, or another one.
    void fill(Place hole);

    void resize();  // the forest has changed
    // To be told before a round of searches.
    void begin_round();

    std::int64_t options_read() const { return read_ + backward_.options_read(); }

private:
    enum Kind : std::int32_t { kZone = 0, kUnits = 1, kZones = 2 };

    // How the search came to a zone: by a unit's option, or (kNowhere) from a zone around.
    struct Arrival {
        Unit unit;
        std::int32_t option;
        Place from;
        std::uint32_t way = 0;  // the search whose way leads through here
    };
    struct Pulled {
        Unit unit;
        Cost key;
    };

    bool is_scarce(Place v) const;
    void set_out(Unit t);
    void fill_nearest();
    void next_round();
    void begin(Cost radius, bool from_sink);
    bool run();
    void step();
    void fetch_next() const;
    void start_backward();
    bool backward_is_due() const;
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
    void restore_keys();
    void change_prices();
    void cut_circles();
    Place after(Place zone) const;
    void apply();

    Zones& zones_;
    Backward backward_;
    Moves moves_;
    std::vector<Arrival> arrival_;
    Heap queue_;  // key: distance; what: 4 x rank + Kind
    std::uint32_t round_ = 0;
    bool from_sink_ = false;
    const FreeMoves* free_moves_ = nullptr;  // while `raise` is under way
    std::vector<Unit> ends_;  // then: who could go where free moves lead to room
    bool both_ways_ = false;  // whether `backward_` is under way
    bool scarce_ = false;     // whether prices may be such that units are better off nowhere
    Cost typical_ = 0;        // a running mean of how far searches go
    Cost bound_ = 0;          // no way is longer than this: the shortest known, or the radius
    Cost at_ = 0;             // how far we have come
    Cost floor_ = 0;          // no place below a root has a lower price
    Cost outside_ = 0;        // cost and price of a place at the sink itself
    Place goal_ = kNowhere;   // where that way ends, or where both searches met
    bool met_ = false;        // which of both
    std::size_t rotation_ = 0;
    std::int64_t read_ = 0, began_ = 0, back_began_ = 0;
    std::size_t expanded_ = 0;  // so many zones have been
    std::vector<Place> reached_, read_zones_;
    std::vector<Step> steps_;
    std::vector<Pulled> pulled_;
    std::vector<Unit> due_;  // in the zone that is read
};

}  // namespace headgate::flow::laminar
