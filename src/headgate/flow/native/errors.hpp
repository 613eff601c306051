// The exception that the native core throws for invalid input.
#pragma once

#include <stdexcept>

namespace headgate::flow {

// Arrays that are no network, or a change of something that does not exist. In Python it is
// headgate.flow.BadNetwork with the same message.
class BadInput : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
};

}  // namespace headgate::flow
