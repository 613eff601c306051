#include "task_counts.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace headgate::planning {

namespace {

std::size_t at_index(std::int64_t index) { return static_cast<std::size_t>(index); }

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

template <class... Columns>
void check(const Tasks& tasks, std::size_t states, std::size_t jobs, const Columns&... columns) {
    const std::size_t count = tasks.row.size();
    require(((columns.size() == count) && ... &&
             (tasks.state.size() == count && tasks.gpus_milli.size() == count &&
              tasks.job.size() == count)),
            "not one value for each task");
    for (const std::uint8_t state : tasks.state) require(state < states, "no such state");
    for (const std::int32_t job : tasks.job) {
        require(job >= 0 && at_index(job) < jobs, "no such job");
    }
}

struct Counted {
    std::int64_t key, count;
};

// Adds up what tasks need by key. Tasks are ordered by job: a class mostly has the same key as the last time.
class Tally {
public:
    explicit Tally(std::int64_t classes) : classes_(classes) {}

    void add(std::int64_t job, std::int32_t runtime_class, std::int64_t step) {
        const std::size_t index = at_index(runtime_class);
        if (index >= last_.size()) last_.resize(index + 1, 0);
        std::size_t& last = last_[index];
        const std::int64_t key = job * classes_ + runtime_class;
        if (last >= counted_.size() || counted_[last].key != key) {
            last = counted_.size();
            counted_.push_back({key, 0});
        }
        counted_[last].count += step;
    }

    void add(std::int64_t key, std::int64_t count) { counted_.push_back({key, count}); }

    // Appends the counts above 0, keys ascending.
    void write(Counts& key, Counts& count) {
        std::sort(counted_.begin(), counted_.end(),
                  [](const Counted& a, const Counted& b) { return a.key < b.key; });
        for (auto each = counted_.cbegin(); each != counted_.cend();) {
            const std::int64_t of = each->key;
            std::int64_t sum = 0;
            for (; each != counted_.cend() && each->key == of; ++each) sum += each->count;
            if (sum <= 0) continue;
            key.push_back(of);
            count.push_back(sum);
        }
    }

private:
    std::int64_t classes_;
    std::vector<Counted> counted_;
    std::vector<std::size_t> last_;  // by runtime class
};

}  // namespace

WaitingChange recount(const Tasks& tasks, std::span<const std::uint8_t> before,
                      std::span<const bool> multi_gpu, Numbers type,
                      std::span<const std::uint8_t> flags, Numbers index,
                      std::span<std::int64_t> table, std::size_t types) {
    check(tasks, flags.size(), index.size(), before, multi_gpu, type);
    for (const std::int64_t each : type) {
        require(each >= 0 && at_index(each) < types, "no such type");
    }
    for (const std::uint8_t state : before) require(state < flags.size(), "no such state");
    const std::size_t width = 4 * types;
    const auto rows = static_cast<std::int64_t>(types > 0 ? table.size() / width : 0);
    for (const std::int64_t row : index) require(row < rows, "a job is not in the table");
    const Counts blank(tasks.row.size());
    WaitingChange changed{blank, blank, blank, {}};
    std::size_t waiting = 0;
    // Waiting and running tasks are mixed, so branches on the state would be mispredicted: sums
    // instead.
    for (std::size_t i = 0; i < tasks.row.size(); ++i) {
        const std::uint8_t is = flags[tasks.state[i]], was = flags[before[i]];
        if (tasks.gpus_milli[i] == 0) continue;
        if (!multi_gpu[i] && (was & kWaiting) != 0) changed.waited.push_back(tasks.row[i]);
        const std::int64_t row = index[at_index(tasks.job[i])];
        if (row < 0) continue;
        std::int64_t* counts = &table[at_index(row) * width];
        const bool waits_now = (is & kWaiting) != 0, waited = (was & kWaiting) != 0;
        const std::int64_t amount = multi_gpu[i] ? tasks.gpus_milli[i] : 1;
        counts += (multi_gpu[i] ? 2 * types : 0) + at_index(type[i]);
        *counts += amount * ((is & kUnfinished) - (was & kUnfinished));
        counts[types] += amount * (waits_now - waited);
        if (multi_gpu[i]) continue;
        changed.row[waiting] = tasks.row[i];
        changed.job[waiting] = tasks.job[i];
        changed.type[waiting] = type[i];
        waiting += waits_now;
    }
    for (Counts* column : {&changed.row, &changed.job, &changed.type}) {
        column->resize(waiting);
    }
    return changed;
}

Idle recount_idle(Numbers key, Numbers count, const Tasks& tasks,
                  std::span<const std::int32_t> runtime_class, std::span<const double> progress_s,
                  std::span<const bool> was_fresh, std::span<const bool> idle,
                  std::int64_t classes) {
    constexpr std::size_t kAnyJob = std::size_t{1} << 31;
    check(tasks, idle.size(), kAnyJob, runtime_class, progress_s, was_fresh);
    require(key.size() == count.size(), "not one count for each key");
    for (const std::int32_t each : runtime_class) {
        require(each >= 0 && each < classes, "no such runtime class");
    }
    Tally tally(classes);
    for (std::size_t i = 0; i < key.size(); ++i) tally.add(key[i], count[i]);
    Idle found;
    for (std::size_t i = 0; i < tasks.row.size(); ++i) {
        if (tasks.gpus_milli[i] == 0) continue;
        const bool is_idle = idle[tasks.state[i]], has_begun = progress_s[i] > 0;
        if (is_idle && has_begun) found.begun.push_back(tasks.row[i]);
        const int step = (is_idle && !has_begun) - was_fresh[i];
        if (step != 0) tally.add(tasks.job[i], runtime_class[i], step * tasks.gpus_milli[i]);
    }
    tally.write(found.key, found.count);
    return found;
}

}  // namespace headgate::planning
