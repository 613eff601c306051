#include "forest.hpp"

#include <algorithm>
#include <string>

#include "errors.hpp"

namespace headgate::flow::laminar {

Forest::Forest(std::span<const std::int64_t> parent) {
    const auto places = static_cast<std::int64_t>(parent.size());
    std::vector<std::int64_t> first(places + 1, -1), next(places, -1);  // children; roots last
    for (std::int64_t v = places - 1; v >= 0; --v) {
        const auto above = parent[v] < 0 ? places : parent[v];
        next[v] = first[above];
        first[above] = v;
    }
    inner_.assign(places, kNowhere);
    outer_.reserve(places);
    parent_.reserve(places);
    end_.assign(places, 0);
    auto open = [&](std::int64_t v) {
        inner_[v] = static_cast<Place>(outer_.size());
        outer_.push_back(v);
        parent_.push_back(parent[v] < 0 ? kNowhere : inner_[parent[v]]);
    };
    std::vector<std::int64_t> path;  // from a root to the current place
    for (auto root = first[places]; root >= 0; root = next[root]) {
        open(root);
        path.assign(1, root);
        while (!path.empty()) {
            auto& child = first[path.back()];
            if (child < 0) {
                end_[inner_[path.back()]] = static_cast<Place>(outer_.size());
                path.pop_back();
                continue;
            }
            const auto v = child;
            child = next[v];
            open(v);
            path.push_back(v);
        }
        roots_.push_back(inner_[root]);
        if (!is_leaf(inner_[root])) trees_.push_back(inner_[root]);
    }
    if (static_cast<std::int64_t>(outer_.size()) < places) {
        std::int64_t v = 0;
        while (inner_[v] != kNowhere) ++v;
        throw BadInput("place " + std::to_string(v) + " lies below itself");
    }
    order();
}

void Forest::order() {
    of_rank_.resize(parent_.size() + 1);
    for (Place v = 0; v <= sink(); ++v) of_rank_[v] = v;
    auto kind = [&](Place v) {
        if (v == sink()) return 0;
        if (is_pool(v)) return 1;
        if (is_wide(v)) return 2;
        return is_leaf(v) ? 4 : 3;
    };
    std::stable_sort(of_rank_.begin(), of_rank_.end(),
                     [&](Place a, Place b) { return kind(a) < kind(b); });
    rank_.resize(of_rank_.size());
    for (Place r = 0; r <= sink(); ++r) rank_[of_rank_[r]] = r;
}

}  // namespace headgate::flow::laminar
