// The Python module headgate.base._native: reading columns, sorting integers, minima of groups,
// numbers by row.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "arrays.hpp"
#include "columns.hpp"
#include "order.hpp"
#include "rows.hpp"

namespace nb = nanobind;

namespace headgate::base {
namespace {

void bind_rows(nb::module_& m) {
    nb::class_<RowMap>(m, "RowMap")
        .def(nb::init<std::int64_t>(), nb::arg("nothing") = -1)
        .def("__deepcopy__", [](const RowMap& self, nb::handle) { return self; }, nb::arg("memo"))
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
    m.def("lists", &lists, nb::arg("first"), nb::arg("count"), nb::arg("length"),
          nb::arg("numbers"), nb::arg("held"), nb::arg("rows"), nb::arg("shift"));
    m.def("in_order", [](const Ints& values) {
        return numpy(in_order(view(values)));
    }, nb::arg("values"));
    m.def("nth_of_equals", [](const Ints& values) {
        return numpy(nth_of_equals(view(values)));
    }, nb::arg("values"));
    m.def("least_of_each", [](const Ints& group, const Ints& value, std::int64_t groups,
                              std::int64_t otherwise) {
        return numpy(least_of_each(view(group), view(value), groups, otherwise));
    }, nb::arg("group"), nb::arg("value"), nb::arg("groups"), nb::arg("otherwise"));
    bind_rows(m);
}
