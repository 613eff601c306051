// The residual network: arcs with residual capacity, in both directions.
#pragma once

#include <cassert>
#include <span>
#include <utility>
#include <vector>

#include "network.hpp"

namespace headgate::flow {

// Every arc of the network is stored twice, forward and in reverse; the ids of the pair are 2a and
// 2a + 1. The arcs that leave a vertex are consecutive, and those with residual capacity (live
// arcs) come first: a scan of the arcs out of a vertex never reads a saturated one. In scheduling
// networks many arcs lead into saturated vertices and few reverse arcs are live, so this pays off.
class Residual {
   public:
    struct Arc {
        Number cost;
        Index head;
        std::uint32_t id : 31;
        std::uint32_t reversible : 1;  // whether its pair has residual capacity
    };

    // Costs are multiplied by `scale`. Arcs from a vertex to itself are never live.
    Residual(const Network& network, Number scale)
        : ranges_(network.supply.size()),
          arcs_(2 * network.tail.size()),
          position_(arcs_.size()),
          left_(arcs_.size(), 0) {
        const Index count = network.arcs();
        for (Index a = 0; a < count; ++a) {
            ++ranges_[network.tail[a]].end;
            ++ranges_[network.head[a]].end;
        }
        std::vector<Index> back(ranges_.size());  // saturated arcs fill a range from its end
        Index next = 0;
        for (std::size_t v = 0; v < ranges_.size(); ++v) {
            const Index degree = ranges_[v].end;
            ranges_[v] = {next, next, next + degree};
            back[v] = next += degree;
        }
        for (Index a = 0; a < count; ++a) {
            const std::uint32_t id = 2u * static_cast<std::uint32_t>(a);
            const auto tail = static_cast<Index>(network.tail[a]);
            const auto head = static_cast<Index>(network.head[a]);
            left_[id] = tail == head ? 0 : network.capacity[a];
            place(left_[id] > 0 ? ranges_[tail].live++ : --back[tail],
                  {network.cost[a] * scale, head, id & kIds, 0});
            place(--back[head],
                  {-network.cost[a] * scale, tail, (id + 1) & kIds, left_[id] > 0});
        }
    }

    Index vertices() const { return static_cast<Index>(ranges_.size()); }
    const Arc& arc(Index position) const { return arcs_[position]; }
    Index first(Index v) const { return ranges_[v].first; }
    Index live_end(Index v) const { return ranges_[v].live; }
    Index end(Index v) const { return ranges_[v].end; }
    std::span<const Arc> all(Index v) const {
        return {arcs_.data() + first(v), arcs_.data() + end(v)};
    }
    std::span<const Arc> live(Index v) const {
        return {arcs_.data() + first(v), arcs_.data() + live_end(v)};
    }

    // The residual capacity of an arc.
    Number left(std::uint32_t id) const { return left_[id]; }
    Number flow(Index a) const { return left_[2 * a + 1]; }

    // Sends along the arc at `position`, which leaves v. If that saturates it, the last live arc of
    // v takes its position; positions before it keep their arcs.
    void send(Index v, Index position, Number amount) {
        const std::uint32_t id = arcs_[position].id, pair = id ^ 1;
        const Index head = arcs_[position].head;
        assert(first(v) <= position && position < live_end(v));
        assert(0 < amount && amount <= left_[id]);
        if (left_[pair] == 0) {
            arcs_[position].reversible = 1;
            swap(position_[pair], ranges_[head].live++);
        }
        left_[pair] += amount;
        if ((left_[id] -= amount) == 0) {
            arcs_[position_[pair]].reversible = 0;
            swap(position, --ranges_[v].live);
        }
    }

    // Swaps the live arc of v at `position` with its first.
    void move_to_front(Index v, Index position) { swap(first(v), position); }

   private:
    static constexpr std::uint32_t kIds = (1u << 31) - 1;

    struct Range {
        Index first = 0, live = 0, end = 0;
    };

    void place(Index position, const Arc& arc) {
        arcs_[position] = arc;
        position_[arc.id] = position;
    }

    void swap(Index one, Index other) {
        std::swap(arcs_[one], arcs_[other]);
        position_[arcs_[one].id] = one;
        position_[arcs_[other].id] = other;
    }

    std::vector<Range> ranges_;
    std::vector<Arc> arcs_;
    std::vector<Index> position_;  // by id
    std::vector<Number> left_;     // by id
};

}  // namespace headgate::flow
