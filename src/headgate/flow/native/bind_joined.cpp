// Options put together, as Python sees them.
#include <nanobind/stl/optional.h>

#include <memory>
#include <utility>

#include "arrays.hpp"
#include "bindings.hpp"
#include "errors.hpp"
#include "joined.hpp"

namespace nb = nanobind;

namespace headgate::flow {
namespace {

template <class Item>
using Array = nb::ndarray<const Item, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// What a Python object says, as long as it is there.
Column column(nb::handle values) {
    if (nb::isinstance<nb::int_>(values)) return nb::cast<std::int64_t>(values);
    if (Array<std::int64_t> wide; nb::try_cast(values, wide, false)) return view(wide);
    if (Array<std::int32_t> narrow; nb::try_cast(values, narrow, false)) {
        return std::span<const std::int32_t>(narrow.data(), narrow.size());
    }
    throw BadInput("options: columns are arrays of whole numbers of 32 or 64 bits, or numbers");
}

NumPyInts owned(std::unique_ptr<std::int64_t[]> values, std::size_t size) {
    const nb::capsule owner(values.get(), [](void* p) noexcept {
        delete[] static_cast<std::int64_t*>(p);
    });
    return NumPyInts(values.release(), {size}, owner);
}

nb::tuple joined_options(std::int64_t units, const nb::list& told) {
    std::vector<Part> parts;
    for (const nb::handle one : told) {
        const auto part = nb::cast<nb::tuple>(one);
        const nb::handle counts = part[0];
        parts.push_back({counts.is_none() ? std::nullopt : std::optional(column(counts)),
                         column(part[1]), column(part[2])});
    }
    Joined joined(units, std::move(parts));
    const auto size = static_cast<std::size_t>(joined.offsets().back());
    // Not filled with zeros first: these are the largest arrays there are.
    auto place = std::make_unique_for_overwrite<std::int64_t[]>(size);
    auto cost = std::make_unique_for_overwrite<std::int64_t[]>(size);
    joined.write(place.get(), cost.get());
    return nb::make_tuple(numpy(std::vector(joined.offsets())), owned(std::move(place), size),
                          owned(std::move(cost), size));
}

}  // namespace

void bind_joined(nb::module_& m) {
    m.def("joined_options", &joined_options, nb::arg("units"), nb::arg("parts"));
}

}  // namespace headgate::flow
