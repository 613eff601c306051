#include "width_plan.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace headgate::planning {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;   // of work, relative, and of whole seconds
constexpr double kInTime_s = 1e-6;   // a job that ends so much after its deadline is in time

void push(Share& share, double from_s, double to_s, std::int64_t gpus) {
    if (!share.stretches.empty()) {
        Stretch& last = share.stretches.back();
        if (last.to_s == from_s && last.gpus == gpus) {
            last.to_s = to_s;
            return;
        }
    }
    share.stretches.push_back({from_s, to_s, gpus});
}

}  // namespace

double Share::gpu_seconds() const { return gpu_seconds_from(-kInfinity); }

double Share::gpu_seconds_from(double at_s) const {
    double sum = 0;
    for (const Stretch& stretch : stretches)
        sum += static_cast<double>(stretch.gpus) *
               std::max(0.0, stretch.to_s - std::max(at_s, stretch.from_s));
    return sum;
}

std::int64_t Share::width(double now_s) const {
    const bool runs = !stretches.empty() && stretches.front().from_s <= now_s;
    return runs ? stretches.front().gpus : 0;
}

double Share::next_change(double now_s) const {
    if (stretches.empty()) return kInfinity;
    if (stretches.front().from_s > now_s) return stretches.front().from_s;
    return stretches.size() > 1 ? stretches.front().to_s : kInfinity;
}

std::size_t FreeGpus::first_from(double at_s) const {
    const auto found = std::lower_bound(time_.begin(), time_.end(), at_s);
    return static_cast<std::size_t>(found - time_.begin());
}

std::size_t FreeGpus::split(double at_s) {
    const std::size_t step = first_from(at_s);
    if (step < time_.size() && time_[step] == at_s) return step;
    time_.insert(time_.begin() + static_cast<std::ptrdiff_t>(step), at_s);
    free_.insert(free_.begin() + static_cast<std::ptrdiff_t>(step), free_[step - 1]);
    return step;
}

void FreeGpus::add(const Share& share, int sign) {
    for (const Stretch& stretch : share.stretches) {
        const std::size_t from = split(stretch.from_s), to = split(stretch.to_s);
        for (std::size_t step = from; step < to; ++step) free_[step] += sign * stretch.gpus;
    }
    std::size_t kept = 0;  // steps with equal numbers of free GPUs are one
    for (std::size_t step = 1; step < free_.size(); ++step) {
        if (free_[step] == free_[kept]) continue;
        ++kept;
        free_[kept] = free_[step];
        time_[kept] = time_[step];
    }
    free_.resize(kept + 1);
    time_.resize(kept + 1);
}

WidthPlan::WidthPlan(std::int64_t gpus, double slot_s) : gpus_(gpus), slot_s_(slot_s) {
    if (gpus < 1 || !(slot_s >= 0)) throw std::invalid_argument("no such cluster or slots");
}

std::int64_t WidthPlan::add_curve(std::span<const std::int64_t> width,
                                  std::span<const double> rate) {
    const bool right = !width.empty() && width.size() == rate.size() && width.front() > 0 &&
                       std::is_sorted(width.begin(), width.end(), std::less_equal<>()) &&
                       std::all_of(rate.begin(), rate.end(), [](double each) { return each > 0; });
    if (!right) throw std::invalid_argument("no such curve");
    curves_.width.insert(curves_.width.end(), width.begin(), width.end());
    curves_.rate.insert(curves_.rate.end(), rate.begin(), rate.end());
    std::vector<std::int64_t> levels(static_cast<std::size_t>(width.back()) + 1, -1);
    for (std::size_t gpus = 0; gpus < levels.size(); ++gpus)
        for (const std::int64_t each : width) levels[gpus] += each <= static_cast<std::int64_t>(gpus);
    curves_.level.push_back(std::move(levels));
    curves_.start.push_back(static_cast<std::int64_t>(curves_.width.size()));
    return static_cast<std::int64_t>(curves_.start.size()) - 2;
}

