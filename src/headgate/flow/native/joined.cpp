#include "joined.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <type_traits>

#include "errors.hpp"

namespace headgate::flow {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kMostUnits = std::int64_t{1} << 31;  // and options of one: sums stay exact

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

// Appends `count` numbers of a column, starting at `from`.
void append(const Column& column, std::int64_t from, std::int64_t count, Numbers& to) {
    std::visit(
        [&]<class Values>(const Values& values) {
            for (std::int64_t i = from; i < from + count; ++i) {  // few: faster than `insert`
                if constexpr (kIsOne<Values>) to.push_back(values);
                else to.push_back(values[static_cast<std::size_t>(i)]);
            }
        },
        column);
}

// Returns the number of options of each unit; checks that a part has places and costs for them.
Numbers counted(const Part& part, std::int64_t units) {
    check_length(part.counts, units, "counts");
    Numbers counts;
    append(part.counts, 0, units, counts);
    const bool fit = std::ranges::all_of(
        counts, [](std::int64_t each) { return each >= 0 && each < kMostUnits; });
    if (!fit) throw BadInput("options: a unit with less than none, or with 2^31 and more");
    const std::int64_t options = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    check_length(part.place, options, "places");
    check_length(part.cost, options, "costs");
    return counts;
}

}  // namespace

OptionLists joined_options(std::int64_t units, std::span<const Part> parts) {
    if (units < 0 || units >= kMostUnits) throw BadInput("options: not that many units");
    std::vector<Numbers> counts;
    std::size_t options = 0;
    for (const Part& part : parts) {
        const Numbers& each = counts.emplace_back(counted(part, units));
        options += std::accumulate(each.begin(), each.end(), std::size_t{0});
    }
    OptionLists joined;
    joined.offsets.reserve(static_cast<std::size_t>(units) + 1);
    joined.offsets.push_back(0);
    joined.place.reserve(options);
    joined.cost.reserve(options);
    Numbers read(parts.size());
    for (std::size_t unit = 0; unit < static_cast<std::size_t>(units); ++unit) {
        for (std::size_t n = 0; n < parts.size(); ++n) {
            append(parts[n].place, read[n], counts[n][unit], joined.place);
            append(parts[n].cost, read[n], counts[n][unit], joined.cost);
            read[n] += counts[n][unit];
        }
        joined.offsets.push_back(static_cast<std::int64_t>(joined.place.size()));
    }
    return joined;
}

}  // namespace headgate::flow
