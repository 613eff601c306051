// A bucket queue: vertices by integer rank, for a search by distance (Dial).
#pragma once

#include <vector>

#include "network.hpp"

namespace headgate::flow {

// Vertices are in one bucket per rank, doubly linked so that one can change its bucket. The ranks
// of those that leave never decrease.
class Buckets {
   public:
    static constexpr Index kNone = -1;

    explicit Buckets(Index vertices) : rank_(vertices), next_(vertices), previous_(vertices) {}

    // Empties the queue for ranks below `ranks`; all vertices are outside, at rank `ranks`.
    void reset(Index ranks) {
        first_.assign(ranks, kNone);
        rank_.assign(rank_.size(), ranks);
    }

    // Negative: it has left.
    Index rank(Index v) const { return rank_[v]; }

    void put(Index v, Index rank) {
        if (rank_[v] < static_cast<Index>(first_.size())) {
            unlink(v);
        }
        Index& first = first_[rank];
        rank_[v] = rank;
        next_[v] = first;
        previous_[v] = kNone;
        if (first != kNone) {
            previous_[first] = v;
        }
        first = v;
    }

    // Removes and returns the vertex last put into a bucket, or kNone.
    Index take(Index rank) {
        const Index v = first_[rank];
        if (v != kNone) {
            unlink(v);
            rank_[v] = kNone;
        }
        return v;
    }

   private:
    void unlink(Index v) {
        if (previous_[v] == kNone) {
            first_[rank_[v]] = next_[v];
        } else {
            next_[previous_[v]] = next_[v];
        }
        if (next_[v] != kNone) {
            previous_[next_[v]] = previous_[v];
        }
    }

    std::vector<Index> first_;  // by rank
    std::vector<Index> rank_, next_, previous_;
};

}  // namespace headgate::flow
