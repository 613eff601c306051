// NumPy arrays in, and of 64-bit integers out.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace headgate {

template <class Item>
using Array =
    nanobind::ndarray<const Item, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using Ints = Array<std::int64_t>;
using IntTable =
    nanobind::ndarray<const std::int64_t, nanobind::ndim<2>, nanobind::c_contig,
                      nanobind::device::cpu>;
using BoolTable =
    nanobind::ndarray<const bool, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
using NumPyInts = nanobind::ndarray<nanobind::numpy, std::int64_t, nanobind::ndim<1>>;

template <class Item>
std::span<const Item> view(const Array<Item>& array) {
    return {array.data(), array.size()};
}

inline std::span<const std::int64_t> view(const IntTable& table) {
    return {table.data(), table.size()};
}

inline NumPyInts numpy(std::vector<std::int64_t>&& values) {
    auto* kept = new std::vector<std::int64_t>(std::move(values));
    const nanobind::capsule owner(kept, [](void* p) noexcept {
        delete static_cast<std::vector<std::int64_t>*>(p);
    });
    return NumPyInts(kept->data(), {kept->size()}, owner);
}

}  // namespace headgate
