// The Python module headgate.decision._native: the deal of GPUs to jobs.
#include <nanobind/nanobind.h>

#include "arrays.hpp"
#include "deal.hpp"

namespace nb = nanobind;

NB_MODULE(_native, m) {
    using namespace headgate;
    using decision::Deal;
    using Floats = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    nb::class_<Deal>(m, "Deal")
        .def("__init__",
             [](Deal* self, const Ints& queue, const Ints& user, const Ints& priority,
                const Floats& weight, const Ints& max_gpus) {
                 new (self) Deal(view(queue), view(user), view(priority),
                                 {weight.data(), weight.size()}, view(max_gpus));
             },
             nb::arg("queue"), nb::arg("user"), nb::arg("priority"), nb::arg("weight"),
             nb::arg("max_gpus"))
        .def("alike",
             [](const Deal& self, const Ints& held, const Ints& room, std::int64_t gpus) {
                 return numpy(self.alike(view(held), view(room), gpus));
             },
             nb::arg("held"), nb::arg("room"), nb::arg("gpus"))
        .def("by_class",
             [](const Deal& self, const Ints& held, const IntTable& tasks, const Ints& gpus,
                const Ints& won) {
                 return numpy(self.by_class(view(held), view(tasks), view(gpus), view(won)));
             },
             nb::arg("held"), nb::arg("tasks"), nb::arg("gpus"), nb::arg("won"));
}
