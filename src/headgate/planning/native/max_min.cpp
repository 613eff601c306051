#include "max_min.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace headgate::planning {

namespace {

constexpr int kHalvings = 64;  // more than the fraction of a double has bits

// The GPUs that a member of a level holds, may get besides, and then gets (`won`).
struct Share {
    std::int64_t held = 0, room = 0, won = 0;

    std::int64_t top() const { return held + room; }
    std::int64_t up_to(std::int64_t level) const { return std::clamp(level, held, top()) - held; }
};
using Shares = std::span<Share>;

// Gives each share all of its room if there are enough units; returns whether there are.
bool all_fit(Shares shares, std::int64_t units) {
    for (const Share& share : shares) units -= share.room;
    if (units < 0) return false;
    for (Share& share : shares) share.won = share.room;
    return true;
}

// Allocates units as if one at a time, each to the share that holds least, of equals to the first:
// all are raised to one level, and the first ones get one more. O(shares x log(units held)).
void fill(Shares shares, std::int64_t units) {
    if (all_fit(shares, units)) return;
    auto units_up_to = [&](std::int64_t level) {
        std::int64_t sum = 0;
        for (const Share& share : shares) sum += share.up_to(level);
        return sum;
    };
    std::int64_t level = shares.front().held, beyond = shares.front().top();
    for (const Share& share : shares) {
        level = std::min(level, share.held);
        beyond = std::max(beyond, share.top());
    }
    while (beyond - level > 1) {
        const std::int64_t middle = std::midpoint(level, beyond);
        (units_up_to(middle) <= units ? level : beyond) = middle;
    }
    std::int64_t left = units - units_up_to(level);
    for (Share& share : shares) {
        share.won = share.up_to(level);
        if (left > 0 && share.held <= level && level < share.top()) {
            ++share.won;
            --left;
        }
    }
}

// The same, each unit to the share that holds least for its weight. So each share that holds none
// gets a first unit before any gets a second one.
void fill(Shares shares, std::span<const double> weight, std::int64_t units) {
    if (all_fit(shares, units)) return;
    // At level t a share has every unit that was allocated while it held h with h / weight < t:
    // ceil(t x weight) in all. In bulk up to a level that is too low even with rounding errors,
    // then one by one.
    auto holds = [&](std::size_t i, double bound) {
        const auto held = static_cast<double>(shares[i].held);
        return std::clamp(bound, held, static_cast<double>(shares[i].top())) - held;
    };
    auto at_most = [&](double level) {
        double sum = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) sum += holds(i, level * weight[i] + 1);
        return sum;
    };
    double low = 0, high = 1;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        high = std::max(high, (static_cast<double>(shares[i].top()) + 1) / weight[i]);
    }
    for (int n = 0; n < kHalvings; ++n) {
        const double middle = (low + high) / 2;
        (at_most(middle) <= static_cast<double>(units) ? low : high) = middle;
    }
    std::int64_t left = units;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        shares[i].won = static_cast<std::int64_t>(holds(i, std::ceil(low * weight[i]) - 1));
        left -= shares[i].won;
    }
    using Next = std::pair<double, std::size_t>;  // of a share: units held by weight, its index
    std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
    auto queue = [&](std::size_t i) {
        if (shares[i].won == shares[i].room) return;
        next.push({static_cast<double>(shares[i].held + shares[i].won) / weight[i], i});
    };
    for (std::size_t i = 0; i < shares.size(); ++i) queue(i);
    for (; left > 0; --left) {
        const auto i = next.top().second;
        next.pop();
        ++shares[i].won;
        queue(i);
    }
}

// The same for queues: each unit first to those that hold less than `guaranteed`, of these to the
// one with least for it; else by weight.
void fill(Shares shares, Numbers guaranteed, std::span<const double> weight, std::int64_t units) {
    std::vector<Share> below(shares.begin(), shares.end());
    std::vector<double> by(shares.size(), 1);  // those without a guarantee have no room
    std::int64_t most = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        const auto lacks = guaranteed[i] - shares[i].held;
        below[i].room = std::clamp(lacks, std::int64_t{0}, shares[i].room);
        if (guaranteed[i] > 0) by[i] = static_cast<double>(guaranteed[i]);
        most += below[i].room;
    }
    if (most == 0) return fill(shares, weight, units);
    fill(below, by, std::min(units, most));
    std::vector<Share> rest(shares.begin(), shares.end());
    for (std::size_t i = 0; i < shares.size(); ++i) {
        rest[i].held += below[i].won;
        rest[i].room -= below[i].won;
    }
    if (units > most) fill(rest, weight, units - most);
    for (std::size_t i = 0; i < shares.size(); ++i) shares[i].won = below[i].won + rest[i].won;
}

