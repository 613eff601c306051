// Counts of changed tasks by job and type, and of idle tasks by job and runtime class.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "max_min.hpp"

namespace headgate::planning {

// Columns of tasks, one value for each; rows ascend. Tasks without GPUs have `gpus_milli` 0.
struct Tasks {
    Numbers row;
    std::span<const std::uint8_t> state;
    Numbers gpus_milli;
    std::span<const std::int32_t> job;
};

// Tasks that are not multi-GPU: row, job and type of those that wait now, rows of those that waited
// before.
struct WaitingChange {
    Counts row, job, type, waited;
};

constexpr std::uint8_t kUnfinished = 1, kWaiting = 2;

// Updates a table, a row per job, for tasks whose states were `before`. Four groups of columns, each
// by type: unfinished tasks that are not multi-GPU, those of them that wait, thousandths of GPUs of
// unfinished multi-GPU tasks, and of those of them that wait. `flags` are those of each state, `index` is
// the row of each job in the table, negative if it has none. Throws std::invalid_argument if columns
// do not match or an index is out of range.
WaitingChange recount(const Tasks& tasks, std::span<const std::uint8_t> before,
                      std::span<const bool> multi_gpu, Numbers type,
                      std::span<const std::uint8_t> flags, Numbers index,
                      std::span<std::int64_t> table, std::size_t types);

// Idle tasks on GPUs: the thousandths of GPUs that those without a checkpoint need, by key,
// ascending; the others by row.
struct Idle {
    Counts key, count, begun;
};

// Updates these counts for changed tasks; those that `was_fresh` are counted already. The key of a
// task is job * classes + runtime class. Throws std::invalid_argument.
Idle recount_idle(Numbers key, Numbers count, const Tasks& tasks,
                  std::span<const std::int32_t> runtime_class, std::span<const double> progress_s,
                  std::span<const bool> was_fresh, std::span<const bool> idle,
                  std::int64_t classes);

}  // namespace headgate::planning
