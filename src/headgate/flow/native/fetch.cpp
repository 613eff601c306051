#include "fetch.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "errors.hpp"

namespace headgate::flow {
namespace {

constexpr std::int64_t kMostPrice = std::int64_t{1} << 40;
constexpr std::int64_t kMostItems = std::int64_t{1} << 20;  // of one unit, so that sums stay exact

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

void require(bool holds, const char* what) {
    if (!holds) throw BadInput(std::string("fetch: ") + what);
}

void check_offsets(NumbersIn offsets, std::size_t end, const char* what) {
    require(!offsets.empty() && offsets.front() == 0 && at(offsets.back()) == end &&
                std::is_sorted(offsets.begin(), offsets.end()),
            what);
}

void check(const Where& where, std::size_t units, NumbersIn region) {
    require(where.dearer >= 0 &&
                (where.classes == 0 || where.dearer <= kMostPrice / where.classes),
            "a class is not to cost less than one below it, nor 2^40 more than the first");
    const auto regions = where.rows - static_cast<std::int64_t>(region.size()) - 1;
    require(regions >= 0, "`places` has not a row for each leaf, each region, and all there is");
    for (const std::int64_t each : region) {
        require(each >= 0 && each < regions, "a leaf is in no region of `places`");
    }
    require(where.windows > 0 && static_cast<std::int64_t>(where.places.size()) ==
                                     where.rows * where.classes * where.windows,
            "`places` has not a column for each window of each class");
    require(where.type.size() == units, "a type for each unit");
    require(where.shortest.size() == units, "a shortest window for each unit");
    for (const std::int64_t each : where.type) {
        require(each >= 0 && (at(each) + 1) * at(where.classes) <= where.accepts.size(),
                "a type has no row in `accepts`");
    }
    for (const std::int64_t each : where.shortest) {
        require(each >= 0, "a shortest window is negative");
    }
    require(where.own_place.size() == where.own_cost.size() &&
                where.own_place.size() == units * where.own,
            "not as many places as costs of its own for each unit");
}

void check(const Fetch& fetch, const Where& where) {
    const std::size_t items = fetch.size.size();
    check_offsets(fetch.first, items, "`first` is not that of units of these items");
    check_offsets(fetch.copy_first, fetch.copies.size(), "`copy_first` is not that of the copies");
    require(fetch.copy_first.size() == items + 1, "`copy_first` is not that of these items");
    const auto leaves = static_cast<std::int64_t>(fetch.region.size());
    for (const std::int64_t leaf : fetch.copies) {
        require(leaf >= 0 && leaf < leaves, "a copy is on no leaf");
    }
    for (const std::int64_t size : fetch.size) require(size >= 0, "a size is negative");
    require(fetch.price[0] >= 0 && fetch.price[0] <= fetch.price[1] &&
                fetch.price[1] <= fetch.price[2] && std::isfinite(fetch.price[2]),
            "prices are to grow with distance, from 0, and be finite");
    require(fetch.most >= 0 && fetch.most <= kMostPrice, "the most is to be from 0 to 2^40");
    for (std::size_t u = 0; u + 1 < fetch.first.size(); ++u) {
        require(fetch.first[u + 1] - fetch.first[u] < kMostItems, "a unit fetches 2^20 items");
    }
    check(where, fetch.first.size() - 1, fetch.region);
}

// A copy of an item that a unit fetches: leaves in order of their regions, then the unit's items.
struct Copy {
    std::int64_t region, leaf, item;

    auto operator<=>(const Copy& other) const = default;
};

class Fetching {
   public:
    Fetching(const Fetch& fetch, const Where& where)
        : fetch_(fetch),
          where_(where),
          columns_(where.classes * where.windows),
          units_(fetch.first.size() - 1) {
        counted_.assign(fetch.size.size(), -1);
    }

    OptionLists all() {
        // Reserved for up to four classes; memory that is not needed is never touched.
        const std::size_t classes = std::min<std::size_t>(4, at(where_.classes * where_.windows));
        const std::size_t most =
            (2 * fetch_.copies.size() + units_) * classes + where_.own_place.size();
        found_.place.reserve(most);
        found_.cost.reserve(most);
        found_.offsets.reserve(units_ + 1);
        found_.offsets.push_back(0);
        for (std::size_t unit = 0; unit < units_; ++unit) {
            gather(unit);
            for (Copies from = copies_.cbegin(); from != copies_.cend();) from = in_region(from);
            write(unit);
        }
        return std::move(found_);
    }

