#include "rows.hpp"

#include <algorithm>
#include <stdexcept>

namespace headgate::base {
namespace {

void check_lengths(RowMap::Numbers rows, RowMap::Numbers numbers) {
    if (rows.size() != numbers.size()) throw std::invalid_argument("each row needs one number");
}

}  // namespace

std::vector<std::int64_t> RowMap::get(Numbers rows) const {
    std::vector<std::int64_t> found(rows.size());
    const auto first = static_cast<std::uint64_t>(first_);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        // A row before the first one wraps around, far beyond the last one.
        const std::uint64_t at = static_cast<std::uint64_t>(rows[i]) - first;
        found[i] = at < numbers_.size() ? numbers_[at] : nothing_;
    }
    return found;
}

void RowMap::set(Numbers rows, Numbers numbers) {
    check_lengths(rows, numbers);
    hold(rows);
    for (std::size_t i = 0; i < rows.size(); ++i) at(rows[i]) = numbers[i];
}

void RowMap::set(Numbers rows, std::int64_t number) {
    hold(rows);
    for (const std::int64_t row : rows) at(row) = number;
}

void RowMap::add(Numbers rows, Numbers numbers) {
    check_lengths(rows, numbers);
    hold(rows);
    for (std::size_t i = 0; i < rows.size(); ++i) at(rows[i]) += numbers[i];
}

void RowMap::add(Numbers rows, std::int64_t number) {
    hold(rows);
    for (const std::int64_t row : rows) at(row) += number;
}

// Makes room for rows. In front it grows by half at least, so that numbers move rarely; at the end
// the vector does so itself.
void RowMap::hold(Numbers rows) {
    if (rows.empty()) return;
    const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
    if (*least < 0) throw std::invalid_argument("a row is negative");
    if (numbers_.empty()) first_ = *least;
    if (*least < first_) {
        const auto half = static_cast<std::int64_t>(numbers_.size() / 2);
        const std::int64_t first = std::min(*least, std::max<std::int64_t>(first_ - half, 0));
        numbers_.insert(numbers_.begin(), static_cast<std::size_t>(first_ - first), nothing_);
        first_ = first;
    }
    const auto size = static_cast<std::size_t>(*most - first_) + 1;
    if (size > numbers_.size()) numbers_.resize(size, nothing_);
}

}  // namespace headgate::base