void WidthPlan::begin(double now_s, std::span<const std::int64_t> curve,
                      std::span<const double> left, std::span<const double> deadline_s,
                      std::span<const std::int64_t> before) {
    if (curve.size() != left.size() || curve.size() != deadline_s.size() ||
        curve.size() != before.size())
        throw std::invalid_argument("columns do not match");
    now_s_ = now_s;
    jobs_.clear();
    for (std::size_t job = 0; job < curve.size(); ++job) {
        const std::int64_t number = curve[job];
        if (number < 0 || number + 1 >= static_cast<std::int64_t>(curves_.start.size()))
            throw std::invalid_argument("no such curve");
        const std::int64_t begin = curves_.start[static_cast<std::size_t>(number)];
        std::int64_t levels = curves_.start[static_cast<std::size_t>(number) + 1] - begin;
        while (levels > 0 && curves_.width[static_cast<std::size_t>(begin + levels - 1)] > gpus_)
            --levels;
        if (levels == 0) throw std::invalid_argument("a job is wider than the cluster");
        if (!(left[job] > 0)) throw std::invalid_argument("a job has no work left");
        jobs_.push_back({number, begin, levels, left[job], deadline_s[job]});
    }
    before_.assign(jobs_.size(), {});
    for (std::size_t job = 0; job < before.size(); ++job) {
        if (before[job] < 0) continue;
        before_[job] = now_.shares.at(static_cast<std::size_t>(before[job]));
    }
    forget();
}

void WidthPlan::forget() {
    now_ = {std::vector<Share>(jobs_.size()), std::vector<bool>(jobs_.size()),
            FreeGpus(now_s_, gpus_)};
}

void WidthPlan::mark() { noted_ = now_; }

void WidthPlan::undo() {
    if (noted_.shares.size() != jobs_.size()) throw std::invalid_argument("nothing was noted");
    now_ = noted_;
}

void WidthPlan::give(std::size_t job, Share share) {
    if (now_.given[job]) throw std::invalid_argument("a job is named twice");
    share.promised_s = share.finish_s;
    now_.free.take(share);
    now_.shares[job] = std::move(share);
    now_.given[job] = true;
}

void WidthPlan::check(std::int64_t job) const {
    if (job < 0 || job >= static_cast<std::int64_t>(jobs_.size()))
        throw std::invalid_argument("no such job");
}

double WidthPlan::aligned(double at_s) const {
    return slot_s_ > 0 ? now_s_ + slot_s_ * std::ceil((at_s - now_s_) / slot_s_) : at_s;
}

bool WidthPlan::is_late(std::size_t job) const {
    return now_.shares[job].finish_s > jobs_[job].deadline_s + kInTime_s;
}

std::int64_t WidthPlan::fitting(const Job& job, std::int64_t gpus) const {
    const std::vector<std::int64_t>& levels = curves_.level[static_cast<std::size_t>(job.curve)];
    const auto most = static_cast<std::int64_t>(levels.size()) - 1;
    return std::min(job.levels - 1, levels[static_cast<std::size_t>(std::min(gpus, most))]);
}

// The end of a step; that of the last one before the deadline's slot is the deadline.
double WidthPlan::until(const FreeGpus& free, std::size_t step, std::size_t last, const Job& job) {
    if (step + 1 == last) return job.deadline_s;
    return step + 1 < free.size() ? free.time(step + 1) : kInfinity;
}

void WidthPlan::finish(Share& found, double from_s, double left, std::int64_t level,
                       const Job& job) const {
    double span_s = left / rate(job, level);
    if (slot_s_ > 0) span_s = std::ceil(span_s - kRounding);
    const double end_s =
        from_s + (slot_s_ > 0 ? slot_s_ * std::max(1.0, std::ceil(span_s / slot_s_)) : span_s);
    found.finish_s = from_s + span_s;
    found.end_s = end_s;
    push(found, from_s, end_s, width(job, level));
}

// The least width that is enough in the steps from `from` to `to`: as late as possible at it, and
// one level less before. Returns whether there is one.
bool WidthPlan::search(const FreeGpus& free, const Job& job, std::size_t from, std::size_t to,
                       double left, Share& found) const {
    for (std::int64_t level = 0; level < job.levels; ++level) {
        double done = 0;
        std::size_t first = to;
        bool enough = false;
        while (first > from && !enough) {
            --first;
            const std::int64_t got = std::min(level, fitting(job, free.free(first)));
            if (got < 0) continue;
            done += (until(free, first, to, job) - free.time(first)) * rate(job, got);
            enough = done >= left * (1 - kRounding);
        }
        if (!enough) continue;
        for (std::size_t step = from; step < to; ++step) {
            const std::int64_t most = step >= first ? level : level - 1;
            const std::int64_t got = std::min(most, fitting(job, free.free(step)));
            if (got < 0) continue;
            const double from_s = free.time(step), to_s = until(free, step, to, job);
            if ((to_s - from_s) * rate(job, got) >= left * (1 - kRounding) || step + 1 == to) {
                finish(found, from_s, left, got, job);
                return true;
            }
            left -= (to_s - from_s) * rate(job, got);
            push(found, from_s, to_s, width(job, got));
        }
        throw std::logic_error("a width that was enough is not");
    }
    return false;
}

