// The Python bindings of options of units.
#include <nanobind/stl/array.h>

#include <array>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "errors.hpp"
#include "fetch.hpp"
#include "joined.hpp"

namespace nb = nanobind;

namespace headgate::flow {
namespace {

nb::tuple as_tuple(OptionLists&& lists) {
    return nb::make_tuple(numpy(std::move(lists.offsets)), numpy(std::move(lists.place)),
                          numpy(std::move(lists.cost)));
}

nb::tuple fetched(const Ints& first, const Ints& size, std::array<double, 3> price,
                  std::int64_t most, const Ints& copy_first, const Ints& copies,
                  const Ints& region, const Ints& type, const BoolTable& accepts,
                  const Ints& shortest, std::int64_t windows, const IntTable& places,
                  std::int64_t dearer,
                  const IntTable& own_place, const IntTable& own_cost) {
    OptionLists found;
    {
        const nb::gil_scoped_release released;
        const auto rows = static_cast<std::int64_t>(places.shape(0));
        const auto columns = static_cast<std::int64_t>(places.shape(1));
        const std::int64_t classes = windows > 0 ? columns / windows : columns;
        found = fetch_options(
            {view(first), view(size), price, most, view(copy_first), view(copies), view(region)},
            {view(type), view(shortest), view(places), {accepts.data(), accepts.size()}, rows,
             classes, windows, dearer, own_place.shape(1), view(own_place), view(own_cost)});
    }
    return as_tuple(std::move(found));
}

// A view of a Python object's numbers, valid as long as the object lives.
Column column(nb::handle values) {
    if (nb::isinstance<nb::int_>(values)) return nb::cast<std::int64_t>(values);
    if (Array<std::int64_t> wide; nb::try_cast(values, wide, false)) return view(wide);
    if (Array<std::int32_t> narrow; nb::try_cast(values, narrow, false)) return view(narrow);
    throw BadInput("options: columns are arrays of whole numbers of 32 or 64 bits, or numbers");
}

nb::tuple joined(std::int64_t units, const nb::list& given) {
    std::vector<Part> parts;
    for (const nb::handle one : given) {
        const auto part = nb::cast<nb::tuple>(one);
        parts.push_back({column(part[0]), column(part[1]), column(part[2])});
    }
    return as_tuple(joined_options(units, parts));
}

}  // namespace

void bind_options(nb::module_& m) {
    m.def("fetch_options", &fetched, nb::kw_only(), nb::arg("first"), nb::arg("size"),
          nb::arg("price"), nb::arg("most"), nb::arg("copy_first"), nb::arg("copies"),
          nb::arg("region"), nb::arg("unit_type"), nb::arg("accepts"), nb::arg("shortest"),
          nb::arg("windows"), nb::arg("places"), nb::arg("dearer"), nb::arg("own_place"),
          nb::arg("own_cost"));
    m.def("joined_options", &joined, nb::arg("units"), nb::arg("parts"));
}

}  // namespace headgate::flow
