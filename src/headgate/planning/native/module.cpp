// The Python module headgate.planning._native: max-min fair allocation of GPUs, counts of tasks.
#include <nanobind/nanobind.h>

#include "arrays.hpp"
#include "task_counts.hpp"
#include "max_min.hpp"
#include "width_plan.hpp"

namespace nb = nanobind;

namespace headgate::planning {
namespace {

using Bytes = Array<std::uint8_t>;
using Int32s = Array<std::int32_t>;
using Floats = Array<double>;
using Bools = Array<bool>;
using Table = nb::ndarray<std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

nb::tuple counted(const Ints& row, const Bytes& state, const Bytes& before, const Ints& gpus_milli,
                  const Bools& multi_gpu, const Ints& type, const Int32s& job, const Bytes& flags,
                  const Ints& index, const Table& table) {
    if (table.shape(1) % 4 != 0) throw nb::value_error("no such table");
    WaitingChange changed = recount({view(row), view(state), view(gpus_milli), view(job)},
                                    view(before), view(multi_gpu), view(type), view(flags), view(index),
                                    {table.data(), table.size()}, table.shape(1) / 4);
    return nb::make_tuple(numpy(std::move(changed.row)), numpy(std::move(changed.job)),
                          numpy(std::move(changed.type)), numpy(std::move(changed.waited)));
}

nb::tuple idle_counted(const Ints& key, const Ints& count, const Ints& row, const Bytes& state,
                       const Ints& gpus_milli, const Int32s& job, const Int32s& runtime_class,
                       const Floats& progress_s, const Bools& was_fresh, const Bools& idle,
                       std::int64_t classes) {
    Idle found = recount_idle(view(key), view(count),
                              {view(row), view(state), view(gpus_milli), view(job)},
                              view(runtime_class), view(progress_s), view(was_fresh), view(idle),
                              classes);
    return nb::make_tuple(numpy(std::move(found.key)), numpy(std::move(found.count)),
                          numpy(std::move(found.begun)));
}

nb::list numbers(const std::vector<double>& values) {
    nb::list found;
    for (const double value : values) found.append(value);
    return found;
}

void def_width_plan(nb::module_& m) {
    using Numbers = const Ints&;
    nb::class_<WidthPlan>(m, "WidthPlan")
        .def(nb::init<std::int64_t, double>(), nb::kw_only(), nb::arg("gpus"), nb::arg("slot_s"))
        .def("add_curve",
             [](WidthPlan& self, Numbers width, const Floats& rate) {
                 return self.add_curve(view(width), view(rate));
             },
             nb::arg("width"), nb::arg("rate"))
        .def("begin",
             [](WidthPlan& self, double now_s, Numbers curve, const Floats& left,
                const Floats& deadline_s, Numbers before) {
                 self.begin(now_s, view(curve), view(left), view(deadline_s), view(before));
             },
             nb::arg("now_s"), nb::arg("curve"), nb::arg("left"), nb::arg("deadline_s"),
             nb::arg("before"))
        .def("resume", [](WidthPlan& self, Numbers order) { return self.resume(view(order)); },
             nb::arg("order"))
        .def("mark", &WidthPlan::mark)
        .def("undo", &WidthPlan::undo)
        .def("fill",
             [](WidthPlan& self, Numbers order, bool widest) {
                 return self.fill(view(order), widest);
             },
             nb::arg("order"), nb::arg("widest") = false)
        .def("add", &WidthPlan::add, nb::arg("job"), nb::arg("late"))
        .def("spread",
             [](WidthPlan& self, Numbers order, std::int64_t by) {
                 return numpy(self.spread(view(order), Leftover{by}));
             },
             nb::arg("order"), nb::arg("by"))
        .def("widths", [](const WidthPlan& self) { return numpy(self.widths()); })
        .def("ends", [](const WidthPlan& self) { return numbers(self.ends()); })
        .def("finishes", [](const WidthPlan& self) { return numbers(self.finishes()); })
        .def("promises", [](const WidthPlan& self) { return numbers(self.promises()); })
        .def("next_change", &WidthPlan::next_change);
}

}  // namespace
}  // namespace headgate::planning

NB_MODULE(_native, m) {
    using namespace headgate;
    using planning::MaxMin;
    using planning::Floats;

    nb::class_<MaxMin>(m, "MaxMin")
        .def("__init__",
             [](MaxMin* self, const Ints& queue, const Ints& user, const Ints& priority,
                const Ints& parent, const Floats& weight, const Ints& guaranteed,
                const Ints& most, const Ints& idle) {
                 new (self) MaxMin(view(queue), view(user), view(priority),
                                   {view(parent), view(weight), view(guaranteed), view(most),
                                    view(idle)});
             },
             nb::arg("queue"), nb::arg("user"), nb::arg("priority"), nb::kw_only(),
             nb::arg("parent"), nb::arg("weight"), nb::arg("guaranteed"), nb::arg("most"),
             nb::arg("idle"))
        .def("allocate",
             [](const MaxMin& self, const Ints& held, const Ints& room, std::int64_t gpus) {
                 return numpy(self.allocate(view(held), view(room), gpus));
             },
             nb::arg("held"), nb::arg("room"), nb::arg("gpus"))
        .def("allocate_by_type",
             [](const MaxMin& self, const Ints& held, const IntTable& tasks, const Ints& gpus,
                const Ints& won, const Ints& most, const BoolTable& accepts) {
                 return numpy(self.allocate_by_type(view(held), view(tasks), view(gpus), view(won),
                                                    view(most), {accepts.data(), accepts.size()}));
             },
             nb::arg("held"), nb::arg("tasks"), nb::arg("gpus"), nb::arg("won"),
             nb::arg("most"), nb::arg("accepts"))
        .def("usable",
             [](const MaxMin& self, const Ints& held, const Ints& room) {
                 return self.usable(view(held), view(room));
             },
             nb::arg("held"), nb::arg("room"));
    planning::def_width_plan(m);
    m.def("recount", &planning::counted, nb::arg("row"), nb::arg("state"), nb::arg("before"),
          nb::arg("gpus_milli"), nb::arg("multi_gpu"), nb::arg("types"), nb::arg("job"), nb::kw_only(),
          nb::arg("flags"), nb::arg("index"), nb::arg("table"));
    m.def("recount_idle", &planning::idle_counted, nb::arg("key"), nb::arg("count"), nb::arg("row"),
          nb::arg("state"), nb::arg("gpus_milli"), nb::arg("job"), nb::arg("runtime_class"),
          nb::arg("progress_s"), nb::kw_only(), nb::arg("was_fresh"), nb::arg("idle"),
          nb::arg("classes"));
}
