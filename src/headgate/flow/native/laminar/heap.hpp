// A binary heap of (key, number) pairs, least key first, of equal keys the largest number first:
// the same order everywhere.
#pragma once

#include <algorithm>
#include <vector>

#include "types.hpp"

namespace headgate::flow::laminar {

struct Entry {
    Cost key;
    std::int32_t what;

    bool operator>(const Entry& other) const {
        return key != other.key ? key > other.key : what < other.what;
    }
};

class Heap {
public:
    bool empty() const { return entries_.empty(); }
    const Entry& top() const { return entries_.front(); }
    void clear() { entries_.clear(); }

    void push(Cost key, std::int32_t what) {
        entries_.push_back({key, what});
        std::push_heap(entries_.begin(), entries_.end(), std::greater<>{});
    }

    void pop() {
        std::pop_heap(entries_.begin(), entries_.end(), std::greater<>{});
        entries_.pop_back();
    }

    // Builds the heap in O(n) rather than O(n log n).
    void assign(std::vector<Entry>&& entries) {
        entries_ = std::move(entries);
        std::make_heap(entries_.begin(), entries_.end(), std::greater<>{});
    }

private:
    std::vector<Entry> entries_;
};

}  // namespace headgate::flow::laminar
