// Weighted max-min fair allocation of GPUs to jobs; `headgate.planning.shares` defines the rules.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "queue_tree.hpp"

namespace headgate::planning {

class MaxMin {
public:
    // By job: queue (a row of the tree, without children), user, priority; jobs in order of
    // arrival. O((jobs + queues) x log). Throws std::invalid_argument if lengths do not match, as
    // the methods do, and as `sorted_queues`.
    MaxMin(Numbers queue, Numbers user, Numbers priority, const QueueColumns& tree);

    // Returns how many of `gpus` equal GPUs each job gets, beyond `held`, at most `room`. What is
    // idle in queues is of these GPUs, and of no job.
    Counts allocate(Numbers held, Numbers room, std::int64_t gpus) const;
    // The same of GPUs by kind, for tasks by job and type; `accepts` says, by type and kind, which
    // GPUs a task may get. `won` are GPUs allocated before, and part of the result, at most `most`.
    Counts allocate_by_type(Numbers held, Numbers tasks, Numbers gpus, Numbers won, Numbers most,
                            std::span<const bool> accepts) const;
    // Returns how many GPUs `allocate` would use if there were enough, idle ones too. O(jobs).
    std::int64_t usable(Numbers held, Numbers room) const;

private:
    struct Levels;
    struct Queue {
        Group queues, users;  // its children, or its users in order of arrival
        std::int64_t most, idle;
    };
    void check(Numbers values, std::size_t each = 1) const;
    void add_queues(const QueueColumns& tree, const std::vector<QueueNode>& nodes);
    Levels levels_of(Numbers held, Numbers room) const;
    void share_out(Levels& levels, const Group& siblings, std::int64_t units) const;

    std::vector<std::int64_t> job_;  // in the order of the levels below
    std::vector<Queue> queues_;      // as of `sorted_queues`
    std::vector<Group> users_;       // of tiers; those of a queue in order of arrival
    std::vector<Group> tiers_;       // of jobs; those of a user by falling priority
    Group top_;                      // the queues without parent
    Counts guaranteed_;              // by queue, as `queues_`
    std::vector<double> weight_;     // the same
    std::int64_t idle_ = 0;          // of all queues
};

}  // namespace headgate::planning
