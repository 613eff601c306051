// The leaf where each unit is: that of its option, or any with capacity left below its place.
//
// Kept from round to round: only units that moved, and those whom others push aside, get new
// leaves. A unit whose place is no leaf (a guest) finds a leaf below it with room, or takes that of
// a guest whose place lies further up; that one always finds another, since no place holds too
// many.
#pragma once

#include <vector>

#include "zones.hpp"

namespace headgate::flow::laminar {

class Leaves {
public:
    explicit Leaves(Zones& zones);

    // Follows the units that moved, and leaves whose capacity was cut. O(moves x depth), more where
    // leaves are nearly full.
    void update();
    void capacity_changed(Place leaf) { changed_.push_back(leaf); }
    void renumber(const std::vector<Place>& now);
    // Whose leaf or place may be another one since this was last asked; not those removed since.
    std::vector<std::int64_t> moved();

    Place leaf_of(Unit t) const {
        return static_cast<std::size_t>(t) < leaf_.size() ? leaf_[t] : kNowhere;
    }

private:
    void seat(Unit t, Place leaf);
    void rise(Unit t);
    void seat_guest(Unit t);
    void settle(Place leaf);
    void mark(Place leaf);
    Place leaf_with_room(Place place) const;
    Place leaf_with_guest_from_above(Place place) const;
    void tell(Unit t);
    bool is_guest(Unit t) const { return zones_.units[t].at != leaf_[t]; }

    Zones& zones_;
    std::vector<Place> leaf_;             // by unit; kNowhere for none
    std::vector<Count> load_;             // by leaf
    std::vector<std::vector<Unit>> guests_;  // by leaf
    std::vector<std::uint64_t> room_;     // a bit for each leaf with capacity left
    std::vector<Place> changed_;
    std::vector<Unit> waiting_;           // guests without a leaf
    std::vector<Unit> told_;              // who has moved, for `moved`
    std::vector<std::uint8_t> is_told_;   // by unit
};

}  // namespace headgate::flow::laminar
