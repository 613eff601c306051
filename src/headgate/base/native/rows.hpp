// A map from rows to integers for a narrow range of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headgate::base {

// Dense, from the first row that has a number to the last one. Throws std::invalid_argument, and
// changes nothing, where a row is negative or there is not one number for each row.
class RowMap {
public:
    using Numbers = std::span<const std::int64_t>;

    // Rows that were never set have `nothing`.
    explicit RowMap(std::int64_t nothing) : nothing_(nothing) {}

    std::vector<std::int64_t> get(Numbers rows) const;

    // Of equal rows the last one wins.
    void set(Numbers rows, Numbers numbers);
    void set(Numbers rows, std::int64_t number);

    // A row may be given several times; each one counts.
    void add(Numbers rows, Numbers numbers);
    void add(Numbers rows, std::int64_t number);

private:
    void hold(Numbers rows);
    std::int64_t& at(std::int64_t row) { return numbers_[static_cast<std::size_t>(row - first_)]; }

    std::int64_t nothing_;
    std::int64_t first_ = 0;
    std::vector<std::int64_t> numbers_;  // of rows from `first_` on
};

}  // namespace headgate::base
