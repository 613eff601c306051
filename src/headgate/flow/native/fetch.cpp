#include "fetch.hpp"

#include <algorithm>
#include <string>

#include "errors.hpp"

namespace headgate::flow {
namespace {

constexpr std::int64_t kMostPrice = std::int64_t{1} << 40;
constexpr std::int64_t kMostItems = std::int64_t{1} << 20;  // of one unit: sums stay exact

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

void require(bool holds, const char* what) {
    if (!holds) throw BadInput(std::string("fetch: ") + what);
}

void check_offsets(NumbersIn offsets, std::size_t end, const char* what) {
    require(!offsets.empty() && offsets.front() == 0 && at(offsets.back()) == end &&
                std::is_sorted(offsets.begin(), offsets.end()),
            what);
}

void check(const Fetch& fetch) {
    require(fetch.price.size() % 3 == 0, "three prices per item");
    const std::size_t items = fetch.price.size() / 3;
    check_offsets(fetch.first, items, "`first` is not that of units of these items");
    check_offsets(fetch.copy_first, fetch.copies.size(), "`copy_first` is not that of the copies");
    require(fetch.copy_first.size() == items + 1, "`copy_first` is not that of these items");
    const auto leaves = static_cast<std::int64_t>(fetch.region.size());
    for (const std::int64_t leaf : fetch.copies) {
        require(leaf >= 0 && leaf < leaves, "a copy is on no leaf");
    }
    for (const std::int64_t region : fetch.region) {
        require(region >= 0, "a leaf is in no region");
    }
    for (std::size_t i = 0; i < items; ++i) {
        const std::int64_t* price = &fetch.price[3 * i];
        require(price[0] >= 0 && price[0] <= price[1] && price[1] <= price[2] &&
                    price[2] <= kMostPrice,
                "prices are to grow with distance, from 0 to 2^40");
    }
    for (std::size_t u = 0; u + 1 < fetch.first.size(); ++u) {
        require(fetch.first[u + 1] - fetch.first[u] < kMostItems, "a unit fetches 2^20 items");
    }
}

// A copy of an item that a unit fetches: leaves in order of their regions, then the unit's items.
struct Copy {
    std::int64_t rank;
    std::int64_t item;

    bool operator<(const Copy& other) const {
        return rank != other.rank ? rank < other.rank : item < other.item;
    }
};

class Fetching {
   public:
    explicit Fetching(const Fetch& fetch) : fetch_(fetch), by_rank_(fetch.region.size()) {
        for (std::size_t leaf = 0; leaf < by_rank_.size(); ++leaf) {
            by_rank_[leaf] = static_cast<std::int64_t>(leaf);
        }
        std::stable_sort(by_rank_.begin(), by_rank_.end(), [&](std::int64_t a, std::int64_t b) {
            return fetch.region[at(a)] < fetch.region[at(b)];
        });
        rank_.resize(by_rank_.size());
        for (std::size_t rank = 0; rank < by_rank_.size(); ++rank) {
            rank_[at(by_rank_[rank])] = static_cast<std::int64_t>(rank);
        }
        counted_.assign(fetch.price.size() / 3, -1);
    }

    Fetched all() {
        const std::size_t units = fetch_.first.size() - 1;
        found_.anywhere.reserve(units);
        for (std::size_t unit = 0; unit < units; ++unit) {
            gather(unit);
            for (Copies from = copies_.cbegin(); from != copies_.cend();) {
                from = in_region(static_cast<std::int64_t>(unit), from);
            }
        }
        return std::move(found_);
    }

   private:
    using Copies = std::vector<Copy>::const_iterator;

    std::int64_t price(std::int64_t item, std::size_t where) const {
        return fetch_.price[3 * at(item) + where];
    }

    std::int64_t region(const Copy& copy) const {
        return fetch_.region[at(by_rank_[at(copy.rank)])];
    }

    void gather(std::size_t unit) {
        copies_.clear();
        std::int64_t anywhere = 0;
        for (std::int64_t item = fetch_.first[unit]; item < fetch_.first[unit + 1]; ++item) {
            anywhere += price(item, 2);
            for (std::int64_t c = fetch_.copy_first[at(item)]; c < fetch_.copy_first[at(item) + 1];
                 ++c) {
                copies_.push_back({rank_[at(fetch_.copies[at(c)])], item});
            }
        }
        std::sort(copies_.begin(), copies_.end());
        found_.anywhere.push_back(anywhere);
    }

    // Write down the region of a copy and its leaves, where they are cheaper; return what follows.
    Copies in_region(std::int64_t unit, Copies from) {
        const std::int64_t here = region(*from);
        std::int64_t saved = 0;
        Copies end = from;
        for (; end != copies_.end() && region(*end) == here; ++end) {
            if (counted_[at(end->item)] != here) saved += price(end->item, 2) - price(end->item, 1);
            counted_[at(end->item)] = here;  // an item saves once in a region
        }
        const std::int64_t around = found_.anywhere.back() - saved;
        if (saved > 0) {
            found_.region_unit.push_back(unit);
            found_.region.push_back(here);
            found_.region_price.push_back(around);
        }
        while (from != end) {
            const std::int64_t rank = from->rank;
            std::int64_t on_leaf = around;
            for (; from != end && from->rank == rank; ++from) {
                on_leaf -= price(from->item, 1) - price(from->item, 0);
            }
            if (on_leaf < around) {
                found_.leaf_unit.push_back(unit);
                found_.leaf.push_back(by_rank_[at(rank)]);
                found_.leaf_price.push_back(on_leaf);
            }
        }
        return end;
    }

    const Fetch& fetch_;
    Numbers by_rank_, rank_;  // leaves, region after region
    Numbers counted_;         // by item: the last region where it was counted
    std::vector<Copy> copies_;
    Fetched found_;
};

}  // namespace

Fetched fetched(const Fetch& fetch) {
    check(fetch);
    return Fetching(fetch).all();
}

}  // namespace headgate::flow
