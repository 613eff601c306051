// The Python module headgate.flow._native: its parts, and the translation of their errors.
#include <exception>

#include "bindings.hpp"
#include "errors.hpp"

namespace nb = nanobind;

namespace headgate::flow {
namespace {

// The class is looked up when it is needed: the Python package imports this module first.
void raise_bad_network(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const BadInput& wrong) {
        nb::object type = nb::module_::import_("headgate.flow.network").attr("BadNetwork");
        PyErr_SetString(type.ptr(), wrong.what());
    }
}

}  // namespace
}  // namespace headgate::flow

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // a solver kept until the process ends is no leak
    nb::register_exception_translator(headgate::flow::raise_bad_network);
    headgate::flow::bind_general(m);
    headgate::flow::bind_laminar(m);
    headgate::flow::bind_options(m);
}
