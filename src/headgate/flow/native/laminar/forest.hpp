// The forest of places in preorder, so that what lies below a place is a range of numbers.
#pragma once

#include <span>
#include <vector>

#include "types.hpp"

namespace headgate::flow::laminar {

class Forest {
public:
    // `parent[v]` is -1 for a root, else another place. Throws BadInput for cycles.
    explicit Forest(std::span<const std::int64_t> parent);

    Place size() const { return static_cast<Place>(parent_.size()); }
    Place sink() const { return size(); }

    Place parent(Place v) const { return parent_[v]; }  // kNowhere for a root
    Place end(Place v) const { return end_[v]; }        // below v are the places [v, end(v))
    bool is_root(Place v) const { return parent_[v] == kNowhere; }
    bool is_leaf(Place v) const { return end_[v] == v + 1; }
    // Pools are roots without places below; units that wait are placed there.
    bool is_pool(Place v) const { return is_root(v) && is_leaf(v); }
    bool contains(Place v, Place x) const { return v <= x && x < end_[v]; }

    // Places with many places below keep heaps of their units' cheapest moves; the units of others
    // are read when needed.
    bool is_wide(Place v) const { return is_root(v) || end_[v] - v > kWide; }
    // Units with an option at a listed place are in its list, for the backward search.
    bool is_listed(Place v) const { return !is_wide(v) || is_leaf(v); }

    const std::vector<Place>& roots() const { return roots_; }
    const std::vector<Place>& trees() const { return trees_; }  // roots with places below

    // The order in which places of the same distance are searched: by growing size, from the
    // largest rank to the smallest. Large ones lead everywhere and have many units to read.
    Place rank(Place v) const { return rank_[v]; }  // of the sink, too
    Place of_rank(Place rank) const { return of_rank_[rank]; }

    Place inner(std::int64_t outer) const { return inner_[outer]; }
    std::int64_t outer(Place inner) const { return outer_[inner]; }

private:
    static constexpr Place kWide = 256;

    void order();

    std::vector<Place> parent_, end_, inner_, rank_, of_rank_;
    std::vector<std::int64_t> outer_;
    std::vector<Place> roots_, trees_;
};

}  // namespace headgate::flow::laminar
