// The reductions of collectives.
#pragma once
#include <string_view>

namespace dtorch {

/** As torch.distributed.ReduceOp. avg divides the sum by the world size; band, bor, bxor are for integers and
 * bool. */
enum class ReduceOp { sum, product, min, max, avg, band, bor, bxor };
std::string_view to_string(ReduceOp op);

}  // namespace dtorch
