// NumPy arrays of 64-bit integers, in and out.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace headgate {

using Ints =
    nanobind::ndarray<const std::int64_t, nanobind::ndim<1>, nanobind::c_contig,
                      nanobind::device::cpu>;
using IntTable =
    nanobind::ndarray<const std::int64_t, nanobind::ndim<2>, nanobind::c_contig,
                      nanobind::device::cpu>;
using NumPyInts = nanobind::ndarray<nanobind::numpy, std::int64_t, nanobind::ndim<1>>;

inline std::span<const std::int64_t> view(const Ints& array) {
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
