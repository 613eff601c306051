// Integers of 128 bits, for sums of products.
#pragma once

namespace headgate::flow {

__extension__ typedef __int128 Wide;

}  // namespace headgate::flow
