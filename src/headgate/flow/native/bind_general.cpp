// The Python bindings of the general solver.
#include <utility>

#include "arrays.hpp"
#include "bindings.hpp"
#include "general/network.hpp"

namespace nb = nanobind;

namespace headgate::flow {
namespace {

nb::object python_int(Wide value) {
    constexpr Number kBase = Number{1} << 62;
    const Wide low = (value % kBase + kBase) % kBase;
    return nb::int_(static_cast<Number>((value - low) / kBase)) * nb::int_(kBase) +
           nb::int_(static_cast<Number>(low));
}

nb::tuple solve(const Ints& tail, const Ints& head, const Ints& capacity, const Ints& cost,
                const Ints& supply) {
    const Network network{view(tail), view(head), view(capacity), view(cost), view(supply)};
    Flow found;
    {
        const nb::gil_scoped_release released;
        found = min_cost_flow(network);
    }
    return nb::make_tuple(numpy(std::move(found.flow)), numpy(std::move(found.potential)),
                          python_int(found.cost), found.unsent);
}

}  // namespace

void bind_general(nb::module_& m) {
    m.def("min_cost_flow", &solve, nb::arg("tail"), nb::arg("head"), nb::arg("capacity"),
          nb::arg("cost"), nb::arg("supply"));
}

}  // namespace headgate::flow
