// The Python module headgate.base._native: reading columns, and orders of whole numbers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <utility>

#include "order.hpp"
#include "pages.hpp"

namespace nb = nanobind;

namespace headgate::base {
namespace {

using Ints = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using NumPyInts = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>;

NumPyInts numpy(std::vector<std::int64_t>&& values) {
    auto* kept = new std::vector<std::int64_t>(std::move(values));
    const nb::capsule owner(kept, [](void* p) noexcept {
        delete static_cast<std::vector<std::int64_t>*>(p);
    });
    return NumPyInts(kept->data(), {kept->size()}, owner);
}

// `data` are the pages, those opened that hold `rows`.
template <class Item>
void gather(const char* const* data, const Ints& rows, int shift, char* out) {
    const std::int64_t within = (std::int64_t{1} << shift) - 1;
    const std::int64_t* row = rows.data();
    auto* taken = reinterpret_cast<Item*>(out);
    for (std::size_t i = 0, count = rows.size(); i < count; ++i) {
        taken[i] = reinterpret_cast<const Item*>(data[row[i] >> shift])[row[i] & within];
    }
}

void take(nb::tuple pages, const Ints& rows, std::int64_t length, int shift, nb::handle taken) {
    const Bytes out(taken.ptr(), PyBUF_WRITABLE);
    Pages read(std::move(pages));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::int64_t row = rows.data()[i];
        if (row < 0 || row >= length) throw nb::index_error("a row is not of this column");
        read.open(static_cast<std::size_t>(row >> shift));
    }
    const std::size_t item = rows.size() == 0 ? 1 : out.size() / rows.size();
    switch (item) {
        case 1: return gather<std::uint8_t>(read.data(), rows, shift, out.data());
        case 4: return gather<std::uint32_t>(read.data(), rows, shift, out.data());
        case 8: return gather<std::uint64_t>(read.data(), rows, shift, out.data());
        default: throw nb::value_error("items are of 1, 4 or 8 bytes");
    }
}

template <class Item>
void compare(const char* one, const char* other, std::size_t items, std::int64_t first,
             std::vector<std::int64_t>& differ) {
    const auto* a = reinterpret_cast<const Item*>(one);
    const auto* b = reinterpret_cast<const Item*>(other);
    for (std::size_t i = 0; i < items; ++i) {
        if (a[i] != b[i]) differ.push_back(first + static_cast<std::int64_t>(i));
    }
}

NumPyInts differing(nb::tuple pages, nb::tuple others, std::int64_t length, int shift,
                    std::size_t item) {
    Pages here(std::move(pages)), there(std::move(others));
    std::vector<std::int64_t> differ;
    for (std::size_t page = 0; static_cast<std::int64_t>(page) << shift < length; ++page) {
        if (here.object(page) == there.object(page)) continue;
        const std::int64_t first = static_cast<std::int64_t>(page) << shift;
        const auto items = static_cast<std::size_t>(
            std::min(std::int64_t{1} << shift, length - first));
        here.open(page);
        there.open(page);
        const char *one = here.data()[page], *other = there.data()[page];
        switch (item) {
            case 1: compare<std::uint8_t>(one, other, items, first, differ); break;
            case 4: compare<std::uint32_t>(one, other, items, first, differ); break;
            case 8: compare<std::uint64_t>(one, other, items, first, differ); break;
            default: throw nb::value_error("items are of 1, 4 or 8 bytes");
        }
    }
    return numpy(std::move(differ));
}

}  // namespace
}  // namespace headgate::base

NB_MODULE(_native, m) {
    using namespace headgate::base;
    m.def("take", &take, nb::arg("pages"), nb::arg("rows"), nb::arg("length"), nb::arg("shift"),
          nb::arg("taken"));
    m.def("differing", &differing, nb::arg("pages"), nb::arg("others"), nb::arg("length"),
          nb::arg("shift"), nb::arg("item_bytes"));
    m.def("in_order", [](const Ints& values) {
        return numpy(in_order({values.data(), values.size()}));
    }, nb::arg("values"));
    m.def("nth_of_equals", [](const Ints& values) {
        return numpy(nth_of_equals({values.data(), values.size()}));
    }, nb::arg("values"));
}
