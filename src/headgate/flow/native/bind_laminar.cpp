// The Python bindings of the laminar solver; _native.pyi documents its methods.
#include <nanobind/stl/optional.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "laminar/solver.hpp"

namespace nb = nanobind;

namespace headgate::flow {
namespace {

using laminar::Outcome;
using laminar::Solver;

// Long calls release the GIL. A solver must not be used by several threads at the same time.
NumPyInts add(Solver& solver, const Ints& offsets, const Ints& place, const Ints& cost) {
    std::vector<std::int64_t> added;
    {
        const nb::gil_scoped_release released;
        added = solver.add(view(offsets), view(place), view(cost));
    }
    return numpy(std::move(added));
}

Solver copy(const Solver& solver, nb::handle /* memo */) {
    const nb::gil_scoped_release released;
    return solver;
}

Outcome solve(Solver& solver, std::optional<double> budget_s) {
    const nb::gil_scoped_release released;
    return solver.solve(budget_s);
}

void bind_outcome(nb::module_& m) {
    nb::class_<Outcome>(m, "Outcome")
        .def("__deepcopy__", [](const Outcome& self, nb::handle) { return self; }, nb::arg("memo"))
        .def_ro("cost", &Outcome::cost)
        .def_ro("unplaced", &Outcome::unplaced)
        .def_ro("gap", &Outcome::gap)
        .def_ro("options_read", &Outcome::options_read);
}

}  // namespace

void bind_laminar(nb::module_& m) {
    bind_outcome(m);
    nb::class_<Solver>(m, "LaminarSolver")
        .def("__init__",
             [](Solver* self, const Ints& parent, const Ints& capacity) {
                 new (self) Solver(view(parent), view(capacity));
             },
             nb::arg("parent"), nb::arg("capacity"))
        .def("__deepcopy__", &copy, nb::arg("memo"))
        .def("add", &add, nb::arg("offsets"), nb::arg("place"), nb::arg("cost"))
        .def("remove", [](Solver& self, const Ints& ids) { self.remove(view(ids)); },
             nb::arg("ids"))
        .def("replace",
             [](Solver& self, const Ints& ids, const Ints& offsets, const Ints& place,
                const Ints& cost) {
                 self.replace(view(ids), view(offsets), view(place), view(cost));
             },
             nb::arg("ids"), nb::arg("offsets"), nb::arg("place"), nb::arg("cost"))
        .def("reprice",
             [](Solver& self, std::int64_t place, const Ints& ids, const Ints& cost) {
                 const nb::gil_scoped_release released;
                 self.reprice(place, view(ids), view(cost));
             },
             nb::arg("place"), nb::arg("ids"), nb::arg("cost"))
        .def("reprice_all",
             [](Solver& self, const Ints& place, const Ints& cost) {
                 const nb::gil_scoped_release released;
                 self.reprice_all(view(place), view(cost));
             },
             nb::arg("place"), nb::arg("cost"))
        .def("add_places",
             [](Solver& self, const Ints& parent, const Ints& capacity) {
                 return numpy(self.add_places(view(parent), view(capacity)));
             },
             nb::arg("parent"), nb::arg("capacity"))
        .def("set_capacity",
             [](Solver& self, const Ints& place, const Ints& capacity) {
                 self.set_capacity(view(place), view(capacity));
             },
             nb::arg("place"), nb::arg("capacity"))
        .def("solve", &solve, nb::arg("budget_s") = nb::none())
        .def("place_of", [](const Solver& self, const Ints& ids) {
                 return numpy(self.place_of(view(ids)));
             },
             nb::arg("ids"))
        .def("leaf_of", [](const Solver& self, const Ints& ids) {
                 return numpy(self.leaf_of(view(ids)));
             },
             nb::arg("ids"))
        .def("cost_of", [](const Solver& self, const Ints& ids) {
                 return numpy(self.cost_of(view(ids)));
             },
             nb::arg("ids"))
        .def("moved", [](Solver& self) { return numpy(self.moved()); })
        .def("prices", [](Solver& self) { return numpy(self.prices()); })
        .def("_check", &Solver::check);
}

}  // namespace headgate::flow