// All that is free from a step on, as long as it takes.
void WidthPlan::late(const FreeGpus& free, const Job& job, std::size_t from, double left,
                     Share& found) const {
    for (std::size_t step = from;; ++step) {
        const std::int64_t got = fitting(job, free.free(step));
        if (got < 0) continue;
        const double from_s = free.time(step);
        const double to_s = step + 1 < free.size() ? free.time(step + 1) : kInfinity;
        const double done = (to_s - from_s) * rate(job, got);
        if (done >= left) return finish(found, from_s, left, got, job);
        left -= done;
        push(found, from_s, to_s, width(job, got));
    }
}

Share WidthPlan::share(const FreeGpus& free, const Job& job, std::int64_t first) const {
    Share found;
    double left = job.left;
    std::size_t from = 0;
    const double deadline_s = aligned(job.deadline_s);
    const std::size_t to = free.first_from(deadline_s);  // none before a deadline that is past
    if (first >= 0) {
        finish(found, now_s_, left, first, job);
        if (free.size() == 1 || found.end_s <= free.time(1)) return found;
        found = {};
        const double to_s = free.time(1);
        left -= ((to_s == deadline_s ? job.deadline_s : to_s) - now_s_) * rate(job, first);
        if (!(left > 0)) left = job.left * kRounding;
        push(found, now_s_, to_s, width(job, first));
        from = 1;
    }
    if (from >= to || !search(free, job, from, to, left, found))
        late(free, job, from, left, found);
    return found;
}

std::int64_t WidthPlan::fill(std::span<const std::int64_t> order, bool widest) {
    forget();
    std::int64_t lates = 0;
    for (const std::int64_t number : order) {
        check(number);
        const auto job = static_cast<std::size_t>(number);
        Share found;
        if (widest)
            late(now_.free, jobs_[job], 0, jobs_[job].left, found);
        else
            found = share(now_.free, jobs_[job], -1);
        give(job, std::move(found));
        lates += is_late(job);
    }
    return lates;
}

// What is left of a share, up to the end of the work; returns whether that is enough.
bool WidthPlan::rest(const Share& before, const Job& job, Share& found) const {
    double left = job.left;
    for (const Stretch& stretch : before.stretches) {
        const double from_s = std::max(now_s_, stretch.from_s);
        std::int64_t level = job.levels - 1;
        while (level >= 0 && width(job, level) != stretch.gpus) --level;
        if (stretch.to_s <= from_s || level < 0) continue;
        const double done = (stretch.to_s - from_s) * rate(job, level);
        if (done >= left * (1 - kRounding)) {
            const double span_s = std::min(left / rate(job, level), stretch.to_s - from_s);
            found.finish_s = from_s + (slot_s_ > 0 ? std::ceil(span_s - kRounding) : span_s);
            found.end_s = slot_s_ > 0 ? stretch.to_s : found.finish_s;
            push(found, from_s, found.end_s, stretch.gpus);
            return true;
        }
        left -= done;
        push(found, from_s, stretch.to_s, stretch.gpus);
    }
    return false;
}

std::int64_t WidthPlan::resume(std::span<const std::int64_t> order) {
    forget();
    std::vector<std::size_t> others;
    for (const std::int64_t number : order) {
        check(number);
        const auto job = static_cast<std::size_t>(number);
        Share found;
        if (rest(before_[job], jobs_[job], found))
            give(job, std::move(found));
        else
            others.push_back(job);
    }
    for (const std::size_t job : others) give(job, share(now_.free, jobs_[job], -1));
    std::int64_t lates = 0;
    for (const std::int64_t number : order) lates += is_late(static_cast<std::size_t>(number));
    return lates;
}

bool WidthPlan::add(std::int64_t number, bool late) {
    check(number);
    const auto job = static_cast<std::size_t>(number);
    Share found = share(now_.free, jobs_[job], -1);
    if (!late && found.finish_s > jobs_[job].deadline_s + kInTime_s) return false;
    give(job, std::move(found));
    return true;
}

