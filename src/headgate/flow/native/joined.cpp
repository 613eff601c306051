#include "joined.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>

#include "errors.hpp"

namespace headgate::flow {
namespace {

constexpr std::int64_t kMostUnits = std::int64_t{1} << 31;  // and options of one: sums stay exact

std::size_t checked(std::int64_t units) {
    if (units < 0 || units >= kMostUnits) throw BadInput("options: not that many units");
    return static_cast<std::size_t>(units);
}

template <class Values>
constexpr bool kIsOne = std::is_same_v<Values, std::int64_t>;

void check_length(const Column& column, std::int64_t length, const char* what) {
    std::visit(
        [&]<class Values>(const Values& values) {
            if constexpr (!kIsOne<Values>) {
                const auto size = static_cast<std::int64_t>(values.size());
                if (size == length) return;
                throw BadInput("options: " + std::to_string(size) + " " + what + " where " +
                               std::to_string(length) + " are needed");
            }
        },
        column);
}

std::vector<std::int64_t> counted(const Part& part, std::int64_t units) {
    const Column counts = part.counts.value_or(Column(std::int64_t{1}));
    check_length(counts, units, "counts");
    std::vector<std::int64_t> read(static_cast<std::size_t>(units));
    std::visit(
        [&]<class Values>(const Values& values) {
            if constexpr (kIsOne<Values>) {
                std::fill(read.begin(), read.end(), values);
            } else {
                std::copy(values.begin(), values.end(), read.begin());
            }
        },
        counts);
    const bool fit = std::ranges::all_of(
        read, [](std::int64_t each) { return each >= 0 && each < kMostUnits; });
    if (!fit) throw BadInput("options: a unit with less than none, or with 2^31 and more");
    return read;
}

// Writes what a part says of the options of each unit, from where that has room on.
void write_column(const Column& column, const std::vector<std::int64_t>& counts,
                  const std::vector<std::int64_t>& room, std::int64_t* out) {
    std::visit(
        [&]<class Values>(const Values& values) {
            std::size_t next = 0;
            for (std::size_t unit = 0; unit < counts.size(); ++unit) {
                std::int64_t* to = out + room[unit];
                for (std::int64_t left = counts[unit]; left > 0; --left) {
                    if constexpr (kIsOne<Values>) *to++ = values;
                    else *to++ = values[next++];
                }
            }
        },
        column);
}

}  // namespace

Joined::Joined(std::int64_t units, std::vector<Part> parts)
    : parts_(std::move(parts)), offsets_(checked(units) + 1) {
    for (const Part& part : parts_) {
        const Numbers& counts = counts_.emplace_back(counted(part, units));
        const std::int64_t options = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        check_length(part.place, options, "places");
        check_length(part.cost, options, "costs");
        for (std::size_t unit = 0; unit < counts.size(); ++unit) offsets_[unit + 1] += counts[unit];
    }
    std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
}

void Joined::write(std::int64_t* place, std::int64_t* cost) const {
    Numbers room(offsets_.begin(), offsets_.end() - 1);
    for (std::size_t n = 0; n < parts_.size(); ++n) {
        write_column(parts_[n].place, counts_[n], room, place);
        write_column(parts_[n].cost, counts_[n], room, cost);
        for (std::size_t unit = 0; unit < room.size(); ++unit) room[unit] += counts_[n][unit];
    }
}

}  // namespace headgate::flow
