// The deal of GPUs to jobs by fair shares, whose rules `headgate.planning.shares` tells.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headgate::planning {

using Counts = std::vector<std::int64_t>;
using Numbers = std::span<const std::int64_t>;

class Deal {
public:
    // By job: queue (a row of the last two), user, priority. Throws std::invalid_argument where
    // lengths or rows do not match.
    Deal(Numbers queue, Numbers user, Numbers priority, std::span<const double> weight,
         Numbers max_gpus);

    // How many of `gpus` alike each job wins, on top of what it holds, up to `room`.
    Counts alike(Numbers held, Numbers room, std::int64_t gpus) const;
    // Of GPUs of several classes, to serve tasks by job and class; with what was won before.
    Counts by_class(Numbers held, Numbers tasks, Numbers gpus, Numbers won) const;

private:
    // Some that share what is dealt to all of them: [first, end) of the level below.
    struct Group {
        std::int64_t first, end;
    };
    void check(Numbers values, std::size_t each = 1) const;

    std::vector<std::int64_t> job_;  // in the order in which they are told here
    std::vector<Group> queues_;      // of users; in order of arrival
    std::vector<Group> users_;       // of tiers; those of a queue in order of arrival
    std::vector<Group> tiers_;       // of jobs; those of a user by falling priority
    std::vector<double> weight_;     // by queue
    Counts max_gpus_;
};

}  // namespace headgate::planning
