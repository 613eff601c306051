#include "census.hpp"

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
             (tasks.state.size() == count && tasks.gpus.size() == count &&
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

// Counts tasks by key. They come job by job: what a kind was counted as last is mostly its key now.
class Tally {
public:
    explicit Tally(std::int64_t kinds) : kinds_(kinds) {}

    void add(std::int64_t job, std::int32_t kind, std::int64_t step) {
        const std::size_t index = at_index(kind);
        if (index >= last_.size()) last_.resize(index + 1, 0);
        std::size_t& last = last_[index];
        const std::int64_t key = job * kinds_ + kind;
        if (last >= counted_.size() || counted_[last].key != key) {
            last = counted_.size();
            counted_.push_back({key, 0});
        }
        counted_[last].count += step;
    }

    void add(std::int64_t key, std::int64_t count) { counted_.push_back({key, count}); }

    // Writes down the counts above 0, keys ascending.
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
    std::int64_t kinds_;
    std::vector<Counted> counted_;
    std::vector<std::size_t> last_;  // by kind
};

}  // namespace

Waits recount(const Tasks& tasks, std::span<const std::uint8_t> then, Numbers memory_bytes,
              std::span<const std::uint8_t> meaning, Numbers class_bytes, Numbers at,
              std::span<std::int64_t> table) {
    check(tasks, meaning.size(), at.size(), then, memory_bytes);
    for (const std::uint8_t state : then) require(state < meaning.size(), "no such state");
    const std::size_t classes = class_bytes.size() + 1, width = 2 * classes + 1;
    const auto rows = static_cast<std::int64_t>(table.size() / width);
    for (const std::int64_t row : at) require(row < rows, "a job is not in the table");
    Waits waits{Counts(tasks.row.size()), Counts(tasks.row.size()), Counts(tasks.row.size()), {}};
    std::size_t waiting = 0;
    // Who waits and who runs is mixed: what hangs on that is added up, without branches.
    for (std::size_t i = 0; i < tasks.row.size(); ++i) {
        const std::uint8_t is = meaning[tasks.state[i]], was = meaning[then[i]];
        if (tasks.gpus[i] == 0) continue;
        const auto fitting =
            std::lower_bound(class_bytes.begin(), class_bytes.end(), memory_bytes[i]);
        const auto kind = static_cast<std::size_t>(fitting - class_bytes.begin());
        const bool single = tasks.gpus[i] == 1;
        if (single && (was & kWaiting) != 0) waits.waited.push_back(tasks.row[i]);
        const std::int64_t row = at[at_index(tasks.job[i])];
        if (row < 0) continue;
        std::int64_t* counts = &table[at_index(row) * width];
        const bool waits_now = (is & kWaiting) != 0, waited = (was & kWaiting) != 0;
        counts[single ? kind : 2 * classes] += (is & kUnfinished) - (was & kUnfinished);
        if (!single) continue;
        counts[classes + kind] += waits_now - waited;
        waits.row[waiting] = tasks.row[i];
        waits.job[waiting] = tasks.job[i];
        waits.kind[waiting] = static_cast<std::int64_t>(kind);
        waiting += waits_now;
    }
    for (Counts* column : {&waits.row, &waits.job, &waits.kind}) column->resize(waiting);
    return waits;
}

Idle recount_idle(Numbers key, Numbers count, const Tasks& tasks,
                  std::span<const std::int32_t> kind, std::span<const double> progress_s,
                  std::span<const bool> was_fresh, std::span<const bool> idle, std::int64_t kinds) {
    constexpr std::size_t kAnyJob = std::size_t{1} << 31;
    check(tasks, idle.size(), kAnyJob, kind, progress_s, was_fresh);
    require(key.size() == count.size(), "not one count for each key");
    for (const std::int32_t each : kind) require(each >= 0 && each < kinds, "no such kind");
    Tally tally(kinds);
    for (std::size_t i = 0; i < key.size(); ++i) tally.add(key[i], count[i]);
    Idle found;
    for (std::size_t i = 0; i < tasks.row.size(); ++i) {
        if (tasks.gpus[i] == 0) continue;
        const bool is_idle = idle[tasks.state[i]], has_begun = progress_s[i] > 0;
        if (is_idle && has_begun) found.begun.push_back(tasks.row[i]);
        const int step = (is_idle && !has_begun) - was_fresh[i];
        if (step != 0) tally.add(tasks.job[i], kind[i], step);
    }
    tally.write(found.key, found.count);
    return found;
}

}  // namespace headgate::planning
