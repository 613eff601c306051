// Tasks that have moved, counted: by job and class, and those that are idle by job and kind.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deal.hpp"

namespace headgate::planning {

// What columns say of some tasks, one value each; rows ascend.
struct Tasks {
    Numbers row;
    std::span<const std::uint8_t> state;
    std::span<const std::int32_t> gpus, job;
};

// Tasks on one GPU: the row, the job and the class of those who wait now, and the rows of those who
// waited before.
struct Waits {
    Counts row, job, kind, waited;
};

constexpr std::uint8_t kUnfinished = 1, kWaiting = 2;

// Counts tasks that were in the states `then` in a table, a row per job: unfinished tasks on one GPU
// by class, those of them that wait, and unfinished tasks on several GPUs. `meaning` tells of each
// state what it means, `at` of each job where its row is, if it has one. Throws
// std::invalid_argument.
Waits recount(const Tasks& tasks, std::span<const std::uint8_t> then, Numbers memory_bytes,
              std::span<const std::uint8_t> meaning, Numbers class_bytes, Numbers at,
              std::span<std::int64_t> table);

// Idle tasks on GPUs: those with nothing saved counted by key, ascending; the others by row.
struct Idle {
    Counts key, count, begun;
};

// Counts tasks once more, of which some were idle with nothing saved, and counted. The key of a task
// is job * kinds + kind. Throws std::invalid_argument.
Idle recount_idle(Numbers key, Numbers count, const Tasks& tasks,
                  std::span<const std::int32_t> kind, std::span<const double> progress_s,
                  std::span<const bool> was_fresh, std::span<const bool> idle, std::int64_t kinds);

}  // namespace headgate::planning
