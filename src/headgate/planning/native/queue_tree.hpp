// Queues as a tree: which of them share GPUs, and in which order `MaxMin` divides them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headgate::planning {

using Counts = std::vector<std::int64_t>;
using Numbers = std::span<const std::int64_t>;

// By row of a queue: `parent` is a row, -1 at the top; the others are numbers of GPUs.
struct QueueColumns {
    Numbers parent;
    std::span<const double> weight;
    Numbers guaranteed, most, idle;
};

// Members that share an allocation: [first, end) of a level.
struct Group {
    std::int64_t first = 0, end = 0;
};

struct QueueNode {
    std::int64_t row = 0;
    Group children{};  // of the nodes
};

// Returns the queues that can get GPUs: those with jobs or idle GPUs, there or below. Those at the
// top come first and a parent before its children; siblings are consecutive, in order of the first
// job below, those without jobs last and by row. O(jobs + queues x log). Throws
// std::invalid_argument if lengths do not match, if a queue does not exist, for a cycle, and for a
// job in a queue with children.
std::vector<QueueNode> sorted_queues(const QueueColumns& columns, Numbers queue_of_job);

}  // namespace headgate::planning
