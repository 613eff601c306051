// Widths over time of elastic jobs with deadlines, on equal GPUs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headgate::planning {

// Curves one after another: that of number c has the entries from start[c] to start[c + 1]; widths
// of a curve ascend.
struct Curves {
    std::vector<std::int64_t> start{0}, width;
    std::vector<double> rate;
    std::vector<std::vector<std::int64_t>> level;  // the widest that so many GPUs are enough for
};

// A width (GPUs) from a time to another.
struct Stretch {
    double from_s, to_s;
    std::int64_t gpus;
};

// What a job gets, in order of time; `finish_s` is when its work is done, `end_s` that rounded up to
// a slot.
struct Share {
    std::vector<Stretch> stretches;
    double end_s = 0, finish_s = 0;
    double promised_s = 0;  // when it would be done with its minimum share

    double gpu_seconds() const;
    double gpu_seconds_from(double at_s) const;
    std::int64_t width(double now_s) const;
    double next_change(double now_s) const;  // infinity if there is none before it ends
};

// Free GPUs by time, from the first time on; all are free at the end.
class FreeGpus {
public:
    FreeGpus() = default;
    FreeGpus(double now_s, std::int64_t gpus) : time_{now_s}, free_{gpus} {}

    void take(const Share& share) { add(share, -1); }
    void put_back(const Share& share) { add(share, +1); }
    std::size_t first_from(double at_s) const;  // the first step that starts then or later

    std::size_t size() const { return time_.size(); }
    double time(std::size_t step) const { return time_[step]; }
    std::int64_t free(std::size_t step) const { return free_[step]; }

private:
    void add(const Share& share, int sign);
    std::size_t split(double at_s);  // the index of the step that starts there

    std::vector<double> time_;
    std::vector<std::int64_t> free_;
};

// What a leftover level goes by.
enum class Leftover : std::int64_t { kAdded = 0, kSaved = 1 };

class WidthPlan {
public:
    WidthPlan(std::int64_t gpus, double slot_s);

    // Returns the number of one more curve.
    std::int64_t add_curve(std::span<const std::int64_t> width, std::span<const double> rate);

    // The jobs of a decision, by number from 0; `before` are their numbers at the last one, negative
    // for none. Throws std::invalid_argument, as all methods do.
    void begin(double now_s, std::span<const std::int64_t> curve, std::span<const double> left,
               std::span<const double> deadline_s, std::span<const std::int64_t> before);
    // Gives each job in order its minimum share, or all that it can use from now on if `widest`, all
    // others none; returns how many are late.
    std::int64_t fill(std::span<const std::int64_t> order, bool widest);
    // Gives each job what the last decision's plan had for it from now on, those for which that is
    // not enough their minimum share of the rest; returns how many are late.
    std::int64_t resume(std::span<const std::int64_t> order);
    // Notes the shares, and returns to those that were noted.
    void mark();
    void undo();
    // Gives one more job its minimum share of what is free, if it ends in time or may be `late`;
    // returns whether it got one.
    bool add(std::int64_t job, bool late);
    // Gives what is free now, one level at a time, to jobs that have a share; of equal ones the
    // first in the order. Gains are computed again when a job's turn comes, not at every level given.
    // Returns the jobs by their last gains, those that cannot grow last. By kAdded, of equal ones
    // the one that grew last is first, as after the repeated stable sort of ElasticFlow's code.
    std::vector<std::int64_t> spread(std::span<const std::int64_t> order, Leftover by);

    std::vector<std::int64_t> widths() const;
    std::vector<double> ends() const;
    std::vector<double> finishes() const;
    std::vector<double> promises() const;
    double next_change() const;
    std::int64_t free_now() const { return now_.free.free(0); }

private:
    struct Job {
        std::int64_t curve, begin, levels;
        double left, deadline_s;
    };

    Share share(const FreeGpus& free, const Job& job, std::int64_t first) const;
    bool search(const FreeGpus& free, const Job& job, std::size_t from, std::size_t to, double left,
                Share& found) const;
    void late(const FreeGpus& free, const Job& job, std::size_t from, double left,
              Share& found) const;
    static double until(const FreeGpus& free, std::size_t step, std::size_t last, const Job& job);
    void finish(Share& found, double from_s, double left, std::int64_t level, const Job& job) const;
    std::int64_t fitting(const Job& job, std::int64_t gpus) const;  // a level, -1 for none
    std::int64_t next_level(std::int64_t job) const;  // -1 for none, or none that is free
    double marginal(std::int64_t job, std::int64_t level, Leftover by, Share& grown) const;
    bool is_late(std::size_t job) const;
    bool rest(const Share& before, const Job& job, Share& found) const;
    void give(std::size_t job, Share share);
    void forget();
    double aligned(double at_s) const;
    void check(std::int64_t job) const;
    std::int64_t width(const Job& job, std::int64_t level) const {
        return curves_.width[static_cast<std::size_t>(job.begin + level)];
    }
    double rate(const Job& job, std::int64_t level) const {
        return curves_.rate[static_cast<std::size_t>(job.begin + level)];
    }

    struct State {
        std::vector<Share> shares;
        std::vector<bool> given;
        FreeGpus free;
    };

    Curves curves_;
    std::int64_t gpus_;
    double slot_s_, now_s_ = 0;
    std::vector<Job> jobs_;
    std::vector<Share> before_;  // of these jobs in the last plan
    State now_, noted_;
};

}  // namespace headgate::planning
