// The functions that add each part to the module headgate.flow._native.
#pragma once

#include <nanobind/nanobind.h>

namespace headgate::flow {

void bind_general(nanobind::module_& m);
void bind_laminar(nanobind::module_& m);
void bind_options(nanobind::module_& m);

}  // namespace headgate::flow
