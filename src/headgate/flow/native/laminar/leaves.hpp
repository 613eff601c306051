// The leaf where each unit is: that of its option, or any with capacity left below its place.
//
// Kept from round to round: only units that moved, and guests displaced by others, get new leaves.
// A unit whose place is not a leaf (a guest) takes a leaf below it with room, or that of a guest
// whose place is further up; that one always finds another leaf, since no place exceeds its
// capacity.
#pragma once

#include <vector>

#include "zones.hpp"

namespace headgate::flow::laminar {

class LeavesData {
protected:
    std::vector<Place> leaf_;             // by unit; kNowhere for none
    std::vector<Count> load_;             // by leaf
    std::vector<std::vector<Unit>> guests_;  // by leaf
    std::vector<std::uint64_t> room_;     // a bit for each leaf with capacity left
    std::vector<Place> changed_;
    std::vector<Unit> waiting_;           // guests without a leaf
    std::vector<Unit> moved_;             // since the last call of `moved`
    std::vector<std::uint8_t> has_moved_; // by unit
};

class Leaves : LeavesData {
public:
    explicit Leaves(Zones& zones);
    Leaves(const Leaves& other, Zones& zones) : LeavesData(other), zones_(zones) {}

    // Follows the units that moved, and leaves whose capacity was cut. O(moves x depth), more where
    // leaves are nearly full.
    void update();
    void capacity_changed(Place leaf) { changed_.push_back(leaf); }
    void renumber(const std::vector<Place>& now);
    // Returns the units whose leaf or place may have changed since the last call, without those
    // removed since.
    std::vector<std::int64_t> moved();

    Place leaf_of(Unit t) const {
        return static_cast<std::size_t>(t) < leaf_.size() ? leaf_[t] : kNowhere;
    }

private:
    void seat(Unit t, Place leaf);
    void unseat(Unit t);
    void seat_guest(Unit t);
    void rebalance(Place leaf);
    void mark(Place leaf);
    Place leaf_with_room(Place place) const;
    Place leaf_with_guest_from_above(Place place) const;
    void note_move(Unit t);
    bool is_guest(Unit t) const { return zones_.units[t].at != leaf_[t]; }

    Zones& zones_;
};

}  // namespace headgate::flow::laminar
