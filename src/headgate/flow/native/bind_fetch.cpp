// Options of who fetches, as Python sees them.
#include <nanobind/stl/array.h>

#include <array>
#include <utility>

#include "arrays.hpp"
#include "bindings.hpp"
#include "fetch.hpp"

namespace nb = nanobind;

namespace headgate::flow {
namespace {

nb::tuple options(const Ints& first, const Ints& size, std::array<double, 3> price,
                  std::int64_t most, const Ints& copy_first, const Ints& copies,
                  const Ints& region, const Ints& smallest, const IntTable& at, std::int64_t dearer,
                  const IntTable& own_place, const IntTable& own_cost) {
    FetchOptions found;
    {
        const nb::gil_scoped_release released;
        const auto rows = static_cast<std::int64_t>(at.shape(0));
        const auto classes = static_cast<std::int64_t>(at.shape(1));
        found = fetch_options(
            {view(first), view(size), price, most, view(copy_first), view(copies), view(region)},
            {view(smallest), view(at), rows, classes, dearer, own_place.shape(1), view(own_place),
             view(own_cost)});
    }
    return nb::make_tuple(numpy(std::move(found.offsets)), numpy(std::move(found.place)),
                          numpy(std::move(found.cost)));
}

}  // namespace

void bind_fetch(nb::module_& m) {
    m.def("fetch_options", &options, nb::kw_only(), nb::arg("first"), nb::arg("size"),
          nb::arg("price"), nb::arg("most"), nb::arg("copy_first"), nb::arg("copies"),
          nb::arg("region"), nb::arg("smallest"), nb::arg("at"), nb::arg("dearer"),
          nb::arg("own_place"), nb::arg("own_cost"));
}

}  // namespace headgate::flow
