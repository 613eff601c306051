// Placing many units along augmenting paths of reduced cost 0 (the admissible network), each a
// shortest path to room, with distance labels that persist from path to path.
//
// Where many moves are free (of reduced cost 0), as after the first estimate of prices, a search
// per unit would read the same zones again and again. A zone's label is a lower bound on the number
// of free moves from it to room; it grows when no free move leads to a lower label.
//
// Source: Ahuja and Orlin, Distance-directed augmenting path algorithms for maximum flow, Naval
// Research Logistics 38 (1991). Deviates in that zones merge and split while units move, so that
// labels are approximate: some units may remain for which an augmenting path exists.
#pragma once

#include <limits>
#include <vector>

#include "moves.hpp"
#include "zones.hpp"

namespace headgate::flow::laminar {

class FreeMovesData {
protected:
    using Label = std::int32_t;
    static constexpr Label kNever = std::numeric_limits<Label>::max();

    // A free move: of a unit to one of its options; or (kNowhere) into a zone within the zone.
    struct Move {
        Unit unit = kNowhere;
        Place place = kNowhere;  // of the option
        Cost cost = 0;           // of the option
        Place zone = kNowhere;   // to which it leads
    };
    // The free moves out of a wide zone, found when it is first reached.
    struct Wide {
        std::vector<Unit> units;
        std::vector<Place> within;
        bool known = false;
    };

    std::vector<Label> label_;         // by zone
    std::vector<std::uint32_t> next_;  // by zone: units before it have no move to a lower label
    Label most_ = 0;                   // zones with higher labels reach no room
    Label nearest_ = 0;                // the lowest label to which a zone's moves lead
    Cost floor_ = 0;                   // no place below a root has a lower price
    std::vector<Place> order_;         // in which zones got their labels
    std::vector<Wide> wide_;           // by zone
    std::vector<Place> wide_known_;
    std::vector<Move> path_;           // from the unit's own option on
    std::int64_t read_ = 0;
};

class FreeMoves : FreeMovesData {
public:
    explicit FreeMoves(Zones& zones) : zones_(zones), moves_(zones) {}
    FreeMoves(const FreeMoves& other, Zones& zones)
        : FreeMovesData(other), zones_(zones), moves_(zones) {}

    // Computes from which zones free moves lead to room.
    void label_zones();
    // Whether they lead to room from this zone, as of `label_zones`.
    bool lead_from(Place zone) const { return label_[zone] <= most_; }

    // Places the units for which free moves make room and removes them from the list; the others
    // keep their order. No price changes. Zones must have been labelled; since then prices
    // may only have risen where no free moves led to room.
    void place(std::vector<Unit>& units);

    std::int64_t options_read() const { return read_; }

private:
    bool place_one(Unit t);
    bool find_path(Place zone);
    bool next_move(Place zone, Move& move);
    bool lower(Place zone, const Move& move, Move& found);
    bool move_of(Unit t, Place zone, Move& found);
    bool move_within(Place around, Place zone, Move& found);
    bool next_of(const std::vector<Unit>& units, std::uint32_t& next, Place zone, Move& found);
    bool next_of_narrow(Place zone, Move& found);
    bool next_of_wide(Place zone, Move& found);
    void find_wide(Place zone, Wide& wide);
    void restore_heaps();
    void apply(Place end);

    Zones& zones_;
    Moves moves_;
};

}  // namespace headgate::flow::laminar
