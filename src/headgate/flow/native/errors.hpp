// What the native core throws when its input is wrong.
#pragma once

#include <stdexcept>

namespace headgate::flow {

// Arrays that are no network, or a change to something that is not there. Python sees it as
// headgate.flow.BadNetwork with the same message.
class BadInput : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
};

}  // namespace headgate::flow
