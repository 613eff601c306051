// The Python module headgate.base._native: reading columns, orders of whole numbers,
// numbers by row.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "order.hpp"
#include "pages.hpp"
#include "rows.hpp"

namespace nb = nanobind;

namespace headgate::base {
namespace {

// Call `act` with a number of so many bytes.
template <class Act>
void with_item(std::size_t bytes, Act act) {
    switch (bytes) {
        case 1: return act(std::uint8_t{});
        case 4: return act(std::uint32_t{});
        case 8: return act(std::uint64_t{});
        default: throw nb::value_error("items are of 1, 4 or 8 bytes");
    }
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
    if (rows.size() == 0) return;
    with_item(out.size() / rows.size(), [&](auto item) {
        gather<decltype(item)>(read.data(), rows, shift, out.data());
    });
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
                    std::size_t item_bytes) {
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
        with_item(item_bytes, [&](auto item) {
            compare<decltype(item)>(one, other, items, first, differ);
        });
    }
    return numpy(std::move(differ));
}

void bind_rows(nb::module_& m) {
    nb::class_<RowMap>(m, "RowMap")
        .def(nb::init<std::int64_t>(), nb::arg("nothing") = -1)
        .def("__getitem__",
             [](const RowMap& self, const Ints& rows) { return numpy(self.get(view(rows))); },
             nb::arg("rows"))
        .def("__setitem__",
             [](RowMap& self, const Ints& rows, std::int64_t number) {
                 self.set(view(rows), number);
             },
             nb::arg("rows"), nb::arg("numbers"))
        .def("__setitem__",
             [](RowMap& self, const Ints& rows, const Ints& numbers) {
                 self.set(view(rows), view(numbers));
             },
             nb::arg("rows"), nb::arg("numbers"))
        .def("add",
             [](RowMap& self, const Ints& rows, std::int64_t number) {
                 self.add(view(rows), number);
             },
             nb::arg("rows"), nb::arg("numbers"))
        .def("add",
             [](RowMap& self, const Ints& rows, const Ints& numbers) {
                 self.add(view(rows), view(numbers));
             },
             nb::arg("rows"), nb::arg("numbers"));
}

}  // namespace
}  // namespace headgate::base

NB_MODULE(_native, m) {
    using namespace headgate;
    using namespace headgate::base;
    m.def("take", &take, nb::arg("pages"), nb::arg("rows"), nb::arg("length"), nb::arg("shift"),
          nb::arg("taken"));
    m.def("differing", &differing, nb::arg("pages"), nb::arg("others"), nb::arg("length"),
          nb::arg("shift"), nb::arg("item_bytes"));
    m.def("in_order", [](const Ints& values) {
        return numpy(in_order(view(values)));
    }, nb::arg("values"));
    m.def("nth_of_equals", [](const Ints& values) {
        return numpy(nth_of_equals(view(values)));
    }, nb::arg("values"));
    bind_rows(m);
}
