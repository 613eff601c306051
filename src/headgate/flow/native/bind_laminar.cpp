// The laminar solver, as Python sees it.
#include "bindings.hpp"

namespace headgate::flow {

void bind_laminar(nanobind::module_&) {}

}  // namespace headgate::flow
