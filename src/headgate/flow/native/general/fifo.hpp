// A first-in, first-out queue of vertices, each at most once.
#pragma once

#include <vector>

#include "network.hpp"

namespace headgate::flow {

class Fifo {
   public:
    explicit Fifo(Index vertices) : ring_(vertices + 1), waits_(vertices, 0) {}

    bool empty() const { return head_ == end_; }

    void put(Index v) {
        if (!waits_[v]) {
            waits_[v] = 1;
            ring_[end_] = v;
            step(end_);
        }
    }

    Index take() {
        const Index v = ring_[head_];
        step(head_);
        waits_[v] = 0;
        return v;
    }

    void clear() {
        while (!empty()) {
            take();
        }
    }

   private:
    void step(std::size_t& at) const {
        if (++at == ring_.size()) {
            at = 0;
        }
    }

    std::vector<Index> ring_;
    std::vector<char> waits_;
    std::size_t head_ = 0, end_ = 0;
};

}  // namespace headgate::flow
