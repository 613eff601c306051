// The general solver, as Python sees it.
#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

#include "bindings.hpp"
#include "general/network.hpp"

namespace nb = nanobind;

namespace headgate::flow {
namespace {

using Ints = nb::ndarray<const Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using NumPyInts = nb::ndarray<nb::numpy, Number, nb::ndim<1>>;

std::span<const Number> view(const Ints& array) { return {array.data(), array.size()}; }

NumPyInts numpy(std::vector<Number>&& values) {
    auto* kept = new std::vector<Number>(std::move(values));
    const nb::capsule owner(kept, [](void* p) noexcept {
        delete static_cast<std::vector<Number>*>(p);
    });
    return NumPyInts(kept->data(), {kept->size()}, owner);
}

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
