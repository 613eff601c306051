// The units, their options, their places, and the units at each place.
#pragma once

#include <span>
#include <vector>

#include "forest.hpp"
#include "types.hpp"

namespace headgate::flow::laminar {

class UnitsData {
public:
    struct Record {
        std::int64_t first = 0;   // its options: [first, first + size)
        std::int32_t size = 0;
        std::int32_t wide = 0;    // the first ones are at wide places; the others follow by cost
        Place at = kNowhere;      // the place of its chosen option; the sink if it fits nowhere;
                                  // kNowhere while it is to be placed
        std::int32_t slot = 0;    // its position in `members(at)`
        Cost paid = 0;            // the cost of its chosen option
        Cost move_cost = kUnknown;        // lower bound on its cheapest move (see zones.hpp)
        std::uint32_t read = 0;   // the search that read its options
        bool alive = false;
        bool pending = false;     // whether the next plan is to find its place
    };

protected:
    std::vector<Record> records_;
    std::vector<Option> options_;
    std::vector<std::vector<Unit>> members_;
    std::vector<Unit> only_member_;
    std::vector<std::vector<Listed>> listed_;
    std::vector<Unit> free_;  // numbers to be reused: no list contains them
    std::vector<Unit> gone_;  // numbers that lists may still contain
    std::vector<Cost> costs_;  // by unit, during `reprice`; kUnknown for the others
    std::int64_t alive_ = 0, dead_ = 0;
    std::int64_t used_ = 0;  // options of units that are alive
};

class Units : public UnitsData {
public:
    explicit Units(const Forest& forest) : forest_(forest) {
        members_.resize(forest.size() + 1);
        only_member_.resize(forest.size() + 1, kNowhere);
        listed_.resize(forest.size());
    }
    Units(const Units& other, const Forest& forest) : UnitsData(other), forest_(forest) {}

    Unit size() const { return static_cast<Unit>(records_.size()); }
    std::int64_t alive() const { return alive_; }
    std::int64_t options_in_use() const { return used_; }  // of those
    bool is_alive(std::int64_t unit) const {
        return unit >= 0 && unit < size() && records_[unit].alive;
    }
    Record& operator[](Unit t) { return records_[t]; }
    const Record& operator[](Unit t) const { return records_[t]; }
    std::span<const Option> options(Unit t) const {
        return {options_.data() + records_[t].first, static_cast<std::size_t>(records_[t].size)};
    }
    const Option* option_data() const { return options_.data(); }

    std::int64_t listed_at(Place v) const { return static_cast<std::int64_t>(listed_[v].size()); }
    const std::vector<Unit>& members(Place v) const { return members_[v]; }
    // The only unit there; kNowhere where there are none or several.
    Unit only_member(Place v) const { return only_member_[v]; }

    // Adds unplaced units with these options (CSR, the caller's numbers of places); returns the
    // units.
    std::vector<Unit> add(std::span<const std::int64_t> offsets,
                          std::span<const std::int64_t> place,
                          std::span<const std::int64_t> cost);
    // Gives an unplaced unit other options. O(units listed where it had options).
    void replace(Unit t, std::span<const std::int64_t> place, std::span<const std::int64_t> cost);
    // Sets the cost of all options of these units at v. O(units listed there + their options).
    void reprice(Place v, std::span<const std::int64_t> units, std::span<const std::int64_t> cost);
    // Removes an unplaced unit. Lists still contain it until they are next read or compacted.
    void remove(Unit t);

    // Calls `see(unit, cost)` for each unit with an option at v; drops removed units. Returns their
    // number.
    template <class See>
    std::int64_t each_listed(Place v, See see) {
        auto& list = listed_[v];
        std::size_t kept = 0;
        for (std::size_t i = 0; i < list.size(); ++i) {
            const Listed each = list[i];
            if (i + kAhead < list.size()) __builtin_prefetch(&records_[list[i + kAhead].what].at);
            if (dead_ > 0) {
                if (!records_[each.what].alive) continue;
                list[kept] = each;
            }
            ++kept;
            see(each.what, each.cost());
        }
        list.resize(kept);
        return static_cast<std::int64_t>(kept);
    }

    // Prefetch a unit, or its options.
    void fetch(Unit t) const { __builtin_prefetch(&records_[t]); }
    void fetch_options(Unit t) const {
        __builtin_prefetch(options_.data() + records_[t].first);
    }

    void put(Unit t, Place v, Cost cost) {
        auto& unit = records_[t];
        unit.at = v;
        unit.paid = cost;
        unit.slot = static_cast<std::int32_t>(members_[v].size());
        members_[v].push_back(t);
        only_member_[v] = unit.slot == 0 ? t : kNowhere;
    }
    void take(Unit t) {
        auto& unit = records_[t];
        auto& members = members_[unit.at];
        const Unit last = members.back();
        members[unit.slot] = last;
        records_[last].slot = unit.slot;
        members.pop_back();
        only_member_[unit.at] = members.size() == 1 ? members[0] : kNowhere;
        unit.at = kNowhere;
    }

    // Renumbers the places: `now[v]` is the new number of v. Lists are rebuilt.
    void renumber(const std::vector<Place>& now);

    // Frees the memory of removed units, once it is as much as that in use.
    void compact_if_needed();

private:
    static constexpr std::size_t kAhead = 8;  // prefetch distance in lists

    void take_options(Unit t, std::span<const std::int64_t> place,
                      std::span<const std::int64_t> cost, std::int64_t first);
    void sort_options(Record& unit);
    void list(std::span<const Unit> units);

    const Forest& forest_;
};

}  // namespace headgate::flow::laminar