// Whether so many tasks of each job fit GPUs of several kinds together, of whichever types: a flow
// from jobs by types to kinds, found along augmenting paths.
class Fitting {
public:
    // `tasks` of each job by type; `accepts` by type and kind.
    Fitting(Counts tasks, Numbers gpus, std::span<const bool> accepts)
        : tasks_(std::move(tasks)), gpus_(gpus), accepts_(accepts), kinds_(gpus.size()),
          types_(gpus.empty() ? 0 : accepts.size() / gpus.size()) {
        for (std::size_t j = 0; types_ > 0 && j < tasks_.size() / types_; ++j) {
            const auto* own = &tasks_[j * types_];
            if (std::count_if(own, own + types_, [](auto count) { return count > 0; }) > 1) {
                mixed_.push_back(j);
            }
        }
    }

    // Returns whether that many tasks of each job fit. They are of its first types where possible.
    bool fit(const Counts& totals) {
        free_.assign(gpus_.begin(), gpus_.end());
        given_.assign(types_ * kinds_, 0);
        served_.assign(tasks_.size(), 0);
        Counts need(types_);
        for (std::size_t j = 0; j < totals.size(); ++j) {
            std::int64_t left = totals[j];
            for (std::size_t t = 0; t < types_ && left > 0; ++t) {
                const auto count = std::min(left, tasks_[j * types_ + t]);
                served_[j * types_ + t] = count;
                need[t] += count;
                left -= count;
            }
        }
        for (std::size_t type = 0; type < types_; ++type) {
            while (need[type] > 0) {
                const auto kind = reach_free(type);
                if (kind == kinds_) return false;
                need[type] -= augment(type, kind, need[type]);
            }
        }
        return true;
    }

    // After a fit, leaves out all further tasks of the types of which no more can fit, whatever else
    // is added.
    void drop_exhausted() {
        for (std::size_t type = 0; type < types_; ++type) {
            if (reach_free(type) != kinds_) continue;
            for (auto i = type; i < tasks_.size(); i += types_) tasks_[i] = served_[i];
        }
    }

    std::int64_t tasks_of(std::size_t job) const {
        const auto own = tasks_.begin() + static_cast<std::ptrdiff_t>(job * types_);
        return std::accumulate(own, own + static_cast<std::ptrdiff_t>(types_), std::int64_t{0});
    }

private:
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

    // How a type was reached: from a kind of which it has GPUs, or from another type, as a job may
    // run a task of this type instead of one of that.
    struct From {
        std::size_t kind = kNone, type = kNone, job = kNone;
    };

    // Searches from a type for a kind with a free GPU; returns the number of kinds if there is none.
    std::size_t reach_free(std::size_t start) {
        type_of_.assign(kinds_, kNone);
        from_.assign(types_, From{});
        reached_.assign(1, start);
        auto reach = [&](std::size_t type, const From& from) {
            if (type == start || from_[type].kind != kNone || from_[type].job != kNone) return;
            from_[type] = from;
            reached_.push_back(type);
        };
        for (std::size_t next = 0; next < reached_.size(); ++next) {
            const auto type = reached_[next];
            for (std::size_t kind = 0; kind < kinds_; ++kind) {
                if (!accepts_[type * kinds_ + kind] || type_of_[kind] != kNone) continue;
                type_of_[kind] = type;
                if (free_[kind] > 0) return kind;
                for (std::size_t other = 0; other < types_; ++other) {
                    if (given_[other * kinds_ + kind] > 0) reach(other, {kind, kNone, kNone});
                }
            }
            for (const auto job : mixed_) {
                if (served_[job * types_ + type] == 0) continue;
                for (std::size_t other = 0; other < types_; ++other) {
                    const auto i = job * types_ + other;
                    if (served_[i] < tasks_[i]) reach(other, {kNone, type, job});
                }
            }
        }
        return kinds_;
    }

    // Gives a type GPUs along the path found, at most `most`; returns how many.
    std::int64_t augment(std::size_t start, std::size_t to, std::int64_t most) {
        std::int64_t units = std::min(most, free_[to]);
        for (auto type = type_of_[to]; type != start;) {
            const From& from = from_[type];
            if (from.job != kNone) {
                const auto* served = &served_[from.job * types_];
                units = std::min({units, served[from.type],
                                  tasks_[from.job * types_ + type] - served[type]});
                type = from.type;
            } else {
                units = std::min(units, given_[type * kinds_ + from.kind]);
                type = type_of_[from.kind];
            }
        }
        free_[to] -= units;
        given_[type_of_[to] * kinds_ + to] += units;
        for (auto type = type_of_[to]; type != start;) {
            const From& from = from_[type];
            if (from.job != kNone) {
                served_[from.job * types_ + type] += units;
                served_[from.job * types_ + from.type] -= units;
                type = from.type;
            } else {
                given_[type * kinds_ + from.kind] -= units;
                type = type_of_[from.kind];
                given_[type * kinds_ + from.kind] += units;
            }
        }
        return units;
    }

