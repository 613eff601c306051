#include "order.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <utility>

namespace headgate::base {
namespace {

constexpr int kDigitBits = 11;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

struct Keyed {
    std::uint64_t key;
    std::int64_t index;
};

std::uint64_t above(std::int64_t value, std::int64_t least) {
    return static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(least);
}

// Sorts by one digit, stably.
void pass(const std::vector<Keyed>& from, std::vector<Keyed>& to, int shift) {
    std::array<std::size_t, kDigits> begin{};
    for (const Keyed& each : from) ++begin[(each.key >> shift) % kDigits];
    std::size_t sum = 0;
    for (std::size_t& each : begin) sum += std::exchange(each, sum);
    for (const Keyed& each : from) to[begin[(each.key >> shift) % kDigits]++] = each;
}

// The values less their minimum, sorted: a radix sort, with a pass per digit.
std::vector<Keyed> sorted(Numbers values) {
    if (values.empty()) return {};
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const std::uint64_t range = above(*most, *least);
    std::vector<Keyed> keyed(values.size()), other(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        keyed[i] = {above(values[i], *least), static_cast<std::int64_t>(i)};
    }
    for (int shift = 0; shift < 64 && range >> shift != 0; shift += kDigitBits) {
        pass(keyed, other, shift);
        keyed.swap(other);
    }
    return keyed;
}

}  // namespace

std::vector<std::int64_t> in_order(Numbers values) {
    std::vector<std::int64_t> order;
    order.reserve(values.size());
    for (const Keyed& each : sorted(values)) order.push_back(each.index);
    return order;
}

std::vector<std::int64_t> nth_of_equals(Numbers values) {
    std::vector<std::int64_t> nth(values.size());
    std::int64_t before = 0;
    const Keyed* last = nullptr;
    const std::vector<Keyed> order = sorted(values);
    for (const Keyed& each : order) {
        before = last != nullptr && last->key == each.key ? before + 1 : 0;
        nth[static_cast<std::size_t>(each.index)] = before;
        last = &each;
    }
    return nth;
}

std::vector<std::int64_t> least_of_each(Numbers group, Numbers value, std::int64_t groups,
                                        std::int64_t otherwise) {
    if (group.size() != value.size()) throw std::invalid_argument("each value needs one group");
    std::vector<std::int64_t> least(static_cast<std::size_t>(groups), otherwise);
    for (std::size_t i = 0; i < group.size(); ++i) {
        if (group[i] < 0 || group[i] >= groups) {
            throw std::invalid_argument("there is no such group");
        }
        // Any value of the group: `otherwise` may be less.
        least[static_cast<std::size_t>(group[i])] = value[i];
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
        std::int64_t& held = least[static_cast<std::size_t>(group[i])];
        held = std::min(held, value[i]);
    }
    return least;
}

}  // namespace headgate::base