std::int64_t WidthPlan::next_level(std::int64_t number) const {
    const Job& job = jobs_[static_cast<std::size_t>(number)];
    const std::int64_t held = now_.shares[static_cast<std::size_t>(number)].width(now_s_);
    const std::int64_t level = fitting(job, held) + 1;
    return level < job.levels && width(job, level) - held <= free_now() ? level : -1;
}

double WidthPlan::marginal(std::int64_t number, std::int64_t level, Leftover by,
                           Share& grown) const {
    const auto index = static_cast<std::size_t>(number);
    const Share& before = now_.shares[index];
    FreeGpus free = now_.free;
    free.put_back(before);
    grown = share(free, jobs_[index], level);
    const std::int64_t held = before.width(now_s_);
    const auto more = static_cast<double>(width(jobs_[index], level) - held);
    if (by == Leftover::kAdded) {
        if (held == 0) return kInfinity;
        return (grown.gpu_seconds() - before.gpu_seconds()) / more;
    }
    const double next_s = free.size() > 1 ? free.time(1) : kInfinity;
    return (before.gpu_seconds_from(next_s) - grown.gpu_seconds_from(next_s)) / more;
}

std::vector<std::int64_t> WidthPlan::spread(std::span<const std::int64_t> order, Leftover by) {
    // Gain, the turn at which the job grew last, 0 for none, and minus its place in the order.
    using Turn = std::tuple<double, std::size_t, std::int64_t>;
    std::priority_queue<Turn> turns;
    Share grown;
    const auto gain = [&](std::int64_t job) {
        const std::int64_t level = next_level(job);
        if (level < 0) return -kInfinity;
        const double found = marginal(job, level, by, grown);
        const auto index = static_cast<std::size_t>(job);
        const bool late = grown.finish_s > jobs_[index].deadline_s + kInTime_s;
        // A wider width may be a slower one.
        return by == Leftover::kSaved && late && !is_late(index) ? -kInfinity : found;
    };
    std::vector<double> last(order.size(), -kInfinity);
    std::vector<std::size_t> grew(order.size());
    std::size_t grants = 0;
    const auto enter = [&](std::size_t place, double found) {
        last[place] = found;
        if (found > -kInfinity) turns.emplace(found, grew[place], -static_cast<std::int64_t>(place));
    };
    for (std::size_t place = 0; place < order.size(); ++place) check(order[place]);
    for (std::size_t place = 0; place < order.size() && free_now() > 0; ++place)
        enter(place, gain(order[place]));
    while (free_now() > 0 && !turns.empty()) {
        const auto place = static_cast<std::size_t>(-std::get<2>(turns.top()));
        turns.pop();
        const std::int64_t job = order[place];
        const double found = gain(job);
        if (found == -kInfinity) {
            last[place] = found;
            continue;
        }
        if (!turns.empty() && found < std::get<0>(turns.top())) {
            enter(place, found);
            continue;
        }
        Share& held = now_.shares[static_cast<std::size_t>(job)];
        grown.promised_s = held.promised_s;
        now_.free.put_back(held);
        held = std::move(grown);
        now_.free.take(held);
        if (by == Leftover::kAdded) grew[place] = ++grants;
        enter(place, gain(job));
    }
    std::vector<std::size_t> places(order.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    std::stable_sort(places.begin(), places.end(),
                     [&](std::size_t a, std::size_t b) {
                         return std::pair(last[a], grew[a]) > std::pair(last[b], grew[b]);
                     });
    std::vector<std::int64_t> sorted;
    for (const std::size_t place : places) sorted.push_back(order[place]);
    return sorted;
}

std::vector<std::int64_t> WidthPlan::widths() const {
    std::vector<std::int64_t> found;
    for (const Share& share : now_.shares) found.push_back(share.width(now_s_));
    return found;
}

std::vector<double> WidthPlan::ends() const {
    std::vector<double> found;
    for (const Share& share : now_.shares) found.push_back(share.end_s);
    return found;
}

std::vector<double> WidthPlan::finishes() const {
    std::vector<double> found;
    for (const Share& share : now_.shares) found.push_back(share.finish_s);
    return found;
}

std::vector<double> WidthPlan::promises() const {
    std::vector<double> found;
    for (const Share& share : now_.shares) found.push_back(share.promised_s);
    return found;
}

double WidthPlan::next_change() const {
    double next_s = kInfinity;
    for (const Share& share : now_.shares) next_s = std::min(next_s, share.next_change(now_s_));
    return next_s;
}

}  // namespace headgate::planning
