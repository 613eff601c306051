#include "queue_tree.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace headgate::planning {

namespace {

std::invalid_argument no_queue(std::int64_t row) {
    return std::invalid_argument("there is no queue " + std::to_string(row));
}

void check(const QueueColumns& columns, Numbers queue_of_job) {
    const auto queues = columns.parent.size();
    for (const auto size : {columns.weight.size(), columns.guaranteed.size(), columns.most.size(),
                            columns.idle.size()}) {
        if (size != queues) {
            throw std::invalid_argument("parent, weight, guaranteed, most and idle have one value "
                                        "per queue");
        }
    }
    const auto rows = static_cast<std::int64_t>(queues);
    std::vector<bool> has_children(queues);
    for (const auto row : columns.parent) {
        if (row < -1 || row >= rows) throw no_queue(row);
        if (row >= 0) has_children[row] = true;
    }
    for (const auto row : queue_of_job) {
        if (row < 0 || row >= rows) throw no_queue(row);
        if (has_children[row]) {
            throw std::invalid_argument("queue " + std::to_string(row) +
                                        " has both jobs and children");
        }
    }
}

// All rows, each before its parent.
Counts from_the_leaves(Numbers parent) {
    Counts open(parent.size()), order;
    order.reserve(parent.size());
    for (const auto row : parent) {
        if (row >= 0) ++open[row];
    }
    auto row_of = [](std::size_t row) { return static_cast<std::int64_t>(row); };
    for (std::size_t row = 0; row < open.size(); ++row) {
        if (open[row] == 0) order.push_back(row_of(row));
    }
    for (std::size_t next = 0; next < order.size(); ++next) {
        const auto row = parent[order[next]];
        if (row >= 0 && --open[row] == 0) order.push_back(row);
    }
    if (order.size() < parent.size()) throw std::invalid_argument("the parents form a cycle");
    return order;
}

}  // namespace

std::vector<QueueNode> sorted_queues(const QueueColumns& columns, Numbers queue_of_job) {
    check(columns, queue_of_job);
    const auto& parent = columns.parent;
    const auto none = static_cast<std::int64_t>(queue_of_job.size());
    Counts first(parent.size(), none);  // the first job below; none is after all others
    std::vector<bool> in_use(parent.size());
    for (auto j = none; j-- > 0;) first[queue_of_job[j]] = j;
    for (const auto row : from_the_leaves(parent)) {
        in_use[row] = in_use[row] || first[row] < none || columns.idle[row] > 0;
        if (parent[row] < 0 || !in_use[row]) continue;
        first[parent[row]] = std::min(first[parent[row]], first[row]);
        in_use[parent[row]] = true;
    }
    Counts order(parent.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return first[a] < first[b]; });
    std::vector<Counts> children(parent.size());
    std::vector<QueueNode> nodes;
    for (const auto row : order) {
        if (!in_use[row]) continue;
        if (parent[row] < 0) nodes.push_back({row});
        if (parent[row] >= 0) children[parent[row]].push_back(row);
    }
    for (std::size_t n = 0; n < nodes.size(); ++n) {
        const auto begin = static_cast<std::int64_t>(nodes.size());
        for (const auto row : children[nodes[n].row]) nodes.push_back({row});
        nodes[n].children = {begin, static_cast<std::int64_t>(nodes.size())};
    }
    return nodes;
}

}  // namespace headgate::planning
