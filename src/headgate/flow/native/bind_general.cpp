// The general solver, as Python sees it.
#include "bindings.hpp"

namespace headgate::flow {

void bind_general(nanobind::module_&) {}

}  // namespace headgate::flow
