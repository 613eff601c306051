// Options of units put together from several parts, unit by unit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace headgate::flow {

// Whole numbers, one after the other; or one number for all.
using Column =
    std::variant<std::span<const std::int32_t>, std::span<const std::int64_t>, std::int64_t>;

// Options in the order of their units: so many of each unit, or one of each.
struct Part {
    std::optional<Column> counts;
    Column place, cost;
};

class Joined {
   public:
    // O(units x parts). Throws BadInput where a part does not match so many units.
    Joined(std::int64_t units, std::vector<Part> parts);

    // The options of unit u are [offsets[u], offsets[u + 1]), part after part.
    const std::vector<std::int64_t>& offsets() const { return offsets_; }

    // Writes all of them. O(options + units x parts).
    void write(std::int64_t* place, std::int64_t* cost) const;

   private:
    using Numbers = std::vector<std::int64_t>;

    std::vector<Part> parts_;
    std::vector<Numbers> counts_;  // by part and unit
    Numbers offsets_;
};

}  // namespace headgate::flow
