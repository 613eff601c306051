// Reading columns: their pages hold `2^shift` rows each. Only pages that are read are opened.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

#include "arrays.hpp"

namespace headgate::base {

// Read rows into the array `taken`, of items of 1, 4 or 8 bytes.
void take(nanobind::tuple pages, const Ints& rows, std::int64_t length, int shift,
          nanobind::handle taken);

// The rows below `length` whose bits differ; pages that are one object are not read.
NumPyInts differing(nanobind::tuple pages, nanobind::tuple others, std::int64_t length, int shift,
                    std::size_t item_bytes);

// The lists of these rows, in CSR form: offsets `[rows + 1]`, and their numbers. The list of a row
// is `count` (32 bits) of the `held` numbers (32 bits) from `first` (64 bits) on.
nanobind::tuple lists(nanobind::tuple first, nanobind::tuple count, std::int64_t length,
                      nanobind::tuple numbers, std::int64_t held, const Ints& rows, int shift);

}  // namespace headgate::base
