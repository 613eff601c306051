// Prices of fetching, as Python sees them.
#include <utility>

#include "arrays.hpp"
#include "bindings.hpp"
#include "fetch.hpp"

namespace nb = nanobind;

namespace headgate::flow {
namespace {

nb::tuple fetch_prices(const Ints& first, const Ints& price, const Ints& copy_first,
                       const Ints& copies, const Ints& region) {
    Fetched found;
    {
        const nb::gil_scoped_release released;
        found = fetched({view(first), view(price), view(copy_first), view(copies), view(region)});
    }
    return nb::make_tuple(
        nb::make_tuple(numpy(std::move(found.leaf_unit)), numpy(std::move(found.leaf)),
                       numpy(std::move(found.leaf_price))),
        nb::make_tuple(numpy(std::move(found.region_unit)), numpy(std::move(found.region)),
                       numpy(std::move(found.region_price))),
        numpy(std::move(found.anywhere)));
}

}  // namespace

void bind_fetch(nb::module_& m) {
    m.def("fetch_prices", &fetch_prices, nb::arg("first"), nb::arg("price"), nb::arg("copy_first"),
          nb::arg("copies"), nb::arg("region"));
}

}  // namespace headgate::flow