    Counts tasks_;  // by job and type
    Numbers gpus_;
    std::span<const bool> accepts_;
    std::size_t kinds_, types_;
    std::vector<std::size_t> mixed_;  // jobs with tasks of several types
    Counts free_, given_, served_;    // by kind; by type and kind; by job and type
    std::vector<std::size_t> type_of_, reached_;  // by kind: the type it was reached from
    std::vector<From> from_;                      // by type
};

}  // namespace

// What each member of each level holds, may get, and gets.
struct MaxMin::Levels {
    std::vector<Share> jobs, tiers, users, queues;
};

MaxMin::MaxMin(Numbers queue, Numbers user, Numbers priority, const QueueColumns& tree) {
    const auto jobs = static_cast<std::int64_t>(queue.size());
    if (user.size() != queue.size() || priority.size() != queue.size()) {
        throw std::invalid_argument("queue, user and priority have one value per job");
    }
    const auto nodes = sorted_queues(tree, queue);
    add_queues(tree, nodes);
    job_.resize(jobs);
    std::iota(job_.begin(), job_.end(), 0);
    // The place of each queue, and the first job of the user of each job.
    Counts place(tree.parent.size()), user_first(jobs);
    for (std::size_t n = 0; n < nodes.size(); ++n) {
        place[nodes[n].row] = static_cast<std::int64_t>(n);
    }
    auto same_user = [&](std::int64_t a, std::int64_t b) {
        return queue[a] == queue[b] && user[a] == user[b];
    };
    std::sort(job_.begin(), job_.end(), [&](std::int64_t a, std::int64_t b) {
        return std::tie(queue[a], user[a], a) < std::tie(queue[b], user[b], b);
    });
    for (std::int64_t i = 0; i < jobs; ++i) {
        const bool first = i == 0 || !same_user(job_[i - 1], job_[i]);
        user_first[job_[i]] = first ? job_[i] : user_first[job_[i - 1]];
    }
    std::sort(job_.begin(), job_.end(), [&](std::int64_t a, std::int64_t b) {
        return std::tie(place[queue[a]], user_first[a], priority[b], a) <
               std::tie(place[queue[b]], user_first[b], priority[a], b);
    });
    for (std::int64_t i = 0; i < jobs; ++i) {
        const auto job = job_[i], before = i > 0 ? job_[i - 1] : -1;
        const bool new_queue = before < 0 || queue[before] != queue[job];
        const bool new_user = new_queue || !same_user(before, job);
        const bool new_tier = new_user || priority[before] != priority[job];
        const auto users = static_cast<std::int64_t>(users_.size());
        const auto tiers = static_cast<std::int64_t>(tiers_.size());
        Group& own = queues_[place[queue[job]]].users;
        if (new_queue) own = {users, users};
        if (new_user) users_.push_back({tiers, tiers});
        if (new_tier) tiers_.push_back({i, i});
        own.end = static_cast<std::int64_t>(users_.size());
        users_.back().end = static_cast<std::int64_t>(tiers_.size());
        tiers_.back().end = i + 1;
    }
}

void MaxMin::add_queues(const QueueColumns& tree, const std::vector<QueueNode>& nodes) {
    for (const auto& [row, children] : nodes) {
        const auto idle = std::max(tree.idle[row], std::int64_t{0});
        queues_.push_back({children, {}, tree.most[row], idle});
        guaranteed_.push_back(tree.guaranteed[row]);
        weight_.push_back(tree.weight[row]);
        idle_ += idle;
        if (tree.parent[row] < 0) ++top_.end;
    }
}

MaxMin::Levels MaxMin::levels_of(Numbers held, Numbers room) const {
    Levels levels{std::vector<Share>(job_.size()), std::vector<Share>(tiers_.size()),
                  std::vector<Share>(users_.size()), std::vector<Share>(queues_.size())};
    auto& [jobs, tiers, users, queues] = levels;
    for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i] = {held[job_[i]], room[job_[i]], 0};
    auto add_up = [](const Group& group, const std::vector<Share>& parts, Share& whole) {
        for (auto n = group.first; n < group.end; ++n) {
            whole.held += parts[n].held;
            whole.room += parts[n].room;
        }
    };
    for (std::size_t t = 0; t < tiers.size(); ++t) add_up(tiers_[t], jobs, tiers[t]);
    for (std::size_t u = 0; u < users.size(); ++u) add_up(users_[u], tiers, users[u]);
    for (std::size_t q = queues.size(); q-- > 0;) {  // children before parents
        Share& share = queues[q];
        add_up(queues_[q].queues, queues, share);
        add_up(queues_[q].users, users, share);
        const auto left = std::max(queues_[q].most - share.held, std::int64_t{0});
        // Its idle GPUs come last, and only up to its guarantee.
        const auto with_idle = std::min(guaranteed_[q] - share.held, share.room + queues_[q].idle);
        share.room = std::min(std::max(share.room, with_idle), left);
    }
    return levels;
}