   private:
    using Copies = std::vector<Copy>::const_iterator;

    struct Offer {
        std::int64_t row, price;
    };

    std::int64_t priced(std::int64_t size, std::size_t where) const {
        const double exact = static_cast<double>(size) * fetch_.price[where];
        return std::llrint(std::min(exact, static_cast<double>(fetch_.most)));
    }

    // The price of an item of the current unit.
    std::int64_t price(std::int64_t item, std::size_t where) const {
        return prices_[at(item - first_)][where];
    }

    void gather(std::size_t unit) {
        copies_.clear();
        on_leaf_.clear();
        in_region_.clear();
        prices_.clear();
        first_ = fetch_.first[unit];
        anywhere_ = 0;
        for (std::int64_t item = first_; item < fetch_.first[unit + 1]; ++item) {
            const std::int64_t size = fetch_.size[at(item)];
            prices_.push_back({priced(size, 0), priced(size, 1), priced(size, 2)});
            anywhere_ += price(item, 2);
            for (std::int64_t c = fetch_.copy_first[at(item)]; c < fetch_.copy_first[at(item) + 1];
                 ++c) {
                const std::int64_t leaf = fetch_.copies[at(c)];
                copies_.push_back({fetch_.region[at(leaf)], leaf, item});
            }
        }
        std::sort(copies_.begin(), copies_.end());
    }

    // Records the region of a copy and its leaves, where they are cheaper; returns the next
    // region's.
    Copies in_region(Copies from) {
        const std::int64_t here = from->region;
        std::int64_t saved = 0;
        Copies end = from;
        for (; end != copies_.end() && end->region == here; ++end) {
            if (counted_[at(end->item)] != here) saved += price(end->item, 2) - price(end->item, 1);
            counted_[at(end->item)] = here;  // an item saves only once in a region
        }
        const std::int64_t around = anywhere_ - saved;
        const auto leaves = static_cast<std::int64_t>(fetch_.region.size());
        if (saved > 0) in_region_.push_back({leaves + here, around});
        while (from != end) {
            const std::int64_t leaf = from->leaf;
            std::int64_t here_too = around;
            for (; from != end && from->leaf == leaf; ++from) {
                here_too -= price(from->item, 1) - price(from->item, 0);
            }
            if (here_too < around) on_leaf_.push_back({leaf, here_too});
        }
        return end;
    }

    void write(std::size_t unit) {
        offer(unit, on_leaf_);
        offer(unit, in_region_);
        const Offer anywhere{where_.rows - 1, anywhere_};
        offer(unit, {&anywhere, 1});
        for (std::size_t n = unit * where_.own; n < (unit + 1) * where_.own; ++n) {
            found_.place.push_back(where_.own_place[n]);
            found_.cost.push_back(where_.own_cost[n]);
        }
        found_.offsets.push_back(static_cast<std::int64_t>(found_.place.size()));
    }

    // Appends the places of each class that the unit accepts and window that it fits, class by class.
    void offer(std::size_t unit, std::span<const Offer> offers) {
        const auto accepts =
            where_.accepts.subspan(at(where_.type[unit] * where_.classes), at(where_.classes));
        std::int64_t below = 0;  // classes that it accepts
        for (std::int64_t kind = 0; kind < where_.classes; ++kind) {
            if (!accepts[at(kind)]) continue;
            for (std::int64_t w = where_.shortest[unit]; w < where_.windows; ++w) {
                const std::int64_t column = kind * where_.windows + w;
                const std::int64_t more = where_.dearer * (below + (w + 1 < where_.windows));
                for (const Offer& each : offers) {
                    const std::int64_t place = where_.places[at(each.row * columns_ + column)];
                    if (place < 0) continue;
                    found_.place.push_back(place);
                    found_.cost.push_back(std::min(each.price, fetch_.most) + more);
                }
            }
            ++below;
        }
    }

    const Fetch& fetch_;
    const Where& where_;
    std::int64_t columns_;  // of `places`
    std::size_t units_;
    Numbers counted_;  // by item: the last region in which it was counted
    // Of the current unit:
    std::int64_t first_ = 0;  // item
    std::vector<std::array<std::int64_t, 3>> prices_;  // of its items
    std::vector<Copy> copies_;
    std::vector<Offer> on_leaf_, in_region_;
    std::int64_t anywhere_ = 0;
    OptionLists found_;
};

}  // namespace

OptionLists fetch_options(const Fetch& fetch, const Where& where) {
    check(fetch, where);
    return Fetching(fetch, where).all();
}

}  // namespace headgate::flow
