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

}  // namespace

MaxMin::MaxMin(Numbers queue, Numbers user, Numbers priority, std::span<const double> weight,
               Numbers max_gpus) {
    const auto jobs = static_cast<std::int64_t>(queue.size());
    if (user.size() != queue.size() || priority.size() != queue.size() ||
        weight.size() != max_gpus.size()) {
        throw std::invalid_argument("queue, user and priority have one value per job, weight and "
                                    "max_gpus one per queue");
    }
    for (const auto row : queue) {
        if (row < 0 || row >= static_cast<std::int64_t>(weight.size())) {
            throw std::invalid_argument("there is no queue " + std::to_string(row));
        }
    }
    job_.resize(jobs);
    std::iota(job_.begin(), job_.end(), 0);
    // The first job of each queue, and of the user of each job.
    Counts queue_first(weight.size(), jobs), user_first(jobs);
    for (std::int64_t j = jobs; j-- > 0;) queue_first[queue[j]] = j;
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
        return std::tie(queue_first[queue[a]], user_first[a], priority[b], a) <
               std::tie(queue_first[queue[b]], user_first[b], priority[a], b);
    });
    for (std::int64_t i = 0; i < jobs; ++i) {
        const auto job = job_[i], before = i > 0 ? job_[i - 1] : -1;
        const bool new_queue = before < 0 || queue[before] != queue[job];
        const bool new_user = new_queue || !same_user(before, job);
        const bool new_tier = new_user || priority[before] != priority[job];
        const auto users = static_cast<std::int64_t>(users_.size());
        const auto tiers = static_cast<std::int64_t>(tiers_.size());
        if (new_queue) {
            queues_.push_back({users, users});
            weight_.push_back(weight[queue[job]]);
            max_gpus_.push_back(max_gpus[queue[job]]);
        }
        if (new_user) users_.push_back({tiers, tiers});
        if (new_tier) tiers_.push_back({i, i});
        queues_.back().end = static_cast<std::int64_t>(users_.size());
        users_.back().end = static_cast<std::int64_t>(tiers_.size());
        tiers_.back().end = i + 1;
    }
}

Counts MaxMin::allocate(Numbers held, Numbers room, std::int64_t gpus) const {
    check(held);
    check(room);
    std::vector<Share> jobs(job_.size()), tiers(tiers_.size()), users(users_.size()),
        queues(queues_.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i] = {held[job_[i]], room[job_[i]], 0};
    auto add_up = [](std::span<const Group> groups, Shares parts, Shares whole) {
        for (std::size_t i = 0; i < groups.size(); ++i) {
            for (auto n = groups[i].first; n < groups[i].end; ++n) {
                whole[i].held += parts[n].held;
                whole[i].room += parts[n].room;
            }
        }
    };
    add_up(tiers_, jobs, tiers);
    add_up(users_, tiers, users);
    add_up(queues_, users, queues);
    for (std::size_t q = 0; q < queues.size(); ++q) {
        queues[q].room = std::clamp(max_gpus_[q] - queues[q].held, std::int64_t{0}, queues[q].room);
    }
    auto part = [](std::vector<Share>& shares, const Group& group) {
        return Shares(shares).subspan(group.first, group.end - group.first);
    };
    fill(queues, weight_, gpus);
    for (std::size_t q = 0; q < queues.size(); ++q) fill(part(users, queues_[q]), queues[q].won);
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

Counts MaxMin::allocate_by_class(Numbers held, Numbers tasks, Numbers gpus,
                                 Numbers won_before) const {
    const std::size_t jobs = job_.size(), classes = gpus.size();
    check(held);
    check(won_before);
    check(tasks, classes);
    Counts won(won_before.begin(), won_before.end()), room(jobs), holds(jobs);
    Counts below(tasks.size()), at_least(classes);  // tasks of smaller classes; GPUs of larger ones
    for (std::size_t j = 0; j < jobs; ++j) {
        std::int64_t sum = 0;
        for (std::size_t k = 0; k < classes; ++k) {
            below[j * classes + k] = sum;
            sum += tasks[j * classes + k];
        }
        room[j] = sum - won[j];
        holds[j] = held[j] + won[j];
    }
    std::int64_t total = 0;
    for (std::size_t k = classes; k-- > 0;) at_least[k] = total += gpus[k];
    for (const auto each : won) total -= each;
    // The first class, if any, of which, with those above, more tasks would be served than there
    // are GPUs.
    auto exhausted = [&](const Counts& more) {
        for (std::size_t k = 0; k < classes; ++k) {
            std::int64_t need = 0;
            for (std::size_t j = 0; j < jobs; ++j) {
                need += std::max<std::int64_t>(won[j] + more[j] - below[j * classes + k], 0);
            }
            if (need > at_least[k]) return k;
        }
        return classes;
    };
    for (std::int64_t units = 0;;) {
        const auto all = std::accumulate(room.begin(), room.end(), std::int64_t{0});
        const std::int64_t most = std::min(total, all);
        if (most <= 0) return won;
        const Counts more = allocate(holds, room, most);
        if (exhausted(more) == classes) {
            for (std::size_t j = 0; j < jobs; ++j) won[j] += more[j];
            return won;
        }
        // The longest prefix of this allocation that fits; then the room of each job is limited by
        // the exhausted class. That changes no step of the prefix: a job limited now was skipped
        // there.
        std::int64_t beyond = most;
        while (beyond - units > 1) {
            const std::int64_t middle = std::midpoint(units, beyond);
            (exhausted(allocate(holds, room, middle)) < classes ? beyond : units) = middle;
        }
        const std::size_t limit = exhausted(allocate(holds, room, beyond));
        const Counts part = allocate(holds, room, units);
        for (std::size_t j = 0; j < jobs; ++j) {
            room[j] = std::min(room[j], std::max(part[j], below[j * classes + limit] - won[j]));
        }
    }
}

void MaxMin::check(Numbers values, std::size_t each) const {
    if (values.size() == job_.size() * each) return;
    throw std::invalid_argument("there are " + std::to_string(job_.size()) + " jobs with " +
                                std::to_string(each) + " values each, but " +
                                std::to_string(values.size()) + " values");
}

}  // namespace headgate::planning