void MaxMin::share_out(Levels& levels, const Group& siblings, std::int64_t units) const {
    const auto first = static_cast<std::size_t>(siblings.first);
    const auto count = static_cast<std::size_t>(siblings.end - siblings.first);
    fill(Shares(levels.queues).subspan(first, count), Numbers(guaranteed_).subspan(first, count),
         std::span(weight_).subspan(first, count), units);
}

Counts MaxMin::allocate(Numbers held, Numbers room, std::int64_t gpus) const {
    check(held);
    check(room);
    Levels levels = levels_of(held, room);
    auto& [jobs, tiers, users, queues] = levels;
    auto part = [](std::vector<Share>& shares, const Group& group) {
        return Shares(shares).subspan(group.first, group.end - group.first);
    };
    share_out(levels, top_, gpus);
    for (std::size_t q = 0; q < queues.size(); ++q) {
        // What is beyond the room of its members is idle in the queue itself.
        share_out(levels, queues_[q].queues, queues[q].won);
        fill(part(users, queues_[q].users), queues[q].won);
    }
    for (std::size_t u = 0; u < users.size(); ++u) {
        auto left = users[u].won;
        for (auto t = users_[u].first; t < users_[u].end; ++t) {  // by falling priority
            const auto won = std::min(left, tiers[t].room);
            fill(part(jobs, tiers_[t]), won);
            left -= won;
        }
    }
    Counts won(jobs.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) won[job_[i]] = jobs[i].won;
    return won;
}

std::int64_t MaxMin::usable(Numbers held, Numbers room) const {
    check(held);
    check(room);
    const Levels levels = levels_of(held, room);
    return std::accumulate(levels.queues.begin() + top_.first, levels.queues.begin() + top_.end,
                           std::int64_t{0},
                           [](std::int64_t sum, const Share& share) { return sum + share.room; });
}

Counts MaxMin::allocate_by_type(Numbers held, Numbers tasks, Numbers gpus, Numbers won_before,
                                Numbers most, std::span<const bool> accepts) const {
    const std::size_t jobs = job_.size(), types = gpus.empty() ? 0 : accepts.size() / gpus.size();
    if (types * gpus.size() != accepts.size()) throw std::invalid_argument("no such table");
    check(held);
    check(won_before);
    check(most);
    check(tasks, types);
    Counts won(won_before.begin(), won_before.end()), holds(jobs), room(jobs);
    Fitting fitting(Counts(tasks.begin(), tasks.end()), gpus, accepts);
    auto total = std::accumulate(gpus.begin(), gpus.end(), std::int64_t{0});
    for (std::size_t j = 0; j < jobs; ++j) {
        total -= won[j];
        holds[j] = held[j] + won[j];
    }
    auto with = [&](const Counts& more) {
        Counts sum = won;
        for (std::size_t j = 0; j < jobs; ++j) sum[j] += more[j];
        return sum;
    };
    for (std::int64_t units = 0;;) {
        for (std::size_t j = 0; j < jobs; ++j) {
            room[j] = std::min(most[j], fitting.tasks_of(j)) - won[j];
        }
        // Idle GPUs fit whatever the tasks leave: they count in the total alone.
        const auto all = std::accumulate(room.begin(), room.end(), idle_);
        const std::int64_t limit = std::min(total, all);
        if (limit <= 0) return won;
        const Counts more = with(allocate(holds, room, limit));
        if (fitting.fit(more)) return more;
        // The longest prefix of this allocation that fits; then the tasks are left out of types of
        // which no more fit. That changes no step of the prefix: it skips them.
        std::int64_t beyond = limit;
        while (beyond - units > 1) {
            const std::int64_t middle = std::midpoint(units, beyond);
            (fitting.fit(with(allocate(holds, room, middle))) ? units : beyond) = middle;
        }
        fitting.fit(with(allocate(holds, room, units)));
        fitting.drop_exhausted();
    }
}

void MaxMin::check(Numbers values, std::size_t each) const {
    if (values.size() == job_.size() * each) return;
    throw std::invalid_argument("there are " + std::to_string(job_.size()) + " jobs with " +
                                std::to_string(each) + " values each, but " +
                                std::to_string(values.size()) + " values");
}

}  // namespace headgate::planning
