// Weighted max-min fair allocation of GPUs to jobs; `headgate.planning.shares` defines the rules.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headgate::planning {

using Counts = std::vector<std::int64_t>;
using Numbers = std::span<const std::int64_t>;

class MaxMin {
public:
    // By job: queue (a row of the last two), user, priority; jobs in order of arrival. O(jobs x
    // log). Throws std::invalid_argument if lengths or rows do not match, as the methods do.
    MaxMin(Numbers queue, Numbers user, Numbers priority, std::span<const double> weight,
           Numbers max_gpus);

    // Returns how many of `gpus` equal GPUs each job gets, beyond `held`, at most `room`.
    Counts allocate(Numbers held, Numbers room, std::int64_t gpus) const;
    // The same of GPUs by kind, for tasks by job and type; `accepts` says, by type and kind, which
    // GPUs a task may get. `won` are GPUs allocated before, and part of the result, at most `most`.
    Counts allocate_by_type(Numbers held, Numbers tasks, Numbers gpus, Numbers won, Numbers most,
                            std::span<const bool> accepts) const;

private:
    // Members that share an allocation: [first, end) of the level below.
    struct Group {
        std::int64_t first, end;
    };
    void check(Numbers values, std::size_t each = 1) const;

    std::vector<std::int64_t> job_;  // in the order of the levels below
    std::vector<Group> queues_;      // of users; in order of arrival
    std::vector<Group> users_;       // of tiers; those of a queue in order of arrival
    std::vector<Group> tiers_;       // of jobs; those of a user by falling priority
    std::vector<double> weight_;     // by queue
    Counts max_gpus_;
};

}  // namespace headgate::planning
