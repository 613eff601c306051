#include "units.hpp"

#include <algorithm>

namespace headgate::flow::laminar {

std::vector<Unit> Units::add(std::span<const std::int64_t> offsets,
                             std::span<const std::int64_t> place,
                             std::span<const std::int64_t> cost) {
    const auto count = static_cast<std::int64_t>(offsets.size()) - 1;
    std::vector<Unit> added(count);
    const auto reused = std::min<std::int64_t>(count, free_.size());
    for (std::int64_t i = 0; i < reused; ++i) {
        added[i] = free_.back();
        free_.pop_back();
    }
    for (std::int64_t i = reused; i < count; ++i) added[i] = size() + static_cast<Unit>(i - reused);
    records_.resize(records_.size() + (count - reused));
    const auto base = static_cast<std::int64_t>(options_.size());
    options_.resize(options_.size() + place.size());
    for (std::int64_t i = 0; i < count; ++i) {
        const auto first = static_cast<std::size_t>(offsets[i]);
        const auto size = static_cast<std::size_t>(offsets[i + 1]) - first;
        records_[added[i]] = Record{};
        take_options(added[i], place.subspan(first, size), cost.subspan(first, size),
                     base + offsets[i]);
    }
    alive_ += count;
    list(added);
    return added;
}

void Units::replace(Unit t, std::span<const std::int64_t> place,
                    std::span<const std::int64_t> cost) {
    for (const Option& option : options(t)) {
        if (forest_.is_listed(option.what)) {
            std::erase_if(listed_[option.what], [&](const Listed& each) { return each.what == t; });
        }
    }
    used_ -= records_[t].size;
    const auto first = static_cast<std::int64_t>(options_.size());
    options_.resize(options_.size() + place.size());
    take_options(t, place, cost, first);
    list({&t, 1});
}

void Units::reprice(Place v, std::span<const std::int64_t> units,
                    std::span<const std::int64_t> cost) {
    for (std::size_t i = 0; i < units.size(); ++i) {
        auto& unit = records_[units[i]];
        for (auto n = unit.first; n < unit.first + unit.size; ++n) {
            if (options_[n].what == v) options_[n] = Option(v, cost[i]);
        }
        if (!forest_.is_wide(v)) sort_options(unit);
    }
    if (!forest_.is_listed(v)) return;
    costs_.resize(records_.size(), kUnknown);
    for (std::size_t i = 0; i < units.size(); ++i) costs_[units[i]] = cost[i];
    for (Listed& each : listed_[v]) {
        if (costs_[each.what] != kUnknown) each = Listed(each.what, costs_[each.what]);
    }
    for (const auto t : units) costs_[t] = kUnknown;
}

void Units::take_options(Unit t, std::span<const std::int64_t> place,
                         std::span<const std::int64_t> cost, std::int64_t first) {
    auto& unit = records_[t];
    unit.first = first;
    unit.size = static_cast<std::int32_t>(place.size());
    unit.alive = true;
    used_ += unit.size;
    for (std::size_t i = 0; i < place.size(); ++i) {
        options_[first + i] = Option(forest_.inner(place[i]), cost[i]);
    }
    sort_options(unit);
}

void Units::sort_options(Record& unit) {
    Option* first = options_.data() + unit.first;
    Option* last = first + unit.size;
    Option* deeper = first;
    for (Option* option = first; option != last; ++option) {
        if (forest_.is_wide(option->what)) std::swap(*deeper++, *option);
    }
    unit.wide = static_cast<std::int32_t>(deeper - first);
    for (Option* option = deeper; option != last; ++option) {  // few: insertion is fastest
        const Option moving = *option;
        Option* to = option;
        for (; to != deeper && moving.cost() < to[-1].cost(); --to) *to = to[-1];
        *to = moving;
    }
}

void Units::list(std::span<const Unit> units) {
    if (units.size() > static_cast<std::size_t>(forest_.size())) {  // reserve once
        std::vector<std::size_t> more(forest_.size());
        for (const Unit t : units) {
            for (const Option& option : options(t)) ++more[option.what];
        }
        for (Place v = 0; v < forest_.size(); ++v) {
            if (more[v] && forest_.is_listed(v)) listed_[v].reserve(listed_[v].size() + more[v]);
        }
    }
    for (const Unit t : units) {
        for (const Option& option : options(t)) {
            if (forest_.is_listed(option.what)) {
                listed_[option.what].push_back(Listed(t, option.cost()));
            }
        }
    }
}

void Units::renumber(const std::vector<Place>& now) {
    std::vector<std::vector<Unit>> members(forest_.size() + 1);
    for (std::size_t v = 0; v < now.size(); ++v) members[now[v]] = std::move(members_[v]);
    members_ = std::move(members);
    only_member_.assign(members_.size(), kNowhere);
    for (std::size_t v = 0; v < members_.size(); ++v) {
        if (members_[v].size() == 1) only_member_[v] = members_[v].front();
    }
    for (Option& option : options_) option.what = now[option.what];
    std::vector<Unit> alive;
    for (Unit t = 0; t < size(); ++t) {
        if (records_[t].at != kNowhere) records_[t].at = now[records_[t].at];
        if (!records_[t].alive) continue;
        sort_options(records_[t]);  // a place may have become wide
        alive.push_back(t);
    }
    listed_.assign(forest_.size(), {});
    list(alive);
}

void Units::remove(Unit t) {
    records_[t].alive = false;
    used_ -= records_[t].size;
    --alive_;
    ++dead_;
    gone_.push_back(t);
}

void Units::compact_if_needed() {
    const auto held = static_cast<std::int64_t>(options_.size());
    if (held < 2 * used_ + 1024 && dead_ < alive_ + 1024) return;
    for (Place v = 0; v < forest_.size(); ++v) each_listed(v, [](Unit, Cost) {});
    std::vector<Option> kept;
    for (auto& unit : records_) {
        if (!unit.alive) continue;
        const auto first = static_cast<std::int64_t>(kept.size());
        kept.insert(kept.end(), options_.begin() + unit.first,
                    options_.begin() + unit.first + unit.size);
        unit.first = first;
    }
    options_ = std::move(kept);
    std::sort(gone_.begin(), gone_.end(), std::greater<>{});
    free_.insert(free_.end(), gone_.begin(), gone_.end());
    gone_.clear();
    dead_ = 0;
}

}  // namespace headgate::flow::laminar
